"""Holds many shards as rows of nodes, and finds rows that may break a rule in a few passes.

A pass may suspect a healthy shard but never misses a broken one; the suspects are then checked one
by one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from placement.assignments.table import EMPTY
from placement.topology import NO_DOMAIN

Rows = NDArray[np.integer]
Doubts = NDArray[np.bool_]


def max_per_domain(rows: Rows) -> NDArray[np.int64]:
    """Count for each row of domains how often its most frequent one occurs; NO_DOMAIN is none."""
    ordered = np.sort(rows, axis=1)
    most = np.zeros(len(rows), np.int64)
    run = np.zeros(len(rows), np.int64)
    for column in range(rows.shape[1]):
        here = ordered[:, column]
        again = here == ordered[:, column - 1] if column else np.zeros(len(rows), bool)
        run = np.where(here == NO_DOMAIN, 0, run * again + 1)
        np.maximum(most, run, out=most)
    return most


def first_occurrences(rows: Rows) -> NDArray[np.bool_]:
    """Mark where a row names a domain for the first time."""
    fresh = np.ones(rows.shape, bool)
    for column in range(1, rows.shape[1]):
        for before in range(column):
            fresh[:, column] &= rows[:, column] != rows[:, before]
    return fresh


def exceeds_factor(slots: NDArray[np.int64], copies: int) -> Doubts:
    """Mask the rows with a replica in a slot beyond `copies`; `slots` ascend in each row.

    In these rows the slot no longer tells which replica has a role.
    """
    doubtful: Doubts = slots[:, -1] >= copies
    return doubtful


def may_be_uneven(rows: Rows, live: Rows) -> Doubts:
    """Mask the rows in which a domain may be two ahead of one of the `live` domains."""
    fresh = first_occurrences(rows)
    if fresh.all():
        return np.zeros(len(rows), bool)
    is_live = np.zeros(max(int(rows.max(initial=0)), int(live.max(initial=0))) + 2, bool)
    is_live[live] = True
    seen = (fresh & is_live[rows]).sum(axis=1)
    # With every live domain in use the least count is one at least; else it is none.
    doubtful: Doubts = max_per_domain(rows) > np.where(seen == len(live), 2, 1)
    return doubtful


def may_be_uneven_inside(
    rows: Rows, parents: Rows, live: NDArray[np.bool_], children: Rows
) -> Doubts:
    """Mask the rows in which a domain may be two ahead of another in the same parent.

    - `rows`, `parents`: each replica's domain and that domain's parent, a row per shard.
    - `live`: by domain, whether it may take a replica.
    - `children`: by parent, the number of its live domains.

    A live domain that the row does not name has no replica; of those it names, the one with fewest
    counts, whether it has room or not.
    """
    doubtful: Doubts = max_per_domain(rows) > 1
    some, above = rows[doubtful], parents[doubtful]
    counts = (some[:, :, None] == some[:, None, :]).sum(axis=2)
    kin = above[:, :, None] == above[:, None, :]
    named = (kin & (first_occurrences(some) & live[some])[:, None, :]).sum(axis=2)
    fewest = np.where(kin, counts[:, None, :], counts.max(initial=0)).min(axis=2, initial=1 << 20)
    least = np.where(named < children[above], 0, fewest)
    doubtful[doubtful] = (counts > least + 1).any(axis=1)
    return doubtful


# The lists of a stream's shards, leader first; as an array when all are equally long.
ShardLists = Sequence[Sequence[int]] | NDArray[np.integer]

# Rows are told apart by one number each as long as that fits.
_PACKED_MAX = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class ShardRows:
    """The lists of many shards: `nodes` has one row each, EMPTY behind the end of shorter lists."""

    nodes: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def stack(cls, streams: Sequence[ShardLists]) -> "ShardRows":
        """Stack the shards of several streams, one stream below the other."""
        parts = [stack_lists(lists) for lists in streams]
        width = max((nodes.shape[1] for nodes, _ in parts), default=0)
        nodes = np.full((sum(len(nodes) for nodes, _ in parts), width), EMPTY, np.int64)
        first = 0
        for part, _ in parts:
            nodes[first : first + len(part), : part.shape[1]] = part
            first += len(part)
        return cls(nodes, np.concatenate([np.zeros(0, np.int64), *(each for _, each in parts)]))

    def nodes_of(self, row: int) -> list[int]:
        """Return one shard's nodes, leader first, without the padding."""
        nodes: list[int] = self.nodes[row, : self.lengths[row]].tolist()
        return nodes

    def holders(self, alive: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Mask the first occurrence of each living node in its row.

        `alive`: by node, with two more entries, which are false, for the numbers below zero.
        """
        found: NDArray[np.bool_] = alive[self.nodes] & first_occurrences(self.nodes)
        return found


def group_by_size(
    nodes: NDArray[np.int64], kept: NDArray[np.bool_]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Group rows by the number of their places that are kept.

    Yields for each size the numbers of the rows, and as matrices the kept nodes and their slots.
    Rows without any kept place are left out.
    """
    counts = kept.sum(axis=1)
    for size in (np.flatnonzero(np.bincount(counts[counts > 0]))).tolist():
        rows = np.flatnonzero(counts == size)
        chosen = kept[rows]
        slots = np.nonzero(chosen)[1].reshape(-1, size)
        yield rows, nodes[rows][chosen].reshape(-1, size), slots


def find_distinct(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the first of all equal rows, and for each row the number of the one that it equals."""
    if not rows.size:
        return np.zeros(min(len(rows), 1), np.int64), np.zeros(len(rows), np.int64)
    least = int(rows.min())
    base = int(rows.max()) - least + 1
    if base ** rows.shape[1] < _PACKED_MAX:
        packed = np.zeros(len(rows), np.int64)
        for column in rows.T:
            packed = packed * base + (column - least)
        _, first, same = np.unique(packed, return_index=True, return_inverse=True)
    else:
        _, first, same = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, same.reshape(-1)


def stack_lists(lists: ShardLists) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Stack lists as rows, EMPTY behind the end of shorter ones.

    Returns the matrix and the length of each list.
    """
    if isinstance(lists, np.ndarray):
        return lists.astype(np.int64, copy=False), np.full(len(lists), lists.shape[1], np.int64)
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    flat = np.fromiter(chain.from_iterable(lists), np.int64, int(lengths.sum()))
    width = int(lengths.max(initial=0))
    if (lengths == width).all():
        return flat.reshape(len(lists), width), lengths
    nodes = np.full((len(lists), width), EMPTY, np.int64)
    nodes[np.arange(width) < lengths[:, None]] = flat
    return nodes, lengths


class NodeIdLists(Mapping[str, tuple[tuple[str, ...], ...]]):
    """The node ids of every shard's replicas by stream, made when a stream is read."""

    def __init__(self, rows: Mapping[str, Rows], ids: Sequence[str]) -> None:
        self._rows = rows
        self._ids = ids

    def __getitem__(self, stream: str) -> tuple[tuple[str, ...], ...]:
        ids = self._ids
        lists = self._rows[stream].tolist()
        return tuple(tuple(ids[node] for node in nodes if node != EMPTY) for nodes in lists)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
