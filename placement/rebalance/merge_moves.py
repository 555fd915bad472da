"""Merges moves of a plan that meet, so that fewer moves lead to the same loads.

The search moves one replica at a time. It may move a replica twice, or move a second replica of the
stream away from the node that the first came to. Both cases become one move.
"""

from collections import deque

from placement.rebalance.arrangement import LATER, OWN, Arrangement
from placement.rebalance.replica_moves import ReplicaBalancer

ItemMove = tuple[int, int, int]

# Times that the way is shortened: each leaves out what stood in the way of the one before.
_ATTEMPTS = 6


def merge_moves(arrangement: Arrangement, search: ReplicaBalancer) -> list[ItemMove]:
    """Merge the steps of the search where fewer steps end with the same loads.

    Each step that remains is allowed and improves the objective when its turn comes. Returns the
    steps of the search itself if nothing can be merged. The arrangement is left as after the
    returned steps.
    """
    steps = search.steps
    merged = _merge_by_item(steps)
    barred: set[tuple[int, int]] = set()
    for _ in range(_ATTEMPTS):
        fewer = _merge_meeting(arrangement, merged, barred, search.budget.one_per_shard)
        if len(fewer) == len(steps):
            break
        _revert(arrangement, steps)
        replayed = _replay(arrangement, search, fewer)
        if len(replayed) == len(fewer):
            search.budget.shards |= _shards_of(arrangement, replayed)
            return replayed
        done = {item for item, _, _ in replayed}
        barred.update((item, target) for item, _, target in fewer if item not in done)
        _revert(arrangement, replayed)
        for item, _, target in steps:
            arrangement.move(item, target)
    return steps


def _merge_by_item(steps: list[ItemMove]) -> list[ItemMove]:
    """Merge the steps of each item into one, in the order of the items' last steps."""
    ends: dict[int, tuple[int, int]] = {}
    for item, source, target in steps:
        start = ends.pop(item, (source, target))[0]
        ends[item] = start, target
    return [(item, start, end) for item, (start, end) in ends.items() if start != end]


def _shards_of(arrangement: Arrangement, steps: list[ItemMove]) -> set[int]:
    """Collect the shards, by index in the table, that the steps move."""
    return {shard for item, _, _ in steps for shard in arrangement.table_shards(item)}


def _merge_meeting(
    arrangement: Arrangement,
    steps: list[ItemMove],
    barred: set[tuple[int, int]],
    one_per_shard: bool,
) -> list[ItemMove]:
    """Merge moves that meet: A to B and B to C become A to C.

    One replica of a family comes to a node and another leaves it. The first, or another of its
    family on its node, goes to where the second would. With `one_per_shard`, replicas of one shard
    are not merged.
    """
    result: list[ItemMove | None] = list(steps)
    taken = _shards_of(arrangement, steps) if one_per_shard else set()
    used = {item for item, _, _ in steps}
    arrived: dict[tuple[int | None, int], deque[int]] = {}
    for number, (item, _, target) in enumerate(steps):
        if (kin := _family_of(arrangement, item)) is not None:
            arrived.setdefault((kin, target), deque()).append(number)
    for number, step in enumerate(steps):
        item, source, target = step
        waiting = arrived.get((_family_of(arrangement, item), source))
        while waiting:
            other = waiting.popleft()
            first = result[other]
            if first is None or first[2] != source or first[1] == target or other == number:
                continue
            goes = _find_substitute(arrangement, first[0], first[1], step, used, taken, barred)
            if goes is not None:
                used.add(goes)
                if one_per_shard:
                    taken.update(arrangement.table_shards(goes))
                result[other], result[number] = None, (goes, first[1], target)
                break
    return [each for each in result if each is not None]


def _family_of(arrangement: Arrangement, item: int) -> int | None:
    """Find the family whose items may replace the item: its own, or -1 for all later streams.

    None if the item belongs to neither.
    """
    own = int(arrangement.family[OWN][item])
    return own if own >= 0 else -1 if arrangement.family[LATER][item] >= 0 else None


def _find_substitute(
    arrangement: Arrangement,
    item: int,
    source: int,
    instead: ItemMove,
    used: set[int],
    taken: set[int],
    barred: set[tuple[int, int]],
) -> int | None:
    """Find an item on `source` that can go to the target of the dropped step `instead`.

    The item itself or another of its family; no item in `used`, none of the shards `taken`, no pair
    of item and target in `barred`.
    """
    gone, _, target = instead
    there = arrangement.items_on(source)
    same = arrangement.free[there] & (
        arrangement.family[OWN][there] == arrangement.family[OWN][item]
    )
    same &= (arrangement.family[LATER][there] >= 0) == (arrangement.family[LATER][item] >= 0)
    others: list[int] = there[same].tolist()
    for each in (item, *others):
        fresh = each not in used and taken.isdisjoint(arrangement.table_shards(each))
        if (
            (fresh or each == item)
            and (each, target) not in barred
            and (target not in arrangement.row(each) or _of_one_shard(arrangement, each, gone))
        ):
            return each
    return None


def _of_one_shard(arrangement: Arrangement, one: int, other: int) -> bool:
    same = (
        arrangement.stream[one] == arrangement.stream[other]
        and arrangement.shard[one] == arrangement.shard[other]
    )
    return bool(same)


def _revert(arrangement: Arrangement, steps: list[ItemMove]) -> None:
    for item, source, _ in reversed(steps):
        arrangement.move(item, source)


def _replay(
    arrangement: Arrangement, search: ReplicaBalancer, steps: list[ItemMove]
) -> list[ItemMove]:
    """Make the steps that improve, round after round; returns the steps that were made."""
    done: list[ItemMove] = []
    waiting = steps
    while waiting:
        left: list[ItemMove] = []
        for step in waiting:
            item, _, target = step
            if search.is_improvement(item, target):
                arrangement.move(item, target)
                done.append(step)
            else:
                left.append(step)
        if len(left) == len(waiting):
            break
        waiting = left
    return done
