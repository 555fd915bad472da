"""Reads commands and assignments as a client sees them: what it needs of a record, and no more.

`schedule.py` decides by these values. They are read leniently, as the contract with consumers asks
(schemas/README.md, 8): unknown fields are ignored, and a kind or state that this version does not
know is kept as the word that it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from schemas.acks import MoveKind
from schemas.outputs import MoveState

if TYPE_CHECKING:
    from collections.abc import Mapping

OPEN_STATES = frozenset({MoveState.ISSUED, MoveState.ACCEPTED})
# States that the reconciler gives, and reminds of until it hears that the move has stopped.
CALLED_OFF_STATES = frozenset({MoveState.CANCELLED, MoveState.SUPERSEDED, MoveState.EXPIRED})
KINDS = frozenset(MoveKind)


class ShardId(NamedTuple):
    """Names a shard: the stream and the shard's number, from 0."""

    stream: str
    shard: int

    def __str__(self) -> str:
        return f"{self.stream}/{self.shard}"


class Replica(NamedTuple):
    """Names a replica: a shard and the node that holds it."""

    stream: str
    shard: int
    node_id: str

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
        """Read the value of a record. Raises KeyError for one that lacks a required field."""
        return cls(
            move_id=body["move_id"],
            kind=body["kind"],
            stream=body["stream"],
            shard=body["shard"],
            expected_epoch=body["expected_epoch"],
            state=body["state"],
            deadline_ms=body["deadline"],
            issued_at_ms=body.get("renewed_at") or body["issued_at"],
            remove=body.get("remove"),
            add=body.get("add"),
            leader=body.get("leader"),
            source=body.get("source"),
            supersedes=body.get("supersedes"),
            rate_bytes_per_second=body.get("rate_bytes_per_second"),
            size_bytes=body.get("bytes"),
            reminded=body.get("reminded") or 0,
            uid=body.get("uid"),
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

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> ShardAssignment:
        """Read the value of a record. Raises KeyError for one that lacks a required field."""
        return cls(
            stream=body["stream"],
            shard=body["shard"],
            epoch=body["epoch"],
            replicas=(*body["replicas"],),
            adding=(*body.get("adding", ()),),
            removing=(*body.get("removing", ()),),
            move_id=body.get("move_id"),
        )

    @property
    def shard_id(self) -> ShardId:
        """The shard whose list it is."""
        return ShardId(self.stream, self.shard)

    @property
    def holders(self) -> frozenset[str]:
        """The nodes that may keep data of the shard; every other node deletes its copy."""
        return frozenset((*self.replicas, *self.adding))


def parse_shard_key(key: str) -> ShardId:
    """Read the key of an assignment's record. Raises ValueError for another form."""
    stream, slash, shard = key.rpartition("/")
    if not slash or not shard.isdecimal():
        raise ValueError(f"the key '{key}' is not of the form stream/shard")
    return ShardId(stream, int(shard))
