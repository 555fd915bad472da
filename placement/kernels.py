"""Inner loops as plain functions over flat arrays: one copy of each, compiled when there is much.

Called with lists they run as they are, so that the offline tool starts at once; with numpy arrays
they are compiled by numba, which is imported only then. Both give the same numbers: integers stay
below 63 bits, and the only floating-point operations are single divisions.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

# Elements looked at from which compiled code pays for its loading: a third of a second from
# numba's cache, during which plain Python looks at half a million.
COMPILED_FROM = 1_000_000

# Larger than any key: a count below 2^7 per level, eight levels.
NEVER = 1 << 62

_compiled: dict[Callable[..., Any], Callable[..., Any]] = {}


def run(kernel: Callable[..., Any], looked_at: int, *arguments: Any) -> tuple[Any, ...]:
    """Call `kernel` in the form that suits the work; returns its arguments, arrays among them as
    the kernel has left them."""
    if looked_at < COMPILED_FROM:
        plain = [a.tolist() if isinstance(a, np.ndarray) else a for a in arguments]
        kernel(*plain)
        return tuple(
            np.array(after, before.dtype) if isinstance(before, np.ndarray) else before
            for before, after in zip(arguments, plain, strict=True)
        )
    copies = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in arguments)
    _compile(kernel)(*copies)
    return copies


def _compile(kernel: Callable[..., Any]) -> Callable[..., Any]:
    if kernel not in _compiled:
        from numba import njit

        _compiled[kernel] = njit(cache=True, error_model="numpy")(kernel)
    return _compiled[kernel]


def spread_shards(  # noqa: C901 - numba caches no function that calls another kernel
    tree: Any, sums: Any, room: Any, key: Any, seeds: Any, factor: int, out: Any
) -> None:
    """Place shard after shard, each replica where the shard has fewest copies, then where load
    per weight is least, then for its leader, the first, where leaders per weight are fewest: level
    by level from the top, at last the node.

    By element of the tree, numbered from the root, 0: `tree` holds the first child and the one
    behind the last (equal for a node), the parent, the worth of one copy (a copy at a higher level
    outweighs any below), and a 31-bit hash; `sums` weight, load and leaders; `room` the replicas a
    node may still take; `key` 0 where some node below is open, else NEVER. `seeds` are 31-bit
    hashes of the shards. Fills `out` with `factor` elements per shard, -1 where no node is left.
    """
    first, end, parent, worth, tie = tree[0], tree[1], tree[2], tree[3], tree[4]
    weight, load, led = sums[0], sums[1], sums[2]
    copies = [0] * len(first)
    for position in range(len(seeds) * factor):
        shard, slot = position // factor, position % factor
        element = 0 if key[0] < NEVER else -1
        while element >= 0 and first[element] < end[element]:
            chosen, best_key, best_load, best_led, best_tie = -1, NEVER, 0.0, 0.0, 0
            for child in range(first[element], end[element]):
                if key[child] > best_key or key[child] >= NEVER:
                    continue
                loaded = (load[child] + 0.5) / weight[child]
                leads = (led[child] + 0.5) / weight[child] if slot == 0 else 0.0
                if key[child] == best_key and (
                    loaded > best_load or (loaded == best_load and leads > best_led)
                ):
                    continue
                mixed = (((tie[child] ^ seeds[shard]) + slot) * 73244475) & 0x7FFFFFFF
                mixed = ((mixed ^ (mixed >> 15)) * 73244475) & 0x7FFFFFFF
                nearer = loaded < best_load or leads < best_led or mixed < best_tie
                if key[child] < best_key or nearer:
                    chosen, best_key, best_tie = child, key[child], mixed
                    best_load, best_led = loaded, leads
            element = chosen
        out[position] = element
        if element >= 0:
            room[element] -= 1
            load[element] += 1
            led[element] += slot == 0
            key[element] = NEVER
        while element > 0:
            element = parent[element]
            load[element] += 1
            led[element] += slot == 0
            copies[element] += 1
            least = NEVER
            for child in range(first[element], end[element]):
                least = min(least, key[child])
            key[element] = least if least >= NEVER else least + copies[element] * worth[element]
        if slot < factor - 1:
            continue
        for placed in range(position + 1 - factor, position + 1):
            element = out[placed]
            is_open = element >= 0 and room[element] > 0
            if is_open:
                key[element] = 0
            while element > 0:
                element = parent[element]
                copies[element] = 0
                for child in range(first[element], end[element]):
                    is_open = is_open or key[child] < NEVER
                key[element] = 0 if is_open else NEVER
