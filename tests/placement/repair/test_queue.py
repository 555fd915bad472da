"""Shards that wait: the most urgent first, and none for a node that has no room."""

import random

from placement.assignments import EMPTY
from placement.repair.queue import ThrottledShards


def test_shards_wait_in_the_order_of_their_urgency():
    waiting = ThrottledShards(set[int]().__contains__)
    for shard in range(1_000):
        waiting.put((shard * 7 % 5, 1, "s", shard, shard))
    for shard in range(0, 1_000, 2):
        waiting.leave(shard)
    for shard in range(1, 1_000, 4):
        waiting.put((9, 0, "s", shard, shard))
    waiting.put_all([(0, 0, "a", 2, 2), (9, 0, "s", 1, 1)])
    assert len(waiting) == 501
    expected = sorted(
        ((9, 0, "s", shard, shard) if shard % 4 == 1 else (shard * 7 % 5, 1, "s", shard, shard))
        for shard in range(1, 1_000, 2)
    )
    assert waiting.first() == (0, 0, "a", 2, 2)
    taken = [waiting.take() for _ in range(len(waiting))]
    assert taken == [2, *(number for *_, number in expected)]
    assert waiting.first() is None


def test_the_most_urgent_goes_first_and_none_waits_for_a_closed_node():
    closed = {7}
    waiting = ThrottledShards(closed.__contains__)
    waiting.put((0, 1, "a", 0, 10), 7)
    waiting.put((1, 1, "a", 1, 11))
    waiting.put((2, 1, "a", 2, 12), 8)
    assert (len(waiting), 10 in waiting) == (3, True)
    assert [waiting.take(), waiting.take(), waiting.first()] == [11, 12, None]
    closed.clear()
    assert waiting.take() == 10
    assert (len(waiting), waiting.first()) == (0, None)


def test_a_shard_waits_in_one_place():
    closed = {7}
    waiting = ThrottledShards(closed.__contains__)
    urgency = (0, 1, "a", 0, 10)
    waiting.put(urgency)
    waiting.put(urgency, 7)
    assert waiting.first() is None
    waiting.put_all([urgency])
    assert waiting.first() == urgency
    waiting.put(urgency, 7)
    waiting.leave(10)
    closed.clear()
    assert (waiting.first(), len(waiting)) == (None, 0)


def test_random_histories_against_a_list():
    rng = random.Random(5)
    closed: set[int] = set()
    waiting, known = ThrottledShards(closed.__contains__), {}
    for _ in range(4_000):
        shard, node = rng.randrange(40), rng.choice([EMPTY, EMPTY, 1, 2])
        urgency = (rng.randrange(3), 1, "s", shard, shard)
        action = rng.choice(["put", "put", "leave", "toggle", "all", "take"])
        if action == "put":
            waiting.put(urgency, node)
            known[shard] = (urgency, node)
        elif action == "leave":
            waiting.leave(shard)
            known.pop(shard, None)
        elif action == "toggle":
            closed ^= {rng.choice([1, 2])}
        elif action == "all":
            waiting.put_all([urgency])
            known[shard] = (urgency, EMPTY)
        open_now = [each for each, at in known.values() if at not in closed]
        assert waiting.first() == min(open_now, default=None)
        if action == "take" and open_now:
            assert waiting.take() == min(open_now)[-1]
            del known[min(open_now)[-1]]
        assert len(waiting) == len(known)
        assert sorted(waiting.shards()) == sorted(known)
