"""Computes the digest of the state of record: a sum of one hash for each record.

The sum does not depend on the order of the records. It is kept up to date record by record, written
into every commit marker, and computed anew after every rebuild: equality proves that the topics
held exactly the state of the marker. Records of shards, of which there are millions, are hashed as
columns, all others one by one.

Every field of every record counts, each by its place or name, except for fields that are None: a
field that is added later changes no digest of states without it. Three fields are left out because
a rebuild does not read them back: `Assignment.decided_at`, which is not kept by shard,
`Assignment.uid`, which is that of the stream's decision, and the entries of `Reason.seen` after the
first `SEEN_MAX`, which are not published.
"""

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.hashing import digest64, hash64, mix
from placement.model import (
    SEEN_MAX,
    Assignment,
    Decision,
    Memory,
    Move,
    NodeView,
    Reason,
    ShardLoad,
    Violation,
)

# Version of the formula, which commit markers name: 1 left out most fields of decisions and moves.
DIGEST_VERSION = 2

_MODULUS = 1 << 64

# Distinguishes hashes of assignments from those of other records of shards.
_ASSIGNMENT = np.uint64(hash64("assignment"))


class Digest:
    """Sums hashes modulo 2^64."""

    def __init__(self) -> None:
        self._sum = 0

    def change(self, before: int, after: int) -> None:
        """Replace a record's hash by another; 0 stands for no record."""
        self._sum = (self._sum - before + after) % _MODULUS

    def exchange(self, before: NDArray[np.uint64], after: NDArray[np.uint64]) -> None:
        """Replace the hashes of many records."""
        self.change(int(before.sum(dtype=np.uint64)), int(after.sum(dtype=np.uint64)))

    def copy(self) -> "Digest":
        """Copy the sum; neither sees what the other does from then on."""
        made = Digest()
        made._sum = self._sum
        return made

    def __str__(self) -> str:
        return f"{self._sum:016x}"


def hash_with_keys(
    content: NDArray[np.uint64] | np.uint64,
    streams: NDArray[np.uint64],
    numbers: NDArray[np.integer],
) -> NDArray[np.uint64]:
    """Hash records of shards by the hashes of their streams' names and their numbers.

    `content`: a hash of each record, or one of all; the kind of the record is part of it.
    """
    return mix(mix(mix(streams) ^ numbers.astype(np.uint64)) ^ content)


def of_node(view: NodeView) -> int:
    """Hash a node record."""
    return digest64("node", _text_of(view))


def of_decision(decision: Decision) -> int:
    """Hash a decision record."""
    return digest64("decision", _text_of(decision))


def of_assignments(
    streams: NDArray[np.uint64],
    numbers: NDArray[np.integer],
    epochs: NDArray[np.int64],
    counts: NDArray[np.int64],
    nodes: NDArray[np.uint64],
    extras: NDArray[np.uint64] | np.uint64,
) -> NDArray[np.uint64]:
    """Hash assignment records by their keys (see `hash_with_keys`), epochs, and replicas in order.

    `nodes`: hashes of node ids (`Topology.digests`), `counts` of them for each record, one record
    after the other. `extras`: `of_extras` of each record, or one for all.
    """
    content = mix(mix(epochs.astype(np.uint64) ^ _ASSIGNMENT) ^ extras)
    firsts = np.cumsum(counts) - counts
    for slot in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > slot)
        content[rows] = mix(content[rows] ^ nodes[firsts[rows] + slot])
    return hash_with_keys(content, streams, numbers)


def of_extras(record: Assignment) -> int:
    """Hash the open move and the roles in an assignment; 0 where it has neither."""
    _, _, _, _, adding, removing, move_id, _, roles, _ = record
    if not (adding or removing or move_id or roles):
        return 0
    return digest64(",".join(adding), ",".join(removing), move_id or "", *(roles or ()))


def of_move(move: Move) -> int:
    """Hash a move record."""
    return hash64(f"move\x1f{_join_fields(move)}")


def of_violations(violations: tuple[Violation, ...]) -> int:
    """Hash the content of a shard's open violations.

    `hash_with_keys` adds stream and shard.
    """
    return hash64("\x1f".join(["violations", *[_join_fields(each[2:]) for each in violations]]))


def of_each_violations(found: Iterable[tuple[Violation, ...]]) -> Iterator[int]:
    """Yield `of_violations` of each shard's, found once for those alike that follow each other."""
    last: list[tuple[Any, ...]] | None = None
    hashed = 0
    for violations in found:
        content = [each[2:] for each in violations]
        if content != last:
            last, hashed = content, of_violations(violations)
        yield hashed


def of_load(load: ShardLoad) -> int:
    """Hash a record of a shard's load."""
    amounts = ",".join("=".join(map(str, pair)) for pair in load.amounts)
    return digest64("load", load.stream, load.shard, amounts, load.node_id, load.at)


def of_memory(memory: Memory) -> int:
    """Hash something remembered."""
    body = json.dumps(memory.body, sort_keys=True, separators=(",", ":"))
    return digest64("memory", memory.kind, memory.name, body, memory.at)


def _join_fields(values: tuple[Any, ...]) -> str:
    """Join the fields of a tuple as text; those at None at its end leave no trace.

    Records of moves and violations come by the thousand, and have no nested field but a reason.
    """
    texts = [
        "" if each is None else _reason_text(each) if type(each) is Reason else str(each)
        for each in values
    ]
    return "\x1e".join(texts).rstrip("\x1e")


# The replicas of a dead node share their reason, in a move and in a violation each.
@lru_cache(maxsize=256)
def _reason_text(reason: Reason) -> str:
    r = reason
    plain = f"{r.code}\x1d{r.message}\x1d{r.need}\x1d{r.have}\x1d{r.level}\x1d{r.rule}"
    return "\x1d".join((plain, *r.seen[:SEEN_MAX])) if r.seen else plain


def _fields(value: Any) -> dict[str, Any]:
    """Convert values that JSON does not know; a record becomes its fields, without those that are
    None."""
    kind = type(value)
    if not hasattr(kind, "__dataclass_fields__"):
        return dict(value)
    found = {
        name: field
        for name in kind.__dataclass_fields__
        if (field := getattr(value, name)) is not None
    }
    if kind is Reason:
        found["seen"] = found["seen"][:SEEN_MAX]
    return found


# Writes a record in one way only. Records are frozen, so that none contains itself: the check for
# that would take a tenth of the time.
_text_of = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), default=_fields, check_circular=False
).encode
