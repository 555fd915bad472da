"""Connects a Kafka cluster, as the system whose replicas are placed, to the reconciler's topics.

Imports `schemas`, the Kafka clients and what connects them (`brokers`, `settings`, `errors`);
neither the core nor the stream. A module looks at the cluster or changes it, and the others are
functions of a `Snapshot`.
"""

from streaming.kafka_bridge.admin_client import ClusterAdmin, KafkaAdmin
from streaming.kafka_bridge.agent import Agent, BridgeRefused, Mode, Round
from streaming.kafka_bridge.apply import ApplyRefused, Executor, Outcome, Surroundings
from streaming.kafka_bridge.controller import BridgeOptions
from streaming.kafka_bridge.copying import Progress, copied_bytes, seconds_left
from streaming.kafka_bridge.importer import (
    RACK_TAG,
    ImportedCluster,
    ImportOptions,
    PolicyUnreadable,
    RackUnreadable,
    TopicPolicy,
    import_cluster,
    parse_policy,
    read_policy,
    replication_factor,
)
from streaming.kafka_bridge.journal import Direction, Journal, JournalFile
from streaming.kafka_bridge.membership import MembershipOptions
from streaming.kafka_bridge.monitoring import Monitoring
from streaming.kafka_bridge.observer import Observer
from streaming.kafka_bridge.reconciler_topics import KafkaTopics, ReconcilerTopics
from streaming.kafka_bridge.settling import LooksDiffer, look_until_settled
from streaming.kafka_bridge.snapshot import Broker, Disk, Partition, Snapshot, Throttles, Topic
from streaming.kafka_bridge.waves import (
    Change,
    ReassignmentPlan,
    Standing,
    Wave,
    name_partition,
    sort_wave,
)

__all__ = [
    "RACK_TAG",
    "Agent",
    "ApplyRefused",
    "BridgeOptions",
    "BridgeRefused",
    "Broker",
    "Change",
    "ClusterAdmin",
    "Direction",
    "Disk",
    "Executor",
    "ImportOptions",
    "ImportedCluster",
    "Journal",
    "JournalFile",
    "KafkaAdmin",
    "KafkaTopics",
    "LooksDiffer",
    "MembershipOptions",
    "Mode",
    "Monitoring",
    "Observer",
    "Outcome",
    "Partition",
    "PolicyUnreadable",
    "Progress",
    "RackUnreadable",
    "ReassignmentPlan",
    "ReconcilerTopics",
    "Round",
    "Snapshot",
    "Standing",
    "Surroundings",
    "Throttles",
    "Topic",
    "TopicPolicy",
    "Wave",
    "copied_bytes",
    "import_cluster",
    "look_until_settled",
    "name_partition",
    "parse_policy",
    "read_policy",
    "replication_factor",
    "seconds_left",
    "sort_wave",
]
