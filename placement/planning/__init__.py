"""Plans repair and rebalancing for a fleet as it stands, wave by wave.

Hashes what a plan rests on, so that consent can be checked against it. Imports `repair`,
`rebalance` and the parts below them.
"""

from placement.planning.balance import first_wave
from placement.planning.impact import (
    Impact,
    ShardState,
    StateDifference,
    Touched,
    compute_impact,
    find_differences,
    identity_body,
    impact_hash,
)
from placement.planning.plan import (
    WITHOUT_LIMITS,
    InFlight,
    Plan,
    PlannedMove,
    PlanPhase,
    StreamSnapshot,
    plan,
    top_level,
)
from placement.planning.waves import Waves, plan_waves

__all__ = [
    "WITHOUT_LIMITS",
    "Impact",
    "InFlight",
    "Plan",
    "PlanPhase",
    "PlannedMove",
    "ShardState",
    "StateDifference",
    "StreamSnapshot",
    "Touched",
    "Waves",
    "compute_impact",
    "find_differences",
    "first_wave",
    "identity_body",
    "impact_hash",
    "plan",
    "plan_waves",
    "top_level",
]
