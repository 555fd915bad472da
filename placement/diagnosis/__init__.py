"""What is wrong with shards, streams and fleets, and whether it can be mended.

Asks the rules of a stream's strategy about a shard or a whole cluster over arrays; knows nothing of
the reconciler's state. Imports `strategies` and what it stands on.
"""

from placement.diagnosis.cluster import Diagnosis, StreamToDiagnose, diagnose_cluster
from placement.diagnosis.disruption import (
    AffectedShard,
    at_stake_reason,
    exposed,
    in_maintenance,
    quorum_broken,
)
from placement.diagnosis.fixability import FixabilityChecker
from placement.diagnosis.health import Copies, Health, by_rung, quorum_size, worst
from placement.diagnosis.shard import (
    DRAIN_RULE,
    LEADER_RULE,
    REPLICAS_RULE,
    SURPLUS_RULE,
    UNKNOWN,
    WAITS_FOR_NODES,
    ShardDiagnosis,
    ShardToDiagnose,
    colocated_unit,
    is_stuck,
    kept_slots,
    live_slots,
    shared_nodes,
    stray_slots,
    why_dead,
    why_draining,
    why_inadmissible,
    why_kept,
    why_stray,
    why_surplus,
)

__all__ = [
    "DRAIN_RULE",
    "LEADER_RULE",
    "REPLICAS_RULE",
    "SURPLUS_RULE",
    "UNKNOWN",
    "WAITS_FOR_NODES",
    "AffectedShard",
    "Copies",
    "Diagnosis",
    "FixabilityChecker",
    "Health",
    "ShardDiagnosis",
    "ShardToDiagnose",
    "StreamToDiagnose",
    "at_stake_reason",
    "by_rung",
    "colocated_unit",
    "diagnose_cluster",
    "exposed",
    "in_maintenance",
    "is_stuck",
    "kept_slots",
    "live_slots",
    "quorum_broken",
    "quorum_size",
    "shared_nodes",
    "stray_slots",
    "why_dead",
    "why_draining",
    "why_inadmissible",
    "why_kept",
    "why_stray",
    "why_surplus",
    "worst",
]
