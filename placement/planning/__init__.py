"""Plans for a fleet as it stands: repair and rebalancing with nothing withheld, wave by wave.

What a plan touches is hashed, so that consent can be held against it. Imports `repair`,
`rebalance` and what they stand on.
"""

from placement.planning.impact import (
    Change,
    Impact,
    ShardState,
    Touched,
    changes,
    identity_body,
    impact,
    impact_hash,
)
from placement.planning.plan import (
    WITHOUT_LIMITS,
    InFlight,
    Phase,
    Plan,
    PlannedMove,
    StreamSnapshot,
    plan,
    top_level,
)
from placement.planning.waves import Waves, until_balanced

__all__ = [
    "WITHOUT_LIMITS",
    "Change",
    "Impact",
    "InFlight",
    "Phase",
    "Plan",
    "PlannedMove",
    "ShardState",
    "StreamSnapshot",
    "Touched",
    "Waves",
    "changes",
    "identity_body",
    "impact",
    "impact_hash",
    "plan",
    "top_level",
    "until_balanced",
]
