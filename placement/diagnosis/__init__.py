"""Diagnoses shards, streams and fleets: each violation with its class and reason.

Asks the rules of a stream's strategy about a shard or, over arrays, about a whole cluster. Imports
`strategies` and the parts below it; does not know the reconciler's state.
"""

from placement.diagnosis.cluster import Diagnosis, StreamToDiagnose, diagnose_cluster
from placement.diagnosis.disruption import (
    AffectedShard,
    draining_nodes,
    exposed_after_repair,
    exposed_shards,
    exposure_reason,
    nodes_in_maintenance,
)
from placement.diagnosis.fixability import FixabilityChecker
from placement.diagnosis.health import (
    Copies,
    Health,
    count_by_rung,
    quorum_size,
    shard_health,
    worst_of,
)
from placement.diagnosis.resources import OVER_CAPACITY_RULE, over_capacity, unbalanced
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
    why_barred_leader,
    why_dead,
    why_draining,
    why_inadmissible,
    why_kept,
    why_stray,
    why_surplus,
)
from placement.diagnosis.shortage import Demand

__all__ = [
    "DRAIN_RULE",
    "LEADER_RULE",
    "OVER_CAPACITY_RULE",
    "REPLICAS_RULE",
    "SURPLUS_RULE",
    "UNKNOWN",
    "WAITS_FOR_NODES",
    "AffectedShard",
    "Copies",
    "Demand",
    "Diagnosis",
    "FixabilityChecker",
    "Health",
    "ShardDiagnosis",
    "ShardToDiagnose",
    "StreamToDiagnose",
    "colocated_unit",
    "count_by_rung",
    "diagnose_cluster",
    "draining_nodes",
    "exposed_after_repair",
    "exposed_shards",
    "exposure_reason",
    "is_stuck",
    "kept_slots",
    "live_slots",
    "nodes_in_maintenance",
    "over_capacity",
    "quorum_size",
    "shard_health",
    "shared_nodes",
    "stray_slots",
    "unbalanced",
    "why_barred_leader",
    "why_dead",
    "why_draining",
    "why_inadmissible",
    "why_kept",
    "why_stray",
    "why_surplus",
    "worst_of",
]
