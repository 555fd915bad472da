"""What is wrong with shards, streams and fleets, and whether it can be mended.

Asks the rules of a stream's strategy about a shard or a whole cluster over arrays; knows nothing of
the reconciler's state. Imports `strategies` and what it stands on.
"""

from placement.diagnosis.cluster import diagnose_cluster
from placement.diagnosis.disruption import (
    AffectedShard,
    at_stake_reason,
    exposed,
    in_maintenance,
    quorum_broken,
)
from placement.diagnosis.findings import UNKNOWN, Diagnosed, Diagnosis, StreamToDiagnose
from placement.diagnosis.health import Copies, Health, by_rung, quorum_size, worst
from placement.diagnosis.shard import (
    REPLICAS_RULE,
    WAITS_FOR_NODES,
    broken_filter,
    broken_rules,
    colocated_unit,
    kept_slots,
    live_slots,
    missing_replicas,
    shared_nodes,
    stray_slots,
    why_dead,
    why_kept,
    why_needy,
)

__all__ = [
    "REPLICAS_RULE",
    "UNKNOWN",
    "WAITS_FOR_NODES",
    "AffectedShard",
    "Copies",
    "Diagnosed",
    "Diagnosis",
    "Health",
    "StreamToDiagnose",
    "at_stake_reason",
    "broken_filter",
    "broken_rules",
    "by_rung",
    "colocated_unit",
    "diagnose_cluster",
    "exposed",
    "in_maintenance",
    "kept_slots",
    "live_slots",
    "missing_replicas",
    "quorum_broken",
    "quorum_size",
    "shared_nodes",
    "stray_slots",
    "why_dead",
    "why_kept",
    "why_needy",
    "worst",
]
