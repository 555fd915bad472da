"""Makes a cluster file of a `Snapshot`: brokers become nodes, topics streams, partitions shards.

`placer check`, `plan` and `explain` then answer for the Kafka cluster. Lists are those without what
a running reassignment adds; `min.insync.replicas` is the quorum, since a write with acks=all needs
as many replicas in sync.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from streaming.kafka_bridge.snapshot import Broker, Partition, Snapshot, Topic

RACK_TAG = "rack"
"""The tag that holds a broker's rack as Kafka has it."""
# Made by brokers for themselves, and not marked as internal by all versions.
_INTERNAL = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
)


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """The policy of the topics whose whole name matches a pattern."""

    pattern: re.Pattern[str]
    policy: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Selects topics and says how racks and fenced brokers are to be read.

    `levels` name the tiers of a rack; more than one need a `separator` between the parts of a rack.
    `policies` are tried in their order before `default_policy`; a topic's own policy outranks both.
    """

    include: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None
    internal: bool = True
    levels: Sequence[str] = ("rack",)
    separator: str | None = None
    policies: Sequence[TopicPolicy] = ()
    default_policy: Mapping[str, Any] | None = None
    fenced_is_dead: bool = False


@dataclass(frozen=True, slots=True)
class ImportedCluster:
    """A cluster file as JSON gives it, and what a person should know of how it came about."""

    body: Mapping[str, Any]
    notes: Sequence[str] = field(default=())


class RackUnreadable(Exception):
    """A rack does not have one part for each level; the message names broker, rack and levels."""


def import_cluster(snapshot: Snapshot, options: ImportOptions) -> ImportedCluster:
    """Make the cluster file. Raises RackUnreadable."""
    topics = [topic for _, topic in sorted(snapshot.topics.items()) if _is_wanted(topic, options)]
    racks = any(broker.rack for broker in snapshot.brokers.values())
    used = {broker for topic in topics for each in topic.partitions for broker in each.replicas}
    gone = sorted(used - snapshot.brokers.keys())
    nodes = [_node(broker, options) for _, broker in sorted(snapshot.brokers.items())]
    # A replica on a broker that is not registered any more is one that is lost.
    nodes += [{"id": str(broker), "status": "dead"} for broker in gone]
    body = {
        "name": f"kafka {snapshot.cluster_id}",
        "levels": [*options.levels] if racks else [],
        "nodes": nodes,
        "streams": [_stream(topic, snapshot, options, racks=racks) for topic in topics],
    }
    return ImportedCluster(body, tuple(_notes(snapshot, topics, gone, options)))


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
        message = f"broker {broker.id}: rack '{broker.rack}' has {len(parts)} parts between "
        message += f"'{options.separator or ''}', the levels are {', '.join(options.levels)}"
        raise RackUnreadable(message)
    return "".join(f"/{_encode(part)}" for part in parts)


def _encode(part: str) -> str:
    """Percent-encode what a component cannot have; `quote` leaves letters, digits and `_.-~`."""
    if part in (".", ".."):
        return part.replace(".", "%2E")
    return quote(part, safe="").replace("~", "%7E")


def _node(broker: Broker, options: ImportOptions) -> dict[str, Any]:
    node: dict[str, Any] = {"id": str(broker.id), "host": f"{broker.host}:{broker.port}"}
    location = location_of(broker, options)
    if location is not None:
        node |= {"location": location, "tags": {RACK_TAG: broker.rack}}
    if broker.fenced:
        node["status"] = "dead" if options.fenced_is_dead else "fenced"
    return node


def _is_wanted(topic: Topic, options: ImportOptions) -> bool:
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
        "policy": policy_of(topic, options, racks=racks),
        "quorum": min(topic.min_in_sync, factor),
        "replicas": [[str(broker) for broker in each.replicas] for each in topic.partitions],
    }
    if None not in sizes:
        stream["shard_bytes"] = sizes
    return stream


def replication_factor(partitions: Sequence[Partition]) -> int:
    """Return the number of replicas that most partitions have; of two as frequent the larger."""
    counts = Counter(len(each.replicas) for each in partitions)
    return max(counts, key=lambda count: (counts[count], count))


def policy_of(topic: Topic, options: ImportOptions, *, racks: bool) -> Mapping[str, Any]:
    """Return the topic's policy: by pattern, else the default one.

    Without a default replicas are spread evenly over racks, as Kafka's own placement does
    (KIP-36), or over brokers where no broker has a rack.
    """
    for each in options.policies:
        if each.pattern.fullmatch(topic.name):
            return each.policy
    if options.default_policy is not None:
        return options.default_policy
    if not racks:
        return {"strategy": "spread"}
    return {"strategy": "spread", "rules": [{"even": level} for level in options.levels]}


def _notes(
    snapshot: Snapshot, topics: Sequence[Topic], gone: Sequence[int], options: ImportOptions
) -> list[str]:
    notes = []
    moving = [
        f"{topic.name}-{each.number}"
        for topic in topics
        for each in topic.partitions
        if each.is_reassigned
    ]
    if moving:
        notes.append(
            f"{len(moving)} partitions are being reassigned ({_some(moving)}): they are listed "
            "without the replicas that the reassignment adds"
        )
    fenced = [str(each.id) for each in snapshot.brokers.values() if each.fenced]
    if fenced and not options.fenced_is_dead:
        notes.append(
            f"brokers {_some(fenced)} are fenced: a plan leaves their replicas where they are; "
            "--fenced-is-dead has them replaced"
        )
    if gone:
        notes.append(
            f"brokers {_some([str(each) for each in gone])} are not registered and stand in the "
            "lists of partitions: they are imported as dead"
        )
    unracked = [str(each.id) for each in snapshot.brokers.values() if not each.rack]
    if unracked and len(unracked) < len(snapshot.brokers):
        notes.append(
            f"brokers {_some(unracked)} have no rack (broker.rack): rules on racks count them as "
            "one more rack"
        )
    led = [
        f"{topic.name}-{each.number}"
        for topic in topics
        for each in topic.partitions
        if each.target and each.leader is not None and each.leader != each.target[0]
    ]
    if led:
        notes.append(
            f"{len(led)} partitions are not led by their preferred leader ({_some(led)}): the file "
            "names the preferred one; kafka-leader-election --election-type preferred makes it lead"
        )
    return notes


def _some(names: Sequence[str]) -> str:
    """Name the first few."""
    shown = ", ".join(names[:_NAMED_MAX])
    return shown if len(names) <= _NAMED_MAX else f"{shown} and {len(names) - _NAMED_MAX} more"


# A line of a terminal.
_NAMED_MAX = 5
