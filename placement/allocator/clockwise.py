"""Walks over a token ring for all shards of a stream at once, over arrays of ring positions.

`ring` and `network_topology` say slot by slot which node a shard takes next. Where nothing but the
ring decides (no rules of the user's, every node may lead, none gets full), the same answer is found
here for many shards in one go; where it does not, or some slot finds no node, they ask one by one.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from placement.allocator.choose import candidates
from placement.allocator.token_ring import TokenRing
from placement.allocator.view import View
from placement.model import StreamSpec
from placement.policy import Policy
from placement.rules import Mask

# Shards from which the arrays pay for their making: about a hundred small ones.
BULK_FROM = 48

# Positions first looked at for every shard: three of four walks end among so many.
_WINDOW_FIRST = 4
# Positions looked at together, of all shards: what fits into a processor's cache.
_WINDOWS_MAX = 1 << 17

Positions = NDArray[np.int64]
Fits = Callable[[Positions, Positions], Mask]
"""Whether positions (a row for each shard) may be taken by shards (their numbers)."""
Lists = Callable[[Positions, Mask], Positions | None]
"""Positions of every slot (a row for each shard) from the shards' starts, on the open ones."""


def in_bulk(
    spec: StreamSpec, policy: Policy, view: View, ring: TokenRing, lists: Lists
) -> list[list[int]] | None:
    """Nodes of every slot of every shard, counted in `view`; None where shards have to be walked
    one by one."""
    topology = view.topology
    mask = candidates(policy, view)
    if spec.shards < BULK_FROM or not ring.nodes or policy.rules:
        return None
    if not topology.can_lead[mask].all():
        return None
    taken = lists(ring.starts(spec), mask[ring.owners])
    if taken is None:
        return None
    shards = ring.owners[taken]
    more = np.bincount(shards.ravel(), minlength=topology.size)
    if ((topology.capacity >= 0) & (view.load + more > topology.capacity)).any():
        return None
    view.add_all(shards.ravel())
    view.leaders += np.bincount(shards[:, 0], minlength=topology.size)
    nodes: list[list[int]] = shards.tolist()
    return nodes


def first_fitting(shards: Positions, starts: Positions, size: int, fits: Fits) -> Positions:
    """The first position from its start that fits each of `shards`; -1 where none does."""
    found = np.full(len(shards), -1, np.int64)
    left = np.arange(len(shards))
    begin, width = 0, _WINDOW_FIRST
    while len(left) and begin < size:
        width = max(1, min(width, size - begin, _WINDOWS_MAX // len(left)))
        window = (starts[left, None] + np.arange(begin, begin + width)) % size
        hits = fits(shards[left], window)
        first = hits.argmax(axis=1)
        rows = np.arange(len(left))
        hit = hits[rows, first]
        found[left[hit]] = window[rows, first][hit]
        left, begin, width = left[~hit], begin + width, width * 2
    return found


def among(values: NDArray[np.generic], held: NDArray[np.generic]) -> Mask:
    """Mask the values, a row for each shard, that the shard holds."""
    found = np.zeros(values.shape, bool)
    for column in held.T:
        found |= values == column[:, None]
    return found
