"""Stands in for the reconciler: publishes moves and assignments as it does, in transactions.

A scenario asks for the records by name; what it publishes for a shard is consistent as the
reconciler's records are: a move with the assignment of its epoch, its end with the next one.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
from confluent_kafka import Producer

from schemas.acks import MoveKind
from schemas.envelope import encode_headers
from schemas.outputs import OUTPUTS
from schemas.topics import ASSIGNMENTS, MOVES, full_name
from streaming.brokers import FENCE_TIMEOUT_SECONDS, TRANSACTION_TIMEOUT_MS, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

CELL = "conformance"
# Long enough for every scenario but those about the deadline.
LEASE_SECONDS = 120.0


@dataclass(slots=True)
class PlayedShard:
    """A shard of a scenario as the stand-in has published it last."""

    stream: str
    number: int
    replicas: list[str]
    epoch: int = 1

    @property
    def key(self) -> str:
        """The key of its records."""
        return f"{self.stream}/{self.number}"

    def assignment(self, move: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return its assignment, while `move` is open."""
        opened = move or {}
        return {
            "stream": self.stream,
            "shard": self.number,
            "epoch": self.epoch,
            "replicas": [*self.replicas],
            "adding": [opened["add"]] if opened.get("add") else [],
            "removing": [opened["remove"]] if opened.get("remove") else [],
            "decided_at": now_ms(),
        } | ({"move_id": opened["move_id"]} if opened else {})


@dataclass(frozen=True, slots=True)
class Output:
    """A record to be published; None is a tombstone. `topic` is the short name."""

    topic: str
    key: str
    value: dict[str, Any] | None

    def to_json(self, is_aborted: bool) -> dict[str, Any]:
        """For reports: the record, published now."""
        written = {"topic": self.topic, "at_ms": now_ms(), "key": self.key, "value": self.value}
        return written | ({"is_aborted": True} if is_aborted else {})


@dataclass(slots=True)
class StandIn:
    """Publishes what a reconciler would. `heard` is told of each record, and whether its
    transaction was aborted."""

    bootstrap: str
    prefix: str
    options: Mapping[str, str] = field(default_factory=dict)
    heard: Callable[[Output, bool], None] = lambda _output, _is_aborted: None
    _producer: Any = None

    def start(self) -> None:
        """Fence earlier writers. Raises BrokerUnreachable."""
        self._producer = connect(
            Producer,
            self.bootstrap,
            {
                "transactional.id": f"{self.prefix}{CELL}",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "partitioner": "murmur2_random",
            },
            self.options,
        )
        self._producer.init_transactions(FENCE_TIMEOUT_SECONDS)

    def publish(self, *outputs: Output, aborts: bool = False) -> None:
        """Write records in one transaction, which is aborted in the end if asked."""
        self._producer.begin_transaction()
        for output in outputs:
            name = {MOVES: "Move", ASSIGNMENTS: "Assignment"}[output.topic]
            value = None if output.value is None else _encode(name, output.value)
            headers = encode_headers(
                name, cell=CELL, id=uuid.uuid4().hex, subject=output.key, time_ms=now_ms()
            )
            self._producer.produce(
                full_name(output.topic, self.prefix), value, output.key.encode(), headers=[*headers]
            )
        if aborts:
            self._producer.flush()
            self._producer.abort_transaction()
        else:
            self._producer.commit_transaction()
        for output in outputs:
            self.heard(output, aborts)

    def create(self, shard: PlayedShard) -> None:
        """Publish a shard's first assignment."""
        self.publish(assigned(shard))

    def issue(self, shard: PlayedShard, kind: str = "replace", **fields: Any) -> dict[str, Any]:
        """Issue a move with the assignment that it expects."""
        shard.epoch += 1
        move = make_move(shard, kind, **fields)
        self.publish(told(move), assigned(shard, move))
        return move

    def tell(self, move: dict[str, Any], state: str, **fields: Any) -> None:
        """Publish the move again in a state that changes no assignment, such as `accepted`."""
        move |= {"state": state, **fields}
        self.publish(told(move))

    def complete(self, shard: PlayedShard, move: dict[str, Any]) -> None:
        """Answer a completion: the move ends, and its effect is published."""
        gone, come = move.get("remove"), move.get("add")
        if gone is not None and come is not None:
            shard.replicas = [come if node == gone else node for node in shard.replicas]
        else:
            kept = [node for node in shard.replicas if node != gone]
            shard.replicas = kept if come is None else [*kept, come]
        if move.get("leader"):
            shard.replicas.sort(key=lambda node: node != move["leader"])
        self.end(shard, move, "completed")

    def end(self, shard: PlayedShard, move: dict[str, Any], state: str, *more: Output) -> None:
        """End a move, and publish the assignment with the next epoch."""
        shard.epoch += 1
        move |= {"state": state, "ended_at": now_ms()}
        self.publish(told(move), assigned(shard), *more)

    def supersede(self, shard: PlayedShard, move: dict[str, Any], **fields: Any) -> dict[str, Any]:
        """End a move by another one."""
        shard.epoch += 1
        move |= {"state": "superseded", "ended_at": now_ms()}
        second = make_move(shard, "replace", supersedes=move["move_id"], **fields)
        self.publish(told(move), told(second), assigned(shard, second))
        return second

    def remind(self, move: dict[str, Any]) -> None:
        """Publish a move that was called off once more."""
        self.tell(move, move["state"], reminded=move.get("reminded", 0) + 1)

    def drop(self, shard: PlayedShard, moves: Sequence[dict[str, Any]]) -> None:
        """Drop a stream: its open moves are cancelled, and its assignment is no more."""
        for move in moves:
            move |= {"state": "cancelled", "ended_at": now_ms()}
        self.publish(*map(told, moves), Output(ASSIGNMENTS, shard.key, None))


def make_move(shard: PlayedShard, kind: str, **fields: Any) -> dict[str, Any]:
    """Make an issued move of a shard at its epoch; fields that are None are left out."""
    given = {
        "move_id": uuid.uuid4().hex,
        "kind": kind,
        "stream": shard.stream,
        "shard": shard.number,
        "slot": 0,
        "expected_epoch": shard.epoch,
        "state": "issued",
        "cause": "drain",
        "reason": {"code": "NODE_DRAINING", "band": "soft", "message": "played by conformance"},
        "deadline": now_ms() + int(LEASE_SECONDS * 1000),
        "issued_at": now_ms(),
        "source": None if kind in (MoveKind.REMOVE, MoveKind.LEADER) else shard.replicas[-1],
    } | fields
    return {name: value for name, value in given.items() if value is not None}


def told(move: Mapping[str, Any]) -> Output:
    """Return the record of a move as it is now."""
    return Output(MOVES, move["move_id"], dict(move))


def assigned(shard: PlayedShard, move: Mapping[str, Any] | None = None) -> Output:
    """Return the record of a shard's assignment as it is now."""
    return Output(ASSIGNMENTS, shard.key, shard.assignment(move))


def number_shards(stream: str, nodes: Sequence[str]) -> Iterator[PlayedShard]:
    """Yield one shard of a stream after the other."""
    number = 0
    while True:
        yield PlayedShard(stream, number, [*nodes])
        number += 1


def now_ms() -> int:
    """Return the time in ms since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def _encode(name: str, value: Mapping[str, Any]) -> bytes:
    """Encode a record, which has to keep the contract itself."""
    OUTPUTS[name].model_validate_json(body := orjson.dumps(value))
    return body
