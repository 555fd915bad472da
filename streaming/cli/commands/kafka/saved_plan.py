"""Makes of a saved plan what is carried out on a Kafka cluster, and compares it with a look there.

A plan rests on nodes, shards and streams as a cluster file has them. Here each field that Kafka can
tell is taken from the look and the others (policies, weights, what the plan supposed) from the
plan, so that the hash over both stands without the options of the import.
"""

from collections.abc import Mapping
from typing import Any

from placement.planning import StateDifference, Touched, find_differences, impact_hash
from schemas.cluster import Cluster, ClusterNode
from streaming.kafka_bridge import (
    RACK_TAG,
    Change,
    ReassignmentPlan,
    Snapshot,
    Topic,
    replication_factor,
)
from streaming.offline import NoMatchingNode, SavedPlan, SavedPlanInvalid, lost_nodes

# The words of `schemas.cluster` for a broker that is registered and fenced: as it is, or taken for
# dead by --fenced-is-dead.
_FENCED = ("suspect", "dead")
# A broker that is not registered: the import writes it as dead, a list alone knows nothing of it.
_GONE = ("dead", "unregistered")


def reassignment_plan(saved: SavedPlan) -> ReassignmentPlan:
    """Make the waves of a saved plan. Raises SavedPlanInvalid where they are not in the file or a
    node is no broker."""
    if saved.waves is None:
        message = "it has no waves, since an older version wrote it: plan and save again"
        raise SavedPlanInvalid(message)
    now = {
        (stream, shard): _brokers(saved.touched.shards[f"{stream}/{shard}"]["replicas"])
        for lists in saved.waves
        for stream, shard in lists
    }
    waves = []
    for lists in saved.waves:
        after = {key: _brokers(nodes) for key, nodes in lists.items()}
        waves.append(
            {key: Change(now[key], to) for key, to in sorted(after.items()) if to != now[key]}
        )
        now |= after
    return ReassignmentPlan(saved.hash, tuple(wave for wave in waves if wave))


def find_changes(saved: SavedPlan, snapshot: Snapshot) -> tuple[StateDifference, ...]:
    """List what has changed since the plan was made; none where its hash stands."""
    now = observe_touched(saved, snapshot)
    if impact_hash(saved.moves, now) == saved.hash:
        return ()
    return find_differences(saved.touched, now)


def observe_touched(saved: SavedPlan, snapshot: Snapshot) -> Touched:
    """Return what the plan rests on as the snapshot shows it."""
    was = saved.touched
    lost = _lost_nodes(saved)
    nodes = {
        name: _node(fields, name, snapshot, is_lost=name in lost)
        for name, fields in was.nodes.items()
    }
    shards = {}
    for key, fields in was.shards.items():
        topic, _, number = key.rpartition("/")
        partition = snapshot.partition(topic, int(number))
        if partition is not None:
            shards[key] = {**fields, "replicas": [str(broker) for broker in partition.replicas]}
    streams = {
        name: _stream(fields, snapshot.topics[name])
        for name, fields in was.streams.items()
        if name in snapshot.topics
    }
    return Touched(nodes, shards, streams)


def _node(
    was: Mapping[str, Any], name: str, snapshot: Snapshot, *, is_lost: bool
) -> dict[str, Any]:
    broker = snapshot.brokers.get(int(name)) if name.isdecimal() else None
    status = was["status"]
    if broker is None:
        return {**was, "status": status if status in _GONE else "unregistered"}
    if broker.fenced:
        return {**was, "status": status if status in _FENCED else "suspect"}
    found = {**was, "status": "up" if status in (*_FENCED, *_GONE) and not is_lost else status}
    tags = was.get("tags", {})
    # A file that was written by hand may give a location alone, of which Kafka knows nothing.
    if RACK_TAG in tags and broker.rack != tags[RACK_TAG]:
        found["tags"] = {**tags, RACK_TAG: broker.rack}
    return found


def _stream(was: Mapping[str, Any], topic: Topic) -> dict[str, Any]:
    found = {**was, "shards": len(topic.partitions)}
    # Only an import writes a number: a file without one has the core's default.
    if isinstance(was.get("quorum"), int):
        found["quorum"] = min(topic.min_in_sync, replication_factor(topic.partitions))
    return found


def _lost_nodes(saved: SavedPlan) -> frozenset[str]:
    """The nodes that the plan supposed to be lost, though they may live."""
    nodes = tuple(
        ClusterNode(id=name, location=fields.get("location"), tags=fields.get("tags", {}))
        for name, fields in saved.touched.nodes.items()
    )
    cluster = Cluster(None, (), nodes, ())
    lost: frozenset[str] = frozenset()
    for name in saved.what_if.lose:
        try:
            lost |= lost_nodes(cluster, [name])
        except NoMatchingNode:
            continue  # It names nodes that the plan does not touch.
    return lost


def _brokers(nodes: Any) -> tuple[int, ...]:
    try:
        return tuple(map(int, nodes))
    except ValueError as error:
        raise SavedPlanInvalid(f"{list(nodes)} are no broker ids") from error
