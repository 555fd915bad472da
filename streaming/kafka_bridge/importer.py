"""Makes a cluster file of a `Snapshot`: brokers become nodes, topics streams, partitions shards.

`placer check`, `plan` and `explain` then answer for the Kafka cluster. Lists are those without what
a running reassignment adds; `min.insync.replicas` is the quorum, since a write with acks=all needs
as many replicas in sync.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import yaml

from schemas import limits
from schemas.cluster import SHARD_BYTES_RESOURCE
from streaming.kafka_bridge.snapshot import Broker, Partition, Snapshot, Topic

RACK_TAG = "rack"
"""The tag that holds a broker's rack as Kafka has it."""
# Made by brokers for themselves, and not marked as internal by all versions.
_INTERNAL = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
)


# Of many brokers, topics or partitions a note names the first: a line of a terminal.
_NAMED_MAX = 5
_LOCATION = re.compile(limits.LOCATION_PATTERN)
_TAG_VALUE = re.compile(limits.TAG_VALUE_PATTERN)

PolicyFields = Mapping[str, Any]
"""The fields of a stream that say its policy: `policy` or `placement_policies`."""


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """The policy of the topics whose whole name matches a pattern."""

    pattern: re.Pattern[str]
    fields: PolicyFields


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Selects topics and says how racks and fenced brokers are to be read.

    `levels` name the tiers of a rack; more than one need a `separator` between the parts of a rack.
    A topic's own policy outranks `policies`, which are tried in their order. Without `internal` the
    topics that brokers make for themselves are left out.
    """

    include: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None
    internal: bool = True
    levels: Sequence[str] = ("rack",)
    separator: str | None = None
    policies: Sequence[TopicPolicy] = ()
    fenced_is_dead: bool = False


@dataclass(frozen=True, slots=True)
class ImportedCluster:
    """A cluster file as JSON gives it, and what a person should know of how it came about."""

    body: Mapping[str, Any]
    notes: Sequence[str] = field(default=())


class RackUnreadable(Exception):
    """A rack cannot be written as a location; the message names broker, rack and why."""


class PolicyUnreadable(Exception):
    """A text is no policy, or a policy is for no topic that there is; the message says which."""


def import_cluster(snapshot: Snapshot, options: ImportOptions) -> ImportedCluster:
    """Make the cluster file. Raises RackUnreadable, and PolicyUnreadable where a pattern of
    `options.policies` matches no topic."""
    topics = [topic for _, topic in sorted(snapshot.topics.items()) if is_wanted(topic, options)]
    for each in options.policies:
        if not any(each.pattern.fullmatch(topic.name) for topic in topics):
            message = f"pattern '{each.pattern.pattern}' matches the whole name of none of the "
            raise PolicyUnreadable(f"{message}topics that are imported, which are {len(topics)}")
    racks = any(broker.rack for broker in snapshot.brokers.values())
    used = {broker for topic in topics for each in topic.partitions for broker in each.replicas}
    gone = sorted(used - snapshot.brokers.keys())
    nodes = [_node(broker, snapshot, options) for _, broker in sorted(snapshot.brokers.items())]
    # A replica on a broker that is not registered any more is one that is lost.
    nodes += [{"id": str(broker), "status": "dead"} for broker in gone]
    streams = [_stream(topic, snapshot, options, racks=racks) for topic in topics]
    sized = any("loads" in each for each in streams) or any("capacities" in each for each in nodes)
    body = {
        "name": f"kafka {snapshot.cluster_id}",
        "levels": [*options.levels] if racks else [],
        **({"resources": {SHARD_BYTES_RESOURCE: {}}} if sized else {}),
        "nodes": nodes,
        "streams": streams,
    }
    return ImportedCluster(body, tuple(_notes(snapshot, topics, gone, options)))


def describe_unracked(brokers: Collection[Broker]) -> Iterator[str]:
    """Describe the brokers that have no rack where others have one."""
    unracked = [str(each.id) for each in sorted(brokers, key=lambda each: each.id) if not each.rack]
    if unracked and len(unracked) < len(brokers):
        yield (
            f"{_name('broker', unracked)} without a rack (broker.rack): rules on racks count all "
            "such brokers as one more rack"
        )


def location_of(broker: Broker, options: ImportOptions) -> str | None:
    """Return the location that a broker's rack stands for; None without a rack.

    Characters that no location has are percent-encoded. Raises RackUnreadable.
    """
    if not broker.rack:
        return None
    parts = [broker.rack]
    if options.separator:
        parts = broker.rack.strip(options.separator).split(options.separator)
    if len(parts) != len(options.levels) or "" in parts:
        between = f" between '{options.separator}'" if options.separator else ""
        message = f"broker {broker.id}: rack '{broker.rack}' has {len(parts)} "
        message += f"{'part' if len(parts) == 1 else 'parts'}{between}, the levels are "
        raise RackUnreadable(message + ", ".join(options.levels))
    location = "".join(f"/{_encode(part)}" for part in parts)
    if not _LOCATION.fullmatch(location):
        message = f"broker {broker.id}: rack '{broker.rack[: limits.ECHO_LENGTH_MAX]}…' has "
        message += f"{len(broker.rack.encode())} bytes, a location has at most 128 for each level"
        raise RackUnreadable(message)
    return location


def parse_policy(text: str) -> PolicyFields:
    """Read a policy: a mapping in YAML or JSON, a strategy's name, or a placement_policies string
    (`node=exclusive;shard=balanced`). Raises PolicyUnreadable."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise PolicyUnreadable(f"'{text}' is not YAML: {error}") from error
    return read_policy(value)


def read_policy(value: object) -> PolicyFields:
    """Read a policy as `parse_policy` does, from the value that YAML gives."""
    if isinstance(value, dict):
        return {"policy": value}
    if isinstance(value, str) and "=" in value:
        return {"placement_policies": value}
    if isinstance(value, str) and value:
        return {"policy": {"strategy": value}}
    message = f"{value!r} is no policy: expected a mapping such as {{strategy: spread}}, the name "
    raise PolicyUnreadable(message + "of a strategy, or placement_policies (node=exclusive)")


def _encode(part: str) -> str:
    """Percent-encode what a component cannot have; `quote` leaves letters, digits and `_.-~`."""
    if part in (".", ".."):
        return part.replace(".", "%2E")
    return quote(part, safe="").replace("~", "%7E")


def host_of(broker: Broker) -> str:
    """Return where a broker is reached, `host:port`; an IPv6 address stands in brackets."""
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    return f"{host}:{broker.port}"


def _node(broker: Broker, snapshot: Snapshot, options: ImportOptions) -> dict[str, Any]:
    node: dict[str, Any] = {"id": str(broker.id), "host": host_of(broker)}
    location = location_of(broker, options)
    if location is not None:
        node["location"] = location
        if _TAG_VALUE.fullmatch(broker.rack or ""):
            node["tags"] = {RACK_TAG: broker.rack}
    if broker.fenced:
        node["status"] = "dead" if options.fenced_is_dead else "fenced"
    disk = snapshot.disks.get(broker.id)
    if disk is not None and disk.total and _tells_disks(snapshot):
        node["capacities"] = {SHARD_BYTES_RESOURCE: disk.total}
    return node


def _tells_disks(snapshot: Snapshot) -> bool:
    """Return whether all brokers say how large their disks are: one that does not would look
    boundless beside the others."""
    return all(snapshot.disks[each].total for each in snapshot.disks)


def is_wanted(topic: Topic, options: ImportOptions) -> bool:
    """Return whether the options select a topic."""
    if not options.internal and (topic.internal or topic.name in _INTERNAL):
        return False
    if options.include is not None and not options.include.fullmatch(topic.name):
        return False
    return options.exclude is None or not options.exclude.fullmatch(topic.name)


def _stream(
    topic: Topic, snapshot: Snapshot, options: ImportOptions, *, racks: bool
) -> dict[str, Any]:
    factor = replication_factor(topic.partitions)
    sizes = [snapshot.size_of(topic.name, each.number) for each in topic.partitions]
    stream: dict[str, Any] = {
        "stream": topic.name,
        "shards": len(topic.partitions),
        "replication_factor": factor,
        **policy_of(topic, options, racks=racks),
        "quorum": min(topic.min_in_sync, factor),
        "replicas": [[str(broker) for broker in _listed(each)] for each in topic.partitions],
    }
    if any({*_listed(each)} - {*each.in_sync} for each in topic.partitions):
        stream["in_sync"] = [[str(broker) for broker in each.in_sync] for each in topic.partitions]
    if any(size is not None for size in sizes):
        stream["loads"] = {SHARD_BYTES_RESOURCE: sizes}
    return stream


def _listed(partition: Partition) -> tuple[int, ...]:
    """The replicas, the preferred leader first. While a reassignment runs Kafka does not tell the
    order they had: the one that leads is first then."""
    replicas, leader = partition.replicas, partition.leader
    if not partition.is_reassigned or leader not in replicas:
        return replicas
    return (leader, *(each for each in replicas if each != leader))


def replication_factor(partitions: Sequence[Partition]) -> int:
    """Return the number of replicas that most partitions have; of two as frequent the larger."""
    counts = Counter(len(each.replicas) for each in partitions)
    return max(counts, key=lambda count: (counts[count], count))


def policy_of(topic: Topic, options: ImportOptions, *, racks: bool) -> PolicyFields:
    """Return the topic's policy: its own, else that of the first pattern.

    Where no pattern matches, replicas are spread evenly over racks, as Kafka's own placement does
    (KIP-36), or over brokers where no broker has a rack. An own policy that cannot be read counts
    as none.
    """
    if topic.policy is not None and not isinstance(own := _own_policy(topic.policy), str):
        return own
    for each in options.policies:
        if each.pattern.fullmatch(topic.name):
            return each.fields
    if not racks:
        return {"policy": {"strategy": "spread"}}
    rules = [{"even": level} for level in options.levels]
    return {"policy": {"strategy": "spread", "rules": rules}}


def _own_policy(text: str) -> PolicyFields | str:
    """The policy of a topic's configuration, or why it is none."""
    try:
        return parse_policy(text)
    except PolicyUnreadable as error:
        return str(error)


def _notes(
    snapshot: Snapshot, topics: Sequence[Topic], gone: Sequence[int], options: ImportOptions
) -> list[str]:
    brokers = snapshot.brokers.values()
    return [
        *_broker_notes(brokers, gone, options),
        *_topic_notes(topics),
        *_partition_notes([(topic, each) for topic in topics for each in topic.partitions]),
    ]


def _broker_notes(
    brokers: Collection[Broker], gone: Sequence[int], options: ImportOptions
) -> Iterator[str]:
    fenced = [str(each.id) for each in brokers if each.fenced]
    if fenced and not options.fenced_is_dead:
        yield (
            f"{_name('broker', fenced)} fenced: a plan leaves the replicas there; with "
            "--fenced-is-dead it replaces them"
        )
    if gone:
        yield (
            f"{_name('broker', [str(each) for each in gone])} not registered and in the lists of "
            "partitions: imported as dead"
        )
    yield from describe_unracked(brokers)
    untagged = [
        str(each.id) for each in brokers if each.rack and not _TAG_VALUE.fullmatch(each.rack)
    ]
    if untagged:
        yield (
            f"{_name('broker', untagged)} without the tag '{RACK_TAG}': a tag's value is printable "
            "ASCII of at most 128 characters, the location has the rack percent-encoded"
        )


def _topic_notes(topics: Sequence[Topic]) -> Iterator[str]:
    if not topics:
        yield "no topic is imported: there is none, or --include and --exclude leave none"
    for topic in topics:
        own = None if topic.policy is None else _own_policy(topic.policy)
        if isinstance(own, str):
            yield f"topic {topic.name}: its configuration placement.policy is ignored: {own}"
    mixed = [each.name for each in topics if len({len(p.replicas) for p in each.partitions}) > 1]
    if mixed:
        yield (
            f"{_name('topic', mixed)} not of one replication factor: the file has that of most "
            "partitions, and a plan brings the others to it"
        )
    starved = [
        each.name for each in topics if each.min_in_sync > replication_factor(each.partitions)
    ]
    if starved:
        yield (
            f"{_name('topic', starved)} with a min.insync.replicas above the replication factor: "
            "no write with acks=all succeeds; the quorum in the file is the factor"
        )


def _partition_notes(partitions: Sequence[tuple[Topic, Partition]]) -> Iterator[str]:
    moving = [f"{topic.name}-{each.number}" for topic, each in partitions if each.is_reassigned]
    if moving:
        yield (
            f"{_name('partition', moving)} being reassigned: listed without the replicas that are "
            "being added; import again when that is complete, before a plan is carried out"
        )
    led = [
        f"{topic.name}-{each.number}"
        for topic, each in partitions
        if not each.is_reassigned and each.leader not in (None, each.listed[0])
    ]
    if led:
        yield (
            f"{_name('partition', led)} not led by the preferred leader, which the file names "
            "first: kafka-leader-election --election-type preferred makes it lead"
        )


def _name(noun: str, names: Sequence[str]) -> str:
    """Count things and name the first few, with the verb: `2 brokers (1, 4) are`."""
    shown = ", ".join(names[:_NAMED_MAX])
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    counted = f"1 {noun}" if len(names) == 1 else f"{len(names)} {noun}s"
    return f"{counted} ({shown}{more}) {'is' if len(names) == 1 else 'are'}"
