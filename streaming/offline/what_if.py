"""Changes a cluster hypothetically before a plan, and lists the assignments it has now.

`placer plan` takes a file as it stands; nodes may be lost, drained and joined, replication factors
changed, and the replicas of topics taken from Kafka's own tool.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from schemas.cluster import (
    Cluster,
    ClusterNode,
    ClusterNodeStatus,
    ClusterStream,
    RefusedStream,
)
from streaming.offline.check import NoMatchingNode, lost_nodes
from streaming.offline.documents import Document
from streaming.offline.reassignment import Assignments, AssignmentsUnfit, shard_lists


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Describes hypothetical changes of a cluster. Domains, tags or nodes are lost or drained,
    nodes join, streams (None: all) get another replication factor, and assignments replace those of
    the document."""

    lose: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    add: tuple[ClusterNode, ...] = ()
    factors: tuple[tuple[str | None, int], ...] = ()
    assignments: Assignments = field(default_factory=dict)


def apply_what_if(cluster: Cluster, what_if: WhatIf) -> Cluster:
    """The cluster when all that has happened; nodes that lists name and nobody knows are gone ones.
    Raises NoMatchingNode where a name stands for nothing, and AssignmentsUnfit."""
    cluster = _assign(cluster, what_if.assignments)
    cluster = _resize(cluster, what_if.factors)
    joined = {node.id: node for node in (*cluster.nodes, *what_if.add)}
    cluster = replace(cluster, nodes=tuple(joined.values()))
    drained = lost_nodes(cluster, what_if.drain)
    lost = lost_nodes(cluster, what_if.lose)
    status = dict.fromkeys(drained, ClusterNodeStatus.DRAINING)
    status |= dict.fromkeys(lost, ClusterNodeStatus.DEAD)
    nodes = [
        node.model_copy(update={"status": status[node.id]}) if node.id in status else node
        for node in cluster.nodes
    ]
    named = [
        n for each in accepted_streams(cluster) for nodes in each.replicas or () for n in nodes
    ]
    unknown = [n for n in dict.fromkeys(named) if n not in joined]
    gone = [ClusterNode(id=name, status=ClusterNodeStatus.UNREGISTERED) for name in unknown]
    return replace(cluster, nodes=(*nodes, *gone))


def assign_document(document: Document, assignments: Assignments) -> Document:
    """The document with the replicas that the assignments name. Raises AssignmentsUnfit."""
    if not assignments:
        return document
    return replace(
        document, cluster=apply_what_if(document.cluster, WhatIf(assignments=assignments))
    )


def unlisted_topics(cluster: Cluster, assignments: Assignments) -> list[str]:
    """The topics of the assignments that the cluster file does not list."""
    known = {each.stream for each in cluster.streams}
    return [topic for topic in shard_lists(assignments) if topic not in known]


def accepted_streams(cluster: Cluster) -> list[ClusterStream]:
    """The streams that were understood."""
    return [stream for stream in cluster.streams if isinstance(stream, ClusterStream)]


def _resize(cluster: Cluster, factors: Iterable[tuple[str | None, int]]) -> Cluster:
    """The cluster with other replication factors; what is said of one stream outranks what is said
    of all."""
    wanted = dict(factors)
    known = {each.stream for each in cluster.streams}
    for name in wanted:
        if name is not None and name not in known:
            raise NoMatchingNode(f"no stream is called '{name}'")
    every = wanted.get(None)

    def resize(stream: ClusterStream | RefusedStream) -> ClusterStream | RefusedStream:
        factor = wanted.get(stream.stream, every)
        if factor is None or isinstance(stream, RefusedStream):
            return stream
        return stream.model_copy(update={"replication_factor": factor})

    return replace(cluster, streams=tuple(map(resize, cluster.streams)))


def _assign(cluster: Cluster, assignments: Assignments) -> Cluster:
    """The cluster with the replicas that the assignments name; partitions that they do not name
    keep theirs. A topic that the document does not know is a stream as it stands: its factor is
    what most of its partitions have. Raises AssignmentsUnfit."""
    lists = shard_lists(assignments)
    shards = {each.stream: each.shards for each in accepted_streams(cluster)}
    for topic, own in lists.items():
        _refuse_gap(topic, own, shards.get(topic))
    streams = [
        _relist(each, lists.pop(each.stream))
        if isinstance(each, ClusterStream) and each.stream in lists
        else each
        for each in cluster.streams
    ]
    return replace(cluster, streams=(*streams, *(_infer_stream(*each) for each in lists.items())))


def _refuse_gap(topic: str, lists: list[list[str]], known: int | None) -> None:
    """Raise AssignmentsUnfit where neither the assignments nor the document, which knows the first
    `known` partitions, tell of a partition."""
    missing = [n for n, nodes in enumerate(lists) if not nodes and n >= (known or 0)]
    if missing:
        named = ", ".join(map(str, missing[:_NAMED_MAX])) + ", …" * (len(missing) > _NAMED_MAX)
        has = "no such topic" if known is None else f"{known} partitions of it"
        message = f"the assignments of topic '{topic}' have partition {len(lists) - 1} and lack "
        message += f"{named}; the cluster file has {has}: name every partition, or import the "
        raise AssignmentsUnfit(f"{message}topic with placer kafka import")


# Of many partitions the first say what is missing.
_NAMED_MAX = 5


def _relist(stream: ClusterStream, lists: list[list[str]]) -> ClusterStream:
    kept = [list(nodes) for nodes in stream.replicas or ()]
    longer = max(len(kept), len(lists))
    kept += [[] for _ in range(longer - len(kept))]
    for shard, nodes in enumerate(lists):
        kept[shard] = nodes or kept[shard]
    return stream.model_copy(
        update={
            "replicas": tuple(tuple(nodes) for nodes in kept),
            "shards": max(stream.shards, longer),
        }
    )


def _infer_stream(topic: str, lists: list[list[str]]) -> ClusterStream:
    sizes: Mapping[int, int] = Counter(len(nodes) for nodes in lists if nodes)
    factor = max(sizes, key=lambda size: (sizes[size], size))
    return ClusterStream(
        stream=topic,
        shards=len(lists),
        replication_factor=factor,
        replicas=tuple(tuple(nodes) for nodes in lists),
    )
