"""Connects a Kafka cluster, as the system whose replicas are placed, to the reconciler's topics.

Imports `schemas`, the Kafka clients and what connects them (`brokers`, `settings`, `errors`);
neither the core nor the stream. A module looks at the cluster or changes it, and the others are
functions of a `Snapshot`.
"""

from streaming.kafka_bridge.admin_client import ClusterAdmin, KafkaAdmin
from streaming.kafka_bridge.importer import (
    ImportedCluster,
    ImportOptions,
    PolicyUnreadable,
    RackUnreadable,
    TopicPolicy,
    import_cluster,
    parse_policy,
    read_policy,
)
from streaming.kafka_bridge.observer import Observer
from streaming.kafka_bridge.snapshot import Broker, Disk, Partition, Snapshot, Throttles, Topic

__all__ = [
    "Broker",
    "ClusterAdmin",
    "Disk",
    "ImportOptions",
    "ImportedCluster",
    "KafkaAdmin",
    "Observer",
    "Partition",
    "PolicyUnreadable",
    "RackUnreadable",
    "Snapshot",
    "Throttles",
    "Topic",
    "TopicPolicy",
    "import_cluster",
    "parse_policy",
    "read_policy",
]
