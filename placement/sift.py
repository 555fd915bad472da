"""Which of many shards may break a rule: looked at as arrays, so that only those are asked one by
one. What is here may doubt a shard that is well, but never trust one that is not."""

import numpy as np
from numpy.typing import NDArray

from placement.topology import NO_DOMAIN

Rows = NDArray[np.integer]
Doubts = NDArray[np.bool_]


def fullest(rows: Rows) -> NDArray[np.int64]:
    """For each row of domains how often the one that is named most is named; nowhere is none."""
    ordered = np.sort(rows, axis=1)
    most = np.zeros(len(rows), np.int64)
    run = np.zeros(len(rows), np.int64)
    for column in range(rows.shape[1]):
        here = ordered[:, column]
        again = here == ordered[:, column - 1] if column else np.zeros(len(rows), bool)
        run = np.where(here == NO_DOMAIN, 0, run * again + 1)
        np.maximum(most, run, out=most)
    return most


def first_mentions(rows: Rows) -> NDArray[np.bool_]:
    """Where a row names a domain for the first time."""
    fresh = np.ones(rows.shape, bool)
    for column in range(1, rows.shape[1]):
        for before in range(column):
            fresh[:, column] &= rows[:, column] != rows[:, before]
    return fresh


def out_of_place(slots: NDArray[np.int64], copies: int) -> Doubts:
    """Rows with a replica in a slot beyond the copies that are asked for. Which of the others are
    kept aside is not told by their number then."""
    doubtful: Doubts = np.any(slots >= copies, axis=1)
    return doubtful


def uneven(rows: Rows, live: Rows) -> Doubts:
    """Rows in which a domain may be two ahead of one of the `live` ones."""
    is_live = np.zeros(max(int(rows.max(initial=0)), int(live.max(initial=0))) + 2, bool)
    is_live[live] = True
    seen = (first_mentions(rows) & is_live[rows]).sum(axis=1)
    # With every live domain in use the least count is one at least; else it is none.
    doubtful: Doubts = fullest(rows) > np.where(seen == len(live), 2, 1)
    return doubtful


def uneven_inside(rows: Rows, parents: Rows, live: NDArray[np.bool_], children: Rows) -> Doubts:
    """Rows in which a domain may be two ahead of another one inside the same parent.

    `rows` and `parents` name each replica's domain and its parent; `live` says by domain whether
    it may take a replica, `children` by parent how many such domains it has. A live domain that is
    not named has none; of those named the one with fewest counts, whether it has room or not.
    """
    doubtful: Doubts = fullest(rows) > 1
    some, above = rows[doubtful], parents[doubtful]
    counts = (some[:, :, None] == some[:, None, :]).sum(axis=2)
    kin = above[:, :, None] == above[:, None, :]
    named = (kin & (first_mentions(some) & live[some])[:, None, :]).sum(axis=2)
    fewest = np.where(kin, counts[:, None, :], counts.max(initial=0)).min(axis=2, initial=1 << 20)
    least = np.where(named < children[above], 0, fewest)
    doubtful[doubtful] = (counts > least + 1).any(axis=1)
    return doubtful
