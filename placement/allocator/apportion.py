"""Computes how many replicas and leaders of a stream each domain and node should have.

From the root down, the children of an element share what it is to hold. The shares are the best by
the objective of `spread`: the totals of siblings within one of their shares by
weight, or as near as the spread of each shard allows; among those the stream's own counts; among
those the nearest to the shares. Each of these is a sum of convex functions of one sibling, so that
units that go from one sibling to another, the best first, find the optimum.

Kernels as in `placement.allocator.kernels`, which runs them.
"""

from typing import Any

# Weight of a squared distance from the share, for a sibling of mean weight. That of others is in
# inverse proportion, so that what rules keep from all shares is shared by weight as well.
SCALE = 64


def apportion(  # noqa: C901 - numba caches no function that calls another kernel
    tree: Any, weights: Any, load: Any, size: Any, bounds: Any, shards: int, factor: int, need: Any
) -> None:
    """Fill `need` with the units each element is to get; `need[0]` is given.

    By element (`kernels.spread_shards`): `weights` of all nodes and of those that the stream may
    use, in whole millionths; `load` units; `size`, the open nodes; `bounds`, the least and the most
    units. With a `factor` units are replicas, of which each of the `shards` has as many on siblings
    as they have nodes for, within one: the bounds follow. What they leave no room for is left out.
    """
    first, end, tie = tree[0], tree[1], tree[4]
    whole, own, low, high = weights[0], weights[1], bounds[0], bounds[1]
    few = [factor] * len(first)
    for element in range(len(first)):
        begin, stop, amount = first[element], end[element], need[element]
        if factor > 0:
            # Every shard has so many copies in the element, and `more` of them one more.
            copies, more = few[element], amount - shards * few[element]
            each, used, width = -1, 0, 0
            while each < 0 or (width > 0 and used + width <= copies):
                each, used, width = each + 1, used + width, 0
                for child in range(begin, stop):
                    width += size[child] > each
            full = copies + 1 == used + width
            for child in range(begin, stop):
                plain, extra = min(size[child], each), min(size[child], each + 1)
                few[child] = plain
                most = (shards - more) * (extra if copies > used else plain)
                least = shards * plain + (more * (extra - plain) if full else 0)
                low[child], high[child] = least, min(most + more * extra, high[child])
        total, weight, share = load[element] + amount, max(whole[element], 1), max(own[element], 1)
        width, left = 0, amount
        for child in range(begin, stop):
            width += whole[child] > 0
            wanted = total * whole[child] // weight - load[child]
            need[child] = max(min(wanted, high[child]), min(low[child], high[child]))
            left -= need[child]
        mean = weight // max(width, 1) * SCALE
        while True:
            giver, taker, give, take = -1, -1, (0, 0, 0.0, 0), (0, 0, 0.0, 0)
            for child in range(begin, stop):
                mine, now, divisor = need[child], load[child] + need[child], max(whole[child], 1)
                least, most = total * divisor // weight, -(-total * divisor // weight)
                own_least, own_most = amount * own[child] // share, -(-amount * own[child] // share)
                off = max(least - now, now - most, 0)
                own_off = max(own_least - mine, mine - own_most, 0)
                for step in range(-1, 2, 2):
                    if left * step < 0 or not low[child] <= mine + step <= high[child]:
                        continue
                    then = max(least - now - step, now + step - most, 0)
                    own_then = max(own_least - mine - step, mine + step - own_most, 0)
                    cost = (
                        (then * then - off * off) * max(mean // divisor, 1),
                        own_then * own_then - own_off * own_off,
                        (1 + 2 * now * step) / divisor,
                        tie[child],
                    )
                    if step < 0 and (giver < 0 or cost < give):
                        giver, give = child, cost
                    if step > 0 and (taker < 0 or cost < take):
                        taker, take = child, cost
            gain = (give[0] + take[0], give[1] + take[1], give[2] + take[2])
            done = left == 0 and (giver == taker or gain >= (0, 0, -1e-12))
            if done or (left >= 0 and taker < 0) or (left <= 0 and giver < 0):
                break
            if left >= 0:
                need[taker] += 1
            if left <= 0:
                need[giver] -= 1
            left += (left < 0) - (left > 0)


def match_leaders(  # noqa: C901 - numba caches no function that calls another kernel
    members: Any, factor: int, begin: Any, shards_of: Any, quota: Any, leader: Any
) -> None:
    """Choose the leader of each shard so that nodes lead as close to their `quota` as possible.

    It is a matching, improved along shortest chains of shards.

    `members` has the nodes of the shards, `factor` each; `shards_of` the shards of each node, those
    of node n in `shards_of[begin[n] : begin[n + 1]]`. `leader` gets positions; `quota` ends as what
    is left of it.
    """
    nodes, shards = len(quota), len(leader)
    for shard in range(shards):
        best = 0
        for place in range(1, factor):
            mine, other = members[shard * factor + place], members[shard * factor + best]
            if quota[mine] > quota[other]:
                best = place
        leader[shard] = best
        quota[members[shard * factor + best]] -= 1
    # From each node that leads too few, breadth first, to one that leads too many.
    came, by, queue = [-1] * nodes, [0] * nodes, [0] * nodes
    for start in range(nodes):
        while quota[start] > 0:
            length, at, found = 1, 0, -1
            queue[0], came[start] = start, start
            while at < length and found < 0:
                node = queue[at]
                at += 1
                for place in range(begin[node], begin[node + 1]):
                    shard = shards_of[place]
                    leads = members[shard * factor + leader[shard]]
                    if came[leads] < 0:
                        came[leads], by[leads] = node, shard
                        queue[length] = leads
                        length += 1
                        if quota[leads] < 0:
                            found = leads
                            break
            if found >= 0:
                quota[found] += 1
                quota[start] -= 1
                node = found
                while node != start:
                    shard, node = by[node], came[node]
                    for place in range(factor):
                        if members[shard * factor + place] == node:
                            leader[shard] = place
            for at in range(length):
                came[queue[at]] = -1
            if found < 0:
                break
