"""How many reassignments start, which first, and the throttles that are set and taken back."""

from typing import Any

import pytest

from streaming.kafka_bridge.admin_client import (
    FOLLOWER_ENTRIES,
    FOLLOWER_RATE,
    LEADER_ENTRIES,
    LEADER_RATE,
)
from streaming.kafka_bridge.desired import find_desired
from streaming.kafka_bridge.memory import Claims
from streaming.kafka_bridge.pacing import (
    ThrottleChanges,
    choose_starts,
    find_claims,
    find_throttle_changes,
    next_in_flight_max,
)
from streaming.kafka_bridge.snapshot import Snapshot, Throttles
from tests.builders.bridge_tables import EMPTY_MEMORY, TableBuilder, look, partition

RUNNING = partition((4, 2, 3, 1), adding=(4,), removing=(1,))


def moving(count: int, **fields: Any) -> TableBuilder:
    """A stream of which every shard has a move from 1 to 4."""
    built = TableBuilder().stream(shards=count)
    for shard in range(count):
        built.assign("123", f"m{shard}", shard=shard)
        built.move(f"m{shard}", "1>4", shard=shard, **fields)
    return built


def chosen(kafka: Snapshot, built: TableBuilder, most: int) -> list[int]:
    desired = find_desired(kafka, built.tables, EMPTY_MEMORY)
    return [each.key[1] for each in choose_starts(desired, kafka, most)]


def shards(count: int) -> list[Any]:
    return [partition((1, 2, 3), number=n) for n in range(count)]


@pytest.mark.parametrize(("most", "expected"), [(1, [0]), (2, [0, 1]), (9, [0, 1, 2])])
def test_so_many_start_on_a_broker(most: int, expected: list[int]) -> None:
    assert chosen(look(*shards(3)), moving(3), most) == expected


def test_those_that_run_count_whoever_began_them() -> None:
    foreign = partition((4, 5, 6), number=3, adding=(4,))
    assert chosen(look(*shards(3), foreign), moving(3), 2) == [0]


def test_the_leader_counts_too() -> None:
    built = TableBuilder().stream(shards=2)
    built.assign("123", "a").move("a", "2>4").assign("135", "b", shard=1).move("b", "3>6", shard=1)
    kafka = look(partition((1, 2, 3)), partition((1, 3, 5), number=1))
    assert chosen(kafka, built, 1) == [0]


def test_urgent_ones_go_first_and_small_ones_before_large_ones() -> None:
    built = moving(3)
    built.move("m0", "1>4", cause="balance")
    kafka = look(*shards(3), sizes={0: 1, 1: 90, 2: 5})
    assert chosen(kafka, built, 2) == [2, 1]


def test_a_change_that_copies_nothing_never_waits() -> None:
    built = moving(1).assign("213", shard=1)
    assert chosen(look(RUNNING, partition((1, 2, 3), number=1)), built, 1) == [1]


def test_a_move_that_supersedes_one_takes_its_place() -> None:
    built = TableBuilder().stream().assign("123", "n").move("n", "2>4")
    built.move("m", "1>4", "superseded")
    kafka = look(partition((4, 2, 3, 1), adding=(4,), removing=(1,), leader=2))
    assert chosen(kafka, built, 1) == [0]


@pytest.mark.parametrize(
    ("before", "in_sync", "fenced", "expected"),
    [
        (None, (1, 2, 3), (), 8),
        (5, (1, 2, 3), (), 6),
        (8, (1, 2, 3), (), 8),
        (8, (1, 2), (), 4),
        (1, (1, 2), (), 1),
        (5, (1, 2), (3,), 6),
    ],
    ids=["at first", "rises", "to the bound", "a replica lags", "never below one", "one is dead"],
)
def test_concurrency_falls_while_live_replicas_lag(
    before: int | None, in_sync: tuple[int, ...], fenced: tuple[int, ...], expected: int
) -> None:
    kafka = look(partition((1, 2, 3), in_sync), fenced=fenced)
    assert next_in_flight_max(before, kafka, 8) == expected


# Throttles


def throttle(kafka: Snapshot, built: TableBuilder, rate: int | None = None) -> ThrottleChanges:
    desired = [*find_desired(kafka, built.tables, EMPTY_MEMORY)]
    carried = [each for each in desired if each.running or each.standing == "start"]
    claims = find_claims(kafka, built.tables, Claims(), rate)
    return find_throttle_changes(carried, kafka, built.tables, rate, claims)


def entries(*given: str) -> frozenset[str]:
    return frozenset(given)


def set_throttles(
    leaders: dict[int, int], followers: dict[int, int], leading: str = "", following: str = ""
) -> Throttles:
    return Throttles(
        leaders,
        followers,
        {"t": entries(*leading.split())} if leading else {},
        {"t": entries(*following.split())} if following else {},
    )


def test_sources_and_targets_are_throttled_by_the_rate_of_the_move() -> None:
    found = throttle(look(*shards(1)), moving(1))
    assert found.set_rates == {
        **{broker: {LEADER_RATE: 50} for broker in (1, 2, 3)},
        4: {FOLLOWER_RATE: 50},
    }
    assert found.add_entries["t"][LEADER_ENTRIES] == (entries("0:1", "0:2", "0:3"), entries())
    assert not found.remove_entries
    assert not found.remove_rates


def test_a_fenced_broker_is_given_no_rate() -> None:
    found = throttle(look(*shards(1), fenced=(1,)), moving(1))
    assert sorted(found.set_rates) == [2, 3, 4]


ALL_SET = set_throttles({1: 50, 2: 50, 3: 50}, {4: 50}, "0:1 0:2 0:3", "0:4")


def test_what_is_set_is_not_set_again_and_stays_while_it_runs() -> None:
    assert throttle(look(RUNNING, throttles=ALL_SET), moving(1)) == ThrottleChanges()


def test_all_is_taken_back_when_the_move_has_ended() -> None:
    built = TableBuilder().stream().assign("423", epoch=2).move("m", "1>4", "completed")
    found = throttle(look(partition((4, 2, 3)), throttles=ALL_SET), built)
    taken = {topic: {c: e[1] for c, e in by.items()} for topic, by in found.remove_entries.items()}
    assert taken["t"][LEADER_ENTRIES] == entries("0:1", "0:2", "0:3")
    assert found.remove_rates == {
        **{broker: {LEADER_RATE: None} for broker in (1, 2, 3)},
        4: {FOLLOWER_RATE: None},
    }


def test_a_copy_that_runs_without_its_throttle_is_given_it() -> None:
    found = throttle(look(RUNNING), moving(1))
    assert found.add_entries["t"][FOLLOWER_ENTRIES] == (entries("0:4"), entries())


def test_nothing_is_taken_back_while_copies_run_that_are_no_more_ours() -> None:
    kafka = look(RUNNING, throttles=ALL_SET)
    claims = find_claims(kafka, moving(1).tables, Claims(), None)
    found = find_throttle_changes([], kafka, TableBuilder().tables, None, claims)
    assert found == ThrottleChanges()


def test_a_copy_that_is_called_off_keeps_its_throttle_until_it_has_stopped() -> None:
    built = TableBuilder().stream().assign("123", "n").move("n", "1>5")
    built.move("m", "1>4", "superseded")
    assert throttle(look(RUNNING, throttles=ALL_SET), built) == ThrottleChanges()


@pytest.mark.parametrize(
    ("throttles", "built", "removed"),
    [
        (set_throttles({2: 77}, {}), moving(0), []),
        (set_throttles({2: 50}, {}, "9:2"), moving(1), []),
        (set_throttles({2: 50}, {}, "*"), moving(1), []),
        (set_throttles({2: 50}, {}), TableBuilder().move("m", "1>4", "completed"), [2]),
    ],
    ids=["another rate", "an entry of somebody else", "all replicas", "a rate of ours alone"],
)
def test_foreign_throttles_stay(
    throttles: Throttles, built: TableBuilder, removed: list[int]
) -> None:
    kafka = look(partition((1, 2, 3)), throttles=throttles)
    found = throttle(kafka, built)
    assert not found.remove_entries
    assert [*found.remove_rates] == removed


def test_a_foreign_rate_is_neither_raised_nor_lowered() -> None:
    kafka = look(*shards(1), throttles=set_throttles({1: 7, 2: 9999}, {}))
    assert sorted(throttle(kafka, moving(1)).set_rates) == [3, 4]


def test_an_entry_that_was_there_before_the_move_stays_after_it() -> None:
    kafka = look(partition((4, 2, 3)), throttles=set_throttles({}, {}, "0:2"))
    before = find_claims(kafka, TableBuilder().tables, Claims(), None)
    assert before.foreign == {(LEADER_ENTRIES, "t", "0:2")}
    built = TableBuilder().stream().assign("423", epoch=2).move("m", "1>4", "completed")
    for known, taken in ((before, False), (Claims(), True)):
        claims = find_claims(kafka, built.tables, known, None)
        found = find_throttle_changes([], kafka, built.tables, None, claims)
        assert bool(found.remove_entries) is taken


def test_an_entry_of_ours_stays_ours_when_its_stream_is_gone() -> None:
    kafka = look(partition((4, 2, 3)), throttles=ALL_SET)
    ours = find_claims(kafka, moving(1).tables, Claims(), None)
    later = find_claims(kafka, TableBuilder().tables, ours, None)
    assert later == ours
    assert find_throttle_changes([], kafka, TableBuilder().tables, None, later).remove_entries


def test_after_a_restart_a_rate_of_ours_tells_an_entry_of_ours() -> None:
    built = TableBuilder().stream().assign("456", epoch=9).move("m", "3>5", "completed")
    ours = find_claims(look(partition((4, 5, 6)), throttles=ALL_SET), built.tables, Claims(), None)
    assert (LEADER_ENTRIES, "t", "0:1") in ours.entries
    assert not ours.foreign


@pytest.mark.parametrize(("named", "rate", "expected"), [(None, None, {}), (None, 8, {4: 8})])
def test_a_move_without_a_rate_has_that_of_the_options(
    named: int | None, rate: int | None, expected: dict[int, int]
) -> None:
    found = throttle(look(*shards(1)), moving(1, rate_bytes_per_second=named), rate)
    rates = {b: r[FOLLOWER_RATE] for b, r in found.set_rates.items() if FOLLOWER_RATE in r}
    assert rates == expected
