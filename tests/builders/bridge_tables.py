"""Tables of the reconciler and looks at Kafka, made by hand for tests of single decisions."""

from typing import Any

import orjson

from streaming.kafka_bridge.memory import Memory
from streaming.kafka_bridge.snapshot import Broker, Partition, Snapshot, Throttles, Topic
from streaming.kafka_bridge.tables import Tables

CLUSTER = "K1"
REASON = {"code": "NODE_DEAD", "band": "soft", "message": "node 1 is dead"}
NOW = 1_000_000


def partition(
    listed: tuple[int, ...],
    in_sync: tuple[int, ...] | None = None,
    *,
    number: int = 0,
    leader: int | None = None,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> Partition:
    """A partition; every replica that is not being added is in sync unless `in_sync` is given."""
    kept = tuple(each for each in listed if each not in adding)
    ours = kept if in_sync is None else in_sync
    return Partition(number, listed, leader or kept[0], ours, adding, removing)


def look(
    *partitions: Partition,
    at: int = NOW,
    fenced: tuple[int, ...] = (),
    brokers: tuple[int, ...] = (1, 2, 3, 4, 5, 6),
    name: str = "t",
    uid: str = "u1",
    min_in_sync: int = 1,
    throttles: Throttles | None = None,
    sizes: dict[int, int] | None = None,
    controller: int | None = 1,
) -> Snapshot:
    """A look at a cluster of six brokers, each in a rack of its own, with one topic."""
    topic = Topic(name, uid, partitions, min_in_sync=min_in_sync)
    return Snapshot(
        at,
        CLUSTER,
        controller,
        {each: Broker(each, f"k{each}", 9092, f"r{each}", each in fenced) for each in brokers},
        {name: topic} if partitions else {},
        throttles or Throttles(),
        {(name, number): {1: size} for number, size in (sizes or {}).items()},
    )


class TableBuilder:
    """Fills tables by the records that the reconciler would have written."""

    def __init__(self) -> None:
        self.tables = Tables()

    def node(self, node_id: str, liveness: str = "up", **fields: Any) -> "TableBuilder":
        """A broker of the cluster as it registered."""
        body = {
            "node_id": node_id,
            "incarnation": f"kafka-{CLUSTER}",
            "sequence": 1,
            "body_hash": "",
            "revision": 1,
            "host": f"k{node_id}:9092",
            "location": f"/r{node_id}",
            "tags": {"rack": f"r{node_id}"},
            "weight": 1.0,
            "leader": True,
            "liveness": liveness,
            "status": liveness,
            "since": 0,
            "liveness_mode": "external",
        }
        return self._take("topology.v1", node_id, body | fields)

    def nodes(self, *node_ids: int) -> "TableBuilder":
        """Several live brokers."""
        for each in node_ids:
            self.node(str(each))
        return self

    def stream(
        self, name: str = "t", shards: int = 1, factor: int = 3, outcome: str = "placed", **f: Any
    ) -> "TableBuilder":
        """A stream's decision."""
        spec = {"stream": name, "shards": shards, "replication_factor": factor, "quorum": 1}
        spec["policy"] = {"strategy": "spread", "rules": [{"even": "rack"}]}
        reasons = f.pop("reasons", [])
        body = {
            "stream": name,
            "sequence": f.pop("sequence", 1),
            "revision": 1,
            "outcome": outcome,
            "spec": spec | f,
            "body_hash": "00",
            "strategy": "spread",
            "shards_placed": shards,
            "replicas_missing": 0,
            "reasons": reasons,
            "warnings": [],
            "decided_at": 0,
        }
        return self._take("decisions.v1", name, body)

    def assign(
        self,
        replicas: str,
        move_id: str | None = None,
        *,
        epoch: int = 1,
        shard: int = 0,
        **fields: Any,
    ) -> "TableBuilder":
        """A shard's assignment, its replicas as digits: `123`."""
        body = {
            "stream": "t",
            "shard": shard,
            "epoch": epoch,
            "replicas": [*replicas],
            "adding": [],
            "removing": [],
            "decided_at": 0,
            "move_id": move_id,
        }
        return self._take("assignments.v1", f"t/{shard}", body | fields)

    def move(
        self,
        move_id: str,
        change: str,
        state: str = "issued",
        *,
        slot: int = 0,
        epoch: int = 1,
        shard: int = 0,
        **fields: Any,
    ) -> "TableBuilder":
        """A move, its change written `1>4`, `>4` or `1>`."""
        remove, _, add = change.partition(">")
        kind = "replace" if remove and add else "add" if add else "remove"
        body = {
            "move_id": move_id,
            "kind": kind,
            "stream": "t",
            "shard": shard,
            "slot": slot,
            "remove": remove or None,
            "add": add or None,
            "expected_epoch": epoch,
            "state": state,
            "cause": "under_replicated",
            "reason": REASON,
            "deadline": NOW,
            "issued_at": 0,
            "rate_bytes_per_second": 50,
        }
        return self._take("moves.v1", move_id, body | fields)

    def _take(self, topic: str, key: str, body: dict[str, Any]) -> "TableBuilder":
        self.tables.take(topic, key, orjson.dumps(body))
        assert not self.tables.unreadable, self.tables.unreadable
        return self


EMPTY_MEMORY = Memory(looked_at=NOW - 1000)
