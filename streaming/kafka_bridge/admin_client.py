"""Asks a Kafka cluster about itself and changes it: the only module that holds an admin client.

kafka-python is used because it alone has reassignments and log directories; its shapes and errors
end here. Answers are given for each item, because Kafka accepts one partition and refuses the next.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import AlterConfigOp as Operation
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    ClusterAuthorizationFailedError,
    ElectionNotNeededError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    NoError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.api_key import ApiKey

from streaming.administration import connect_admin
from streaming.brokers import CallHangs, call_within
from streaming.errors import AccessRefused, BrokerUnreachable
from streaming.kafka_bridge.snapshot import Broker, Disk, Partition

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_Answer = TypeVar("_Answer")
PartitionId = tuple[str, int]
"""A topic's name and a partition's number."""

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_ENTRIES = "leader.replication.throttled.replicas"
FOLLOWER_ENTRIES = "follower.replication.throttled.replicas"
MIN_IN_SYNC = "min.insync.replicas"
POLICY = "placement.policy"
TOPIC_CONFIGS = (MIN_IN_SYNC, LEADER_ENTRIES, FOLLOWER_ENTRIES, POLICY)

# The version of DescribeCluster from which fenced brokers are listed: that of Kafka 4.0.
FENCED_BROKERS_VERSION = 2
# What looking needs on the cluster, and then what reassignments, elections and throttles need.
CLUSTER_RIGHTS = ("DESCRIBE", "ALTER", "ALTER_CONFIGS")

# A controller change takes a few seconds, in which it answers nobody; a call that takes longer than
# this hangs, and whoever called has to know.
CALL_TIMEOUT_SECONDS = 20.0
# As many replicas of one topic-wide change as fit a controller's batch without a stall.
ALTER_BATCH = 250


@dataclass(frozen=True, slots=True)
class DescribedCluster:
    """The registered brokers, fenced ones included, by id."""

    cluster_id: str
    controller: int | None
    brokers: Mapping[int, Broker]


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """A topic without its configuration; a partition's reassignment is not in it yet."""

    name: str
    uid: str
    internal: bool
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The union of target and removing replicas, and what is being added and removed."""

    listed: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DescribedLogs:
    """Sizes of replicas in bytes by partition, and the log directories together."""

    sizes: Mapping[PartitionId, int]
    disk: Disk


class ClusterAdmin(Protocol):
    """Questions to a cluster and changes of it, each a blocking call.

    All raise BrokerUnreachable (CallHangs where a call does not return) and AccessRefused.
    Answers of changes hold, by item, None or the name of Kafka's error.
    """

    def find_obstacles(self, *, alters: bool) -> list[str]:
        """Say why the cluster cannot be looked at, or altered: old brokers, rights that lack."""

    def describe_cluster(self) -> DescribedCluster:
        """Describe the registered brokers."""

    def describe_topics(self) -> list[DescribedTopic]:
        """Describe all topics that the principal may see."""

    def find_hidden(self, topics: Collection[str]) -> set[str]:
        """Ask for topics by name; return those that may be there, but not be described."""

    def list_reassignments(self) -> dict[PartitionId, Reassignment]:
        """List the reassignments under way."""

    def describe_topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """Read `TOPIC_CONFIGS` of topics, as they apply; a topic that is gone is left out."""

    def describe_broker_rates(self, brokers: Collection[int]) -> dict[int, dict[str, int]]:
        """Read the throttle rates (bytes a second) that are set on live brokers; one that does not
        answer is left out."""

    def describe_logs(self, brokers: Collection[int]) -> dict[int, DescribedLogs]:
        """Read sizes and disks of live brokers; one that does not answer is left out."""

    def alter_reassignments(
        self, targets: Mapping[PartitionId, Sequence[int] | None]
    ) -> dict[PartitionId, str | None]:
        """Start or replace reassignments; None cancels one."""

    def alter_topic_entries(
        self, changes: Mapping[str, Mapping[str, tuple[Collection[str], Collection[str]]]]
    ) -> dict[str, str | None]:
        """Add and remove elements of list configurations: topic, then config, to (add, remove)."""

    def alter_broker_rates(
        self, changes: Mapping[int, Mapping[str, int | None]]
    ) -> dict[int, str | None]:
        """Set throttle rates of live brokers; None removes one."""

    def elect_preferred(self, partitions: Collection[PartitionId]) -> dict[PartitionId, str | None]:
        """Elect the preferred leader of each; one that leads already is no error."""


class KafkaAdmin:
    """`ClusterAdmin` over kafka-python, connected when it is first asked.

    The client is made anew after a failure: its metadata does not learn of a broker that has just
    come back. A call runs on a thread of its own, so that one that hangs can be left behind.
    """

    def __init__(self, bootstrap: str, options: Mapping[str, str] | None = None) -> None:
        self._bootstrap, self._options = bootstrap, options
        self._context: AbstractContextManager[KafkaAdminClient] | None = None
        self._client: KafkaAdminClient | None = None
        self._broker: int | None = None
        self.calls = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client, if one is open; the next call connects again."""
        context, self._context, self._client = self._context, None, None
        if context is not None:
            context.__exit__(None, None, None)

    def turn_to(self, broker: int | None) -> None:
        """Connect anew, and ask this broker what any can answer; None: whom the client likes."""
        self.close()
        self._broker = broker

    def find_obstacles(self, *, alters: bool) -> list[str]:
        """See ClusterAdmin."""
        versions = self._call("tell their versions", lambda client: client.api_versions())
        if versions.get(ApiKey.DescribeCluster, (0, 0))[1] < FENCED_BROKERS_VERSION:
            what = f"the brokers at {self._bootstrap} are older than Kafka 4.0"
            return [f"{what}, and do not list fenced brokers (KIP-1073): upgrade them"]
        found = self._call("tell what is allowed", lambda client: client.describe_cluster())
        allowed = found.get("authorized_operations")
        needed = CLUSTER_RIGHTS if alters else CLUSTER_RIGHTS[:1]
        missing = [each for each in needed if allowed is not None and each not in allowed]
        if not missing:
            return []
        rights = " and ".join(each.replace("_", " ").title() for each in missing)
        needs = "placer topics acls --role bridge lists what a bridge needs"
        return [f"this user lacks the right {rights} on the cluster: {needs}"]

    def describe_cluster(self) -> DescribedCluster:
        """See ClusterAdmin."""
        found = self._call("describe the cluster", lambda client: client.describe_cluster())
        brokers = {each["broker_id"]: _broker(each) for each in found["brokers"]}
        controller = None if found["controller_id"] < 0 else found["controller_id"]
        return DescribedCluster(found["cluster_id"], controller, brokers)

    def describe_topics(self) -> list[DescribedTopic]:
        """See ClusterAdmin."""
        found = self._call("describe topics", lambda client: client.describe_topics())
        return [
            DescribedTopic(
                topic["name"],
                str(topic["topic_id"]),
                bool(topic["is_internal"]),
                tuple(sorted(map(_partition, topic["partitions"]), key=lambda each: each.number)),
            )
            for topic in found
            if _is_described(topic)
        ]

    def find_hidden(self, topics: Collection[str]) -> set[str]:
        """See ClusterAdmin."""
        if not topics:
            return set()
        # Of all topics Kafka leaves out those that may not be described; of named ones it says so.
        found = self._call("find topics", lambda client: client.describe_topics([*topics]))
        known = (NoError, UnknownTopicOrPartitionError, InvalidTopicError)
        return {topic["name"] for topic in found if for_code(topic["error_code"]) not in known}

    def list_reassignments(self) -> dict[PartitionId, Reassignment]:
        """See ClusterAdmin."""
        found = self._call(
            "list reassignments", lambda client: client.list_partition_reassignments()
        )
        return {
            (key.topic, key.partition): Reassignment(
                tuple(each["replicas"]),
                tuple(each["adding_replicas"]),
                tuple(each["removing_replicas"]),
            )
            for key, each in found.items()
        }

    def describe_topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """See ClusterAdmin."""
        return self._describe_configs(ConfigResourceType.TOPIC, topics, TOPIC_CONFIGS)

    def describe_broker_rates(self, brokers: Collection[int]) -> dict[int, dict[str, int]]:
        """See ClusterAdmin."""
        return self._ask_each(brokers, self._describe_rates)

    def _describe_rates(self, brokers: Collection[int]) -> dict[int, dict[str, int]]:
        names, keys = [str(each) for each in brokers], (LEADER_RATE, FOLLOWER_RATE)
        found = self._describe_configs(ConfigResourceType.BROKER, names, keys)
        return {
            int(name): {key: int(value) for key, value in rates.items()}
            for name, rates in found.items()
        }

    def _describe_configs(
        self, kind: ConfigResourceType, names: Collection[str], keys: Sequence[str]
    ) -> dict[str, dict[str, str]]:
        """Read configurations by name and key; what has no value is left out."""
        if not names:
            return {}
        asked, of = [ConfigResource(kind, name, [*keys]) for name in names], kind.name.lower()
        ask = _ask(KafkaAdminClient.describe_configs, asked, config_filter="all")
        found = self._call(f"read the configuration of {of}s", ask)
        return {
            name: {key: each["value"] for key, each in configs.items() if each["value"]}
            for name, configs in found.get(of, {}).items()
        }

    def describe_logs(self, brokers: Collection[int]) -> dict[int, DescribedLogs]:
        """See ClusterAdmin."""
        return self._ask_each(brokers, self._describe_logs)

    def _ask_each(
        self, brokers: Collection[int], ask: Callable[[Collection[int]], dict[int, _Answer]]
    ) -> dict[int, _Answer]:
        """Ask all brokers in one call; if one of them does not answer, one by one without it.

        A broker that dies is listed as live until its session has run out.
        """
        try:
            return ask([*brokers])
        except CallHangs:
            raise
        except BrokerUnreachable:
            found: dict[int, _Answer] = {}
        for broker in brokers:
            try:
                found |= ask([broker])
            except CallHangs:
                raise
            except BrokerUnreachable:
                continue
        return found

    def _describe_logs(self, brokers: Collection[int]) -> dict[int, DescribedLogs]:
        found = self._call(
            f"read the log directories of brokers {[*brokers]}",
            lambda client: client.describe_log_dirs(brokers=[*brokers]),
        )
        return {each["broker"]: _logs(each["log_dirs"]) for each in found}

    def alter_reassignments(
        self, targets: Mapping[PartitionId, Sequence[int] | None]
    ) -> dict[PartitionId, str | None]:
        """See ClusterAdmin."""
        answers: dict[PartitionId, str | None] = {}
        for batch in _batches(sorted(targets)):
            request = {
                TopicPartition(*key): None if (to := targets[key]) is None else list(to)
                for key in batch
            }
            found = self._call(
                "alter reassignments", _ask(KafkaAdminClient.alter_partition_reassignments, request)
            )
            answers |= {(k.topic, k.partition): _error_name(v) for k, v in found.items()}
        return answers

    def alter_topic_entries(
        self, changes: Mapping[str, Mapping[str, tuple[Collection[str], Collection[str]]]]
    ) -> dict[str, str | None]:
        """See ClusterAdmin."""
        # Kafka takes one operation for a key in a request: first what is added, then what goes.
        answers: dict[str, str | None] = {}
        for operation, side in ((Operation.APPEND, 0), (Operation.SUBTRACT, 1)):
            wanted = {
                topic: {
                    config: (operation, ",".join(sorted(sides[side])))
                    for config, sides in configs.items()
                    if sides[side]
                }
                for topic, configs in changes.items()
            }
            answers |= self._alter(ConfigResourceType.TOPIC, wanted)
        return answers

    def alter_broker_rates(
        self, changes: Mapping[int, Mapping[str, int | None]]
    ) -> dict[int, str | None]:
        """See ClusterAdmin."""
        answers: dict[int, str | None] = {}
        for broker, rates in changes.items():
            wanted = {
                str(broker): {
                    key: (Operation.DELETE, None) if rate is None else (Operation.SET, str(rate))
                    for key, rate in rates.items()
                }
            }
            # One at a time: a broker that dies meanwhile must not undo the others' answers.
            try:
                found = self._alter(ConfigResourceType.BROKER, wanted)
            except CallHangs:
                raise
            except BrokerUnreachable as error:
                answers[broker] = str(error)
            else:
                answers |= {int(name): said for name, said in found.items()}
        return answers

    def elect_preferred(self, partitions: Collection[PartitionId]) -> dict[PartitionId, str | None]:
        """See ClusterAdmin."""
        answers: dict[PartitionId, str | None] = {}
        for batch in _batches(sorted(partitions)):
            request: dict[str, list[int]] = {}
            for topic, partition in batch:
                request.setdefault(topic, []).append(partition)
            preferred = 0  # the protocol's word for ELECT_PREFERRED
            found = self._call(
                "elect preferred leaders",
                _ask(KafkaAdminClient.elect_leaders, preferred, request, raise_errors=False),
            )
            for topic in found.replica_election_results:
                for each in topic.partition_result:
                    error = for_code(each.error_code)
                    done = error in (NoError, ElectionNotNeededError)
                    key = (topic.topic, each.partition_id)
                    answers[key] = None if done else _error_name(error)
        return answers

    def _alter(
        self, kind: ConfigResourceType, wanted: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, str | None]:
        resources = [
            ConfigResource(kind, name, dict(configs)) for name, configs in wanted.items() if configs
        ]
        if not resources:
            return {}
        found = self._call(
            "alter configurations",
            # Brokers do not list a throttle's key until it has been set once.
            lambda client: client.alter_configs(resources, raise_on_unknown=False),
        )
        answers = found.get(kind.name.lower(), {})
        return {name: None if said == "OK" else str(said) for name, said in answers.items()}

    def _call(self, doing: str, ask: Callable[[KafkaAdminClient], Any]) -> Any:
        """Ask on a thread, for `CALL_TIMEOUT_SECONDS` at most, and turn errors into ours."""
        self.calls += 1
        try:
            return call_within(CALL_TIMEOUT_SECONDS, doing, lambda: ask(self._connected()))
        except CallHangs:
            # Closing it would wait for the call.
            self._context = self._client = None
            raise
        except (ClusterAuthorizationFailedError, TopicAuthorizationFailedError) as error:
            self.close()
            raise AccessRefused(
                f"the brokers do not allow this user to {doing}: {error}"
            ) from error
        except (KafkaError, KafkaTimeoutError, OSError) as error:
            self.close()
            raise BrokerUnreachable(f"the brokers did not {doing}: {error}") from error
        except BaseException:
            self.close()
            raise

    def _connected(self) -> KafkaAdminClient:
        if self._client is None:
            self._context = connect_admin(self._bootstrap, self._options, self._broker)
            self._client = self._context.__enter__()
        return self._client


def _ask(
    question: Callable[..., Any], *values: Any, **options: Any
) -> Callable[[KafkaAdminClient], Any]:
    return lambda client: question(client, *values, **options)


def _batches(keys: Sequence[PartitionId]) -> Iterable[Sequence[PartitionId]]:
    return (keys[start : start + ALTER_BATCH] for start in range(0, len(keys), ALTER_BATCH))


def _is_described(topic: Mapping[str, Any]) -> bool:
    """Tell a topic from one that was deleted between the list and the description."""
    error = for_code(topic["error_code"])
    if error in (UnknownTopicOrPartitionError, UnknownTopicIdError):
        return False
    if error is not NoError:
        raise error(f"topic {topic['name']}")
    return True


def _broker(found: Mapping[str, Any]) -> Broker:
    fenced = bool(found.get("is_fenced", False))
    return Broker(found["broker_id"], found["host"], found["port"], found["rack"], fenced)


def _partition(found: Mapping[str, Any]) -> Partition:
    leader = found["leader_id"]
    return Partition(
        found["partition_index"],
        tuple(found["replica_nodes"]),
        None if leader < 0 else leader,
        tuple(found["isr_nodes"]),
        offline=tuple(found["offline_replicas"]),
    )


def _logs(directories: Iterable[Mapping[str, Any]]) -> DescribedLogs:
    sizes: dict[PartitionId, int] = {}
    totals, usables, failed = [], [], []
    for each in directories:
        if for_code(each["error_code"]) is not NoError:
            failed.append(each["log_dir"])
            continue
        totals.append(each.get("total_bytes", -1))
        usables.append(each.get("usable_bytes", -1))
        for topic in each["topics"]:
            for partition in topic["partitions"]:
                if not partition["is_future_key"]:
                    sizes[topic["name"], partition["partition_index"]] = partition["partition_size"]
    return DescribedLogs(sizes, Disk(_sum(totals), _sum(usables), tuple(failed)))


def _sum(parts: Sequence[int]) -> int | None:
    """Add sizes up; brokers that do not know one write -1."""
    return None if not parts or min(parts) < 0 else sum(parts)


def _error_name(error: type[KafkaError] | KafkaError | None) -> str | None:
    if error is None:
        return None
    found = error if isinstance(error, type) else type(error)
    return found.__name__.removesuffix("Error")
