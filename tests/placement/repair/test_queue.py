"""Shards that wait: the most urgent first, and none for a node that has no room."""

import random
from collections.abc import Sequence

from placement.assignments import EMPTY
from placement.repair.priority import Priority
from placement.repair.queue import Line, ThrottledShards


def take(waiting: ThrottledShards) -> int:
    """Take the first shard."""
    first = waiting.first()
    assert first is not None
    waiting.drop([first.shard])
    return first.shard


def line(rank: int, live: int, numbers: Sequence[int]) -> Line:
    """Line up shards of one stream, each with its number for index."""
    return Line(rank, live, [("s", number) for number in numbers], numbers)


def test_shards_wait_in_the_order_of_their_priority():
    waiting = ThrottledShards(set[int]().__contains__)
    for shard in range(1_000):
        waiting.put(Priority(shard * 7 % 5, 1, "s", shard, shard))
    for shard in range(0, 1_000, 2):
        waiting.drop([shard])
    for shard in range(1, 1_000, 4):
        waiting.put(Priority(9, 0, "s", shard, shard))
    waiting.put_line(Line(0, 0, [("a", 2)], [2]))
    waiting.put_line(Line(9, 0, [("s", 1), ("s", 5), ("s", 9)], [1, 5, 9]))
    assert len(waiting) == 501
    expected = sorted(
        (
            Priority(9, 0, "s", shard, shard)
            if shard % 4 == 1
            else Priority(shard * 7 % 5, 1, "s", shard, shard)
        )
        for shard in range(1, 1_000, 2)
    )
    assert waiting.first() == Priority(0, 0, "a", 2, 2)
    taken = [take(waiting) for _ in range(len(waiting))]
    assert taken == [2, *(number for *_, number in expected)]
    assert waiting.first() is None


def test_the_most_urgent_goes_first_and_none_waits_for_a_closed_node():
    closed = {7}
    waiting = ThrottledShards(closed.__contains__)
    waiting.put(Priority(0, 1, "a", 0, 10), 7)
    waiting.put(Priority(1, 1, "a", 1, 11))
    waiting.put(Priority(2, 1, "a", 2, 12), 8)
    assert (len(waiting), 10 in waiting) == (3, True)
    assert [take(waiting), take(waiting), waiting.first()] == [11, 12, None]
    closed.clear()
    assert take(waiting) == 10
    assert (len(waiting), waiting.first()) == (0, None)


def test_a_shard_waits_in_one_place():
    closed = {7}
    waiting = ThrottledShards(closed.__contains__)
    priority = Priority(0, 1, "a", 0, 10)
    waiting.put(priority)
    waiting.put(priority, 7)
    assert waiting.first() is None
    waiting.put_line(Line(0, 1, [("a", 0)], [10]))
    assert waiting.first() == priority
    waiting.put(priority, 7)
    waiting.drop([10])
    closed.clear()
    assert (waiting.first(), len(waiting)) == (None, 0)


def test_shards_of_one_line_are_found_together():
    waiting = ThrottledShards(set[int]().__contains__)
    waiting.put(Priority(0, 2, "s", 5, 5))
    assert waiting.front_of_line(9, None) == []
    waiting.put_line(line(0, 2, [1, 2, 3, 4, 6, 7]))
    assert waiting.front_of_line(2, None) == [1, 2]
    waiting.drop([1, 3])
    assert waiting.front_of_line(9, None) == [2, 4]
    assert waiting.front_of_line(9, Priority(0, 2, "s", 3, 3)) == [2]
    waiting.drop([5])
    assert waiting.front_of_line(9, None) == [2, 4, 6, 7]
    waiting.put_line(line(0, 2, [3]))
    assert waiting.front_of_line(9, None) == [2]
    waiting.put(Priority(0, 1, "s", 6, 6))
    assert waiting.front_of_line(9, None) == []
    assert [take(waiting) for _ in range(5)] == [6, 2, 3, 4, 7]


def test_lines_that_are_left_are_dropped():
    waiting = ThrottledShards(set[int]().__contains__)
    for _ in range(100):
        waiting.put_line(line(0, 2, range(100)))
    assert (len(waiting), len(waiting._lines) < 10) == (100, True)
    assert [take(waiting) for _ in range(100)] == [*range(100)]


def test_random_histories_against_a_list():
    rng = random.Random(5)
    closed: set[int] = set()
    waiting, known = ThrottledShards(closed.__contains__), {}
    for _ in range(4_000):
        shard, node = rng.randrange(40), rng.choice([EMPTY, EMPTY, 1, 2])
        priority = Priority(rng.randrange(3), 1, "s", shard, shard)
        action = rng.choice(["put", "put", "drop", "toggle", "line", "pop"])
        if action == "put":
            waiting.put(priority, node)
            known[shard] = (priority, node)
        elif action == "drop":
            waiting.drop([shard])
            known.pop(shard, None)
        elif action == "toggle":
            closed ^= {rng.choice([1, 2])}
        elif action == "line":
            members = sorted(rng.sample(range(40), rng.randrange(1, 12)))
            waiting.put_line(line(priority.cause_rank, 1, members))
            for each in members:
                known[each] = (Priority(priority.cause_rank, 1, "s", each, each), EMPTY)
        open_now = [each for each, at in known.values() if at not in closed]
        assert waiting.first() == min(open_now, default=None)
        end = rng.choice([None, priority])
        alike = waiting.front_of_line(4, end)
        ahead = [each.shard for each in sorted(open_now) if end is None or each <= end]
        assert alike == ahead[: len(alike)]
        if action == "pop" and open_now:
            assert take(waiting) == min(open_now)[-1]
            del known[min(open_now)[-1]]
        assert len(waiting) == len(known)
        assert sorted(waiting.shards()) == sorted(known)
