"""Reads commands and assignments as a client sees them: what it needs of a record, and no more.

`schedule.py` decides by these values. They are read leniently, as the contract with consumers asks
(schemas/README.md, 8): unknown fields are ignored, and a kind or state that this version does not
know is kept as the word that it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from schemas.acks import MoveKind
from schemas.outputs import MoveState

if TYPE_CHECKING:
    from collections.abc import Mapping

OPEN_STATES = frozenset({MoveState.ISSUED, MoveState.ACCEPTED})
# States that the reconciler gives, and reminds of until it hears that the move has stopped.
CALLED_OFF_STATES = frozenset({MoveState.CANCELLED, MoveState.SUPERSEDED, MoveState.EXPIRED})
KINDS = frozenset(MoveKind)
# A report of progress each quarter of the time that a move has, and at least so often: each gives
# it three quarters, so that two may be late.
PROGRESS_SHARE = 0.25
PROGRESS_INTERVAL_SECONDS_MAX = 30.0

_Value = TypeVar("_Value")


class ShardId(NamedTuple):
    """Names a shard: the stream and the shard's number, from 0."""

    stream: str
    shard: int

    def __str__(self) -> str:
        return f"{self.stream}/{self.shard}"


class Replica(NamedTuple):
    """Names a replica: a shard and the node that holds it. `uid`: of the stream, where it has one
    and it is known; a stream that is dropped and made again under its name has another."""

    stream: str
    shard: int
    node_id: str
    uid: str | None = None

    @property
    def shard_id(self) -> ShardId:
        """The shard that it is a replica of."""
        return ShardId(self.stream, self.shard)


@dataclass(frozen=True, slots=True)
class Move:
    """Is a command of `moves.v1` in its current state; the fields are those of `schemas.outputs`.

    Times are in ms since the epoch, sizes in bytes.
    """

    move_id: str
    kind: str
    stream: str
    shard: int
    expected_epoch: int
    state: str
    deadline_ms: int
    issued_at_ms: int
    remove: str | None = None
    add: str | None = None
    leader: str | None = None
    source: str | None = None
    supersedes: str | None = None
    rate_bytes_per_second: int | None = None
    size_bytes: int | None = None
    reminded: int = 0
    uid: str | None = None

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Move:
        """Read the value of a record. Raises KeyError for one that lacks a required field, and
        ValueError where a field has another type."""
        return cls(
            move_id=_take(body, "move_id", str),
            kind=_take(body, "kind", str),
            stream=_take(body, "stream", str),
            shard=_take(body, "shard", int),
            expected_epoch=_take(body, "expected_epoch", int),
            state=_take(body, "state", str),
            deadline_ms=_take(body, "deadline", int),
            issued_at_ms=_find(body, "renewed_at", int) or _take(body, "issued_at", int),
            remove=_find(body, "remove", str),
            add=_find(body, "add", str),
            leader=_find(body, "leader", str),
            source=_find(body, "source", str),
            supersedes=_find(body, "supersedes", str),
            rate_bytes_per_second=_find(body, "rate_bytes_per_second", int),
            size_bytes=_find(body, "bytes", int),
            reminded=_find(body, "reminded", int) or 0,
            uid=_find(body, "uid", str),
        )

    @property
    def shard_id(self) -> ShardId:
        """The shard that it belongs to."""
        return ShardId(self.stream, self.shard)

    @property
    def actor(self) -> str | None:
        """The node whose executor carries it out: the one that receives the replica or the lead,
        else the one that gives its replica up."""
        return self.add or self.leader or self.remove

    @property
    def is_open(self) -> bool:
        """Return whether it is to be carried out."""
        return self.state in OPEN_STATES

    @property
    def is_called_off(self) -> bool:
        """Return whether the reconciler has ended it and waits for `MoveStopped`."""
        return self.state in CALLED_OFF_STATES

    @property
    def progress_interval_seconds(self) -> float:
        """How far apart two reports on its copy are."""
        lease_seconds = (self.deadline_ms - self.issued_at_ms) / 1000
        return min(lease_seconds * PROGRESS_SHARE, PROGRESS_INTERVAL_SECONDS_MAX)

    def may_begin(self, epoch: int | None, now_ms: int) -> bool:
        """Return whether it may begin: it is open, the shard's assignment has the epoch that it
        expects, and its deadline is not past. `epoch`: of the last assignment; None: none came.
        While the expected epoch is higher, its assignment is to be waited for."""
        return self.is_open and self.expected_epoch == epoch and now_ms < self.deadline_ms


@dataclass(frozen=True, slots=True)
class ShardAssignment:
    """Is the published list of a shard: its nodes, leader first, with the epoch."""

    stream: str
    shard: int
    epoch: int
    replicas: tuple[str, ...]
    adding: tuple[str, ...] = ()
    removing: tuple[str, ...] = ()
    move_id: str | None = None
    uid: str | None = None

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> ShardAssignment:
        """Read the value of a record. Raises KeyError for one that lacks a required field, and
        ValueError where a field has another type."""
        return cls(
            stream=_take(body, "stream", str),
            shard=_take(body, "shard", int),
            epoch=_take(body, "epoch", int),
            replicas=_take_nodes(body, "replicas"),
            adding=_take_nodes(body, "adding") if body.get("adding") else (),
            removing=_take_nodes(body, "removing") if body.get("removing") else (),
            move_id=_find(body, "move_id", str),
            uid=_find(body, "uid", str),
        )

    @property
    def shard_id(self) -> ShardId:
        """The shard whose list it is."""
        return ShardId(self.stream, self.shard)

    @property
    def holders(self) -> frozenset[str]:
        """The nodes that may keep data of the shard; every other node deletes its copy."""
        return frozenset((*self.replicas, *self.adding))


def log_extra(
    shard_id: ShardId, move: Move | None = None, node_id: str | None = None
) -> dict[str, Any]:
    """Return the `extra` of a log record: the fields that say what it is about, as the logs of the
    reconciler have them."""
    fields = {"stream": shard_id.stream, "shard": shard_id.shard, "node_id": node_id}
    if move is not None:
        fields |= {"move_id": move.move_id, "node_id": move.actor}
    return {"fields": {name: value for name, value in fields.items() if value is not None}}


def are_uids_apart(first: str | None, second: str | None) -> bool:
    """Return whether two uids are those of different streams of one name. Where either side has
    none, the name alone counts."""
    return first is not None and second is not None and first != second


def parse_shard_key(key: str) -> ShardId:
    """Read the key of an assignment's record. Raises ValueError for another form."""
    stream, slash, shard = key.rpartition("/")
    if not slash or not shard.isdecimal():
        raise ValueError(f"the key '{key}' is not of the form stream/shard")
    return ShardId(stream, int(shard))


def _take(body: Mapping[str, Any], name: str, kind: type[_Value]) -> _Value:
    """Return a required field. Raises KeyError and ValueError."""
    value = _find(body, name, kind)
    if value is None:
        raise KeyError(name)
    return value


def _find(body: Mapping[str, Any], name: str, kind: type[_Value]) -> _Value | None:
    """Return a field, None where it is absent. Raises ValueError."""
    value = body.get(name)
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"'{name}' is {value!r}, which is no {kind.__name__}")
    return value


def _take_nodes(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the ids of a required list of nodes. Raises KeyError and ValueError."""
    nodes = _take(body, name, list)
    if not all(isinstance(node, str) for node in nodes):
        raise ValueError(f"'{name}' is {nodes!r}, which is no list of node ids")
    return (*nodes,)
