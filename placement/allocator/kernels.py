"""Inner loops as plain functions over flat arrays: one copy of each, compiled when there is much.

Called with lists they run as they are, so that the offline tool starts at once; with numpy arrays
they are compiled by numba, which is imported only then. Both give the same numbers: integers stay
below 63 bits, and the only floating-point operations are single divisions.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

# Elements looked at from which compiled code pays for its loading: a third of a second from
# numba's cache, during which plain Python looks at half a million. Calls that look at
# COMPILED_NEXT_FROM or more add up, so that forty streams of middling size are compiled for as one
# large stream is. Once numba is there a further kernel takes 5 ms, or a second where it has to be
# compiled for the cache.
COMPILED_FROM = 1_000_000
COMPILED_NEXT_FROM = 20_000

# Larger than any key: a count below 2^7 per level, eight levels.
NEVER = 1 << 62

_compiled: dict[Callable[..., Any], Callable[..., Any]] = {}
# Elements looked at by plain Python in such calls: it changes how fast answers come, never them.
_so_far = {"looked at": 0}


def run(kernel: Callable[..., Any], looked_at: int, *arguments: Any) -> tuple[Any, ...]:
    """Call `kernel` in the form that suits the amount of work.

    Returns its arguments, arrays among them as the kernel has left them.
    """
    if not _pays(looked_at):
        plain = [a.tolist() if isinstance(a, np.ndarray) else a for a in arguments]
        kernel(*plain)
        return tuple(
            np.array(after, before.dtype) if isinstance(before, np.ndarray) else before
            for before, after in zip(arguments, plain, strict=True)
        )
    copies = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in arguments)
    _compile(kernel)(*copies)
    return copies


def _pays(looked_at: int) -> bool:
    """Return whether compiled code is faster than NumPy for so many elements."""
    if looked_at >= COMPILED_NEXT_FROM:
        _so_far["looked at"] += looked_at
    if _compiled:
        return looked_at >= min(COMPILED_FROM, COMPILED_NEXT_FROM)
    return max(looked_at, _so_far["looked at"]) >= COMPILED_FROM


def _compile(kernel: Callable[..., Any]) -> Callable[..., Any]:
    if kernel not in _compiled:
        from numba import njit

        _compiled[kernel] = njit(cache=True, error_model="numpy")(kernel)
    return _compiled[kernel]


def spread_shards(  # noqa: C901 - numba caches no function that calls another kernel
    tree: Any, need: Any, room: Any, key: Any, cap: Any, seeds: Any, factor: int, out: Any
) -> None:
    """Place shard after shard: level by level from the top, at last the node.

    Each replica goes where the shard has fewest copies, then where most of the stream's share is
    left (`placement.allocator.apportion`). Whatever is left most is taken first, so that all of it
    finds a place where it can.

    By element of the tree, numbered from the root, 0: `tree` holds the first child and the one
    behind the last (equal for a node), the parent, the worth of one copy (a copy at a higher level
    outweighs any below), and a 31-bit hash; `need` what is left to be placed; `room` the replicas a
    node may still take; `key` 0 where some node below is open, else NEVER; `cap` the copies of one
    shard that a domain may hold. `seeds` are 31-bit hashes of the shards. Fills `out` with `factor`
    elements per shard, -1 where no node is left.
    """
    first, end, parent, worth, tie = tree[0], tree[1], tree[2], tree[3], tree[4]
    copies = [0] * len(first)
    for position in range(len(seeds) * factor):
        shard, slot = position // factor, position % factor
        element = 0 if key[0] < NEVER else -1
        while element >= 0 and first[element] < end[element]:
            chosen, best_key, most, best_tie = -1, NEVER, 0, 0
            for child in range(first[element], end[element]):
                if key[child] > best_key or key[child] >= NEVER:
                    continue
                if key[child] == best_key and need[child] < most:
                    continue
                mixed = (((tie[child] ^ seeds[shard]) + slot) * 73244475) & 0x7FFFFFFF
                mixed = ((mixed ^ (mixed >> 15)) * 73244475) & 0x7FFFFFFF
                if key[child] < best_key or need[child] > most or mixed < best_tie:
                    chosen, best_key, most, best_tie = child, key[child], need[child], mixed
            element = chosen
        out[position] = element
        if element >= 0:
            room[element] -= 1
            need[element] -= 1
            key[element] = NEVER
        while element > 0:
            element = parent[element]
            need[element] -= 1
            copies[element] += 1
            least = NEVER
            for child in range(first[element], end[element]):
                least = min(least, key[child])
            is_open = least < NEVER and copies[element] < cap[element]
            key[element] = least + copies[element] * worth[element] if is_open else NEVER
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


def deal_shards(  # noqa: C901 - numba caches no function that calls another kernel
    tree: Any, turn: Any, pressure: Any, weight: Any, room: Any, factor: int, out: Any
) -> None:
    """Deal the replicas of each shard in turn over a tree of rings, from the root down.

    Each step goes to the child with fewest of the shard, then fewest of the stream (for nodes by
    weight, with one more), then least pressure, then the one whose turn comes first.

    `tree` as in `spread_shards`; by element `turn` says how many children the ring has passed,
    `pressure` the load of other streams, `weight` and `room` those of nodes. Fills `out` with
    `factor` elements per shard; ends where no node is left, with -1 from there on.
    """
    first, end, parent = tree[0], tree[1], tree[2]
    shard, free, taken = [0] * len(first), [0] * len(first), [0] * len(first)
    stream = [0.0] * len(first)
    for element in range(len(first) - 1, 0, -1):
        if first[element] == end[element]:
            free[element] = int(room[element] > 0)
            stream[element] = 1 / weight[element]
        free[parent[element]] += free[element]
    for position in range(len(out)):
        element = 0
        if free[0] == 0:
            return
        while first[element] < end[element]:
            chosen, child = -1, first[element] + turn[element]
            for _ in range(first[element], end[element]):
                if child == end[element]:
                    child = first[element]
                if free[child] > 0 and (chosen < 0 or shard[child] <= shard[chosen]):
                    fewer = chosen < 0 or shard[child] < shard[chosen]
                    even = not fewer and stream[child] == stream[chosen]
                    fewer = fewer or stream[child] < stream[chosen]
                    if fewer or (even and pressure[child] < pressure[chosen]):
                        chosen = child
                child += 1
            turn[element] = chosen + 1 - first[element]
            element = chosen
        out[position] = element
        room[element] -= 1
        free[element] = 0
        taken[element] += 1
        stream[element] = (taken[element] + 1) / weight[element]
        while element > 0:
            element = parent[element]
            free[element] -= 1
            shard[element] += 1
            stream[element] += 1
        if (position + 1) % factor > 0:
            continue
        for placed in range(position + 1 - factor, position + 1):
            element = out[placed]
            back = int(room[element] > 0)
            free[element] = back
            while element > 0:
                element = parent[element]
                free[element] += back
                shard[element] = 0


def choose_locations(  # noqa: C901 - numba caches no function that calls another kernel
    servers: Any, load: Any, shares: Any, ties: Any, cap: int, factor: int, out: Any
) -> None:
    """Choose the location of replica after replica: the least loaded one that has a server left.

    Locations with fewer than `cap` replicas of the shard come before the others.

    By location the number of `servers`, their `load`, the weight `shares`, and the 31-bit hash
    `ties`. Fills `out` with `factor` locations per shard; ends where none is left, with -1 from
    there on. The locations below `cap` compete in a tournament, which one enters anew when it has
    taken a replica and when the shard is done.
    """
    count, width = len(load), 1
    while width < count:
        width *= 2
    best = [-1] * (2 * width)
    value, tie, copies = [0.0] * count, [0] * count, [0] * count
    for step in range(count + 2 * len(out)):
        turn, location = (step - count) % (2 * factor), step
        start = (step - count - turn) // 2
        if step >= count and turn < factor:
            location = best[1]
            for placed in range(start, start + turn if location < 0 else start):
                other = out[placed]
                nearer = location < 0 or value[other] < value[location]
                if copies[other] < servers[other] and (
                    nearer or (value[other] == value[location] and tie[other] < tie[location])
                ):
                    location = other
            if location < 0:
                return
            out[start + turn] = location
            load[location] += 1
            copies[location] += 1
        elif step >= count:
            location = out[start + turn - factor]
            copies[location] = 0
        value[location] = load[location] / shares[location]
        mixed = ((ties[location] + load[location]) * 73244475) & 0x7FFFFFFF
        tie[location] = ((mixed ^ (mixed >> 15)) * 73244475) & 0x7FFFFFFF
        is_open = copies[location] < servers[location] and copies[location] < cap
        node = width + location
        best[node] = location if is_open else -1
        while node > 1:
            node //= 2
            won, other = best[2 * node], best[2 * node + 1]
            if (
                won < 0
                or (other >= 0 and value[other] < value[won])
                or (other >= 0 and value[other] == value[won] and tie[other] < tie[won])
            ):
                won = other
            if best[node] == won and won != location:
                break
            best[node] = won


def draw_servers(
    begin: Any, load: Any, weight: Any, seeds: Any, locations: Any, factor: int, out: Any
) -> None:
    """Take the less loaded of two servers drawn by hash, for each location in `locations`.

    Among equals the one drawn first; a server that holds a replica of the shard gives its lot to
    the next.

    Servers are numbered location by location, `begin` has the first of each; `load` and `weight`
    are theirs, `seeds` 31-bit hashes of the shards. Fills `out`.
    """
    taken = [0] * len(load)
    for position in range(len(out)):
        shard, slot, location = position // factor, position % factor, locations[position]
        size = begin[location + 1] - begin[location]
        lot = ((seeds[shard] + slot) * 73244475) & 0x7FFFFFFF
        lot = ((lot ^ (lot >> 15)) * 73244475) & 0x7FFFFFFF
        server = begin[location] + lot % size
        while taken[server] > shard:
            server += 1
            if server == begin[location + 1]:
                server = begin[location]
        lot = (lot * 73244475) & 0x7FFFFFFF
        lot = ((lot ^ (lot >> 15)) * 73244475) & 0x7FFFFFFF
        other = begin[location] + lot % size
        for _ in range(size):
            if other != server and taken[other] <= shard:
                if load[other] / weight[other] < load[server] / weight[server]:
                    server = other
                break
            other += 1
            if other == begin[location + 1]:
                other = begin[location]
        out[position] = server
        load[server] += 1
        taken[server] = shard + 1


def put_leaders_first(weight: Any, factor: int, out: Any) -> None:
    """Move the node that leads least for its weight to the front of each shard in `out`.

    Among equals the first one.
    """
    leads = [0] * len(weight)
    for start in range(0, len(out), factor):
        leader, least = start, 0.0
        for placed in range(start, start + factor):
            leading = (leads[out[placed]] + 1) / weight[out[placed]]
            if placed == start or leading < least:
                leader, least = placed, leading
        node = out[leader]
        leads[node] += 1
        for placed in range(leader, start, -1):
            out[placed] = out[placed - 1]
        out[start] = node
