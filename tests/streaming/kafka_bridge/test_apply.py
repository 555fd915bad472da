"""A plan is carried out on a cluster in memory: whatever happens meanwhile, nothing is left behind.

Crashes are tried at every single call of the admin client.
"""

import pytest

from streaming.errors import BrokerUnreachable
from streaming.kafka_bridge.apply import FAILED_ROUNDS_MAX, ApplyRefused
from streaming.kafka_bridge.copying import Progress, seconds_left
from streaming.kafka_bridge.journal import Direction
from tests.builders.plan_executor import (
    FOREIGN,
    PLAN,
    RATE,
    Bench,
    Crash,
    throttle_as_others_do,
)

BEFORE = PLAN.lists(Direction.BACK)
AFTER = PLAN.lists(Direction.FORWARD)
NOTHING: tuple[dict[int, dict[str, int]], dict[str, dict[str, str]]] = ({}, {})


def preferred(lists: dict[tuple[str, int], tuple[int, ...]]) -> dict[tuple[str, int], int]:
    return {key: brokers[0] for key, brokers in lists.items()}


def test_a_plan_is_carried_out_and_taken_back() -> None:
    bench = Bench()
    assert bench.run().is_complete
    assert (bench.lists(), bench.leaders(), bench.settings()) == (AFTER, preferred(AFTER), NOTHING)
    assert bench.run(Direction.BACK).is_complete
    assert (bench.lists(), bench.leaders()) == (BEFORE, preferred(BEFORE))
    assert bench.settings() == NOTHING
    assert bench.run().is_complete, "what was rolled back can be applied again"
    assert bench.lists() == AFTER


def test_applied_again_it_changes_nothing() -> None:
    bench = Bench()
    bench.run()
    altered = [*bench.kafka.altered]
    assert bench.run().is_complete
    assert bench.kafka.altered == altered


def test_a_wave_begins_when_the_one_before_is_done_and_its_throttles_are_gone() -> None:
    bench = Bench()
    seen: list[tuple[set[tuple[str, int]], bool]] = []

    def look(_: int) -> None:
        running = {
            (name, each.number)
            for name, topic in bench.kafka.topics.items()
            for each in topic.partitions
            if each.is_reassigned
        }
        if running:
            seen.append((running, bench.settings() != NOTHING))

    bench.on_pause = look
    bench.run()
    assert [{*running} <= {*PLAN.waves[0]} for running, _ in seen] == [True, True, False, False]
    assert all(throttled for _, throttled in seen), "no copy without its throttle"


def test_copies_are_throttled_at_sources_and_targets_only() -> None:
    bench = Bench()
    bench.on_pause = lambda n: found.append(bench.settings()) if n == 1 else None
    found: list[object] = []
    bench.run()
    leader, follower = "leader.replication.throttled.", "follower.replication.throttled."
    entries = {leader + "replicas": "0:1,0:2,0:3,1:1,1:2,1:3", follower + "replicas": "0:4,1:4"}
    rates = {n: {leader + "rate": RATE} for n in (1, 2, 3)} | {4: {follower + "rate": RATE}}
    assert found == [(rates, {"t": entries})]


@pytest.mark.parametrize("how", ["before", "part", "after"])
@pytest.mark.parametrize("then", [Direction.FORWARD, Direction.BACK])
@pytest.mark.parametrize("first", [Direction.FORWARD, Direction.BACK])
def test_a_crash_at_any_call_leaves_a_way_on_and_back(
    first: Direction, then: Direction, how: str
) -> None:
    """Every call of a whole run, one after the other, with throttles of others in place."""
    number, crashed = 0, True
    while crashed:
        bench = Bench()
        throttle_as_others_do(bench)
        if first is Direction.BACK:
            bench.run()
        bench.kafka.crash_at, bench.kafka.how = bench.kafka.calls + number, how
        try:
            bench.run(first)
            crashed = False
        except Crash:
            pass
        bench.kafka.crash_at = None
        if bench.store.journal is None:
            assert (bench.lists(), bench.settings()) == (BEFORE, FOREIGN), number
            bench.run()
        assert bench.run(then).is_complete, number
        wanted = AFTER if then is Direction.FORWARD else BEFORE
        assert (bench.lists(), bench.leaders()) == (wanted, preferred(wanted)), number
        assert bench.settings() == FOREIGN, number
        number += 1
    assert number > 40


def test_a_second_crash_while_going_on_is_no_different() -> None:
    for number in range(0, 60, 7):
        for again in range(0, 30, 5):
            bench = Bench()
            for at in (number, bench.kafka.calls + number + again):
                bench.kafka.crash_at = at
                try:
                    bench.run()
                except Crash:
                    continue
            bench.kafka.crash_at = None
            assert bench.run().is_complete, (number, again)
            assert (bench.lists(), bench.settings()) == (AFTER, NOTHING), (number, again)


def test_foreign_throttles_stay_as_they_are() -> None:
    bench = Bench()
    throttle_as_others_do(bench)
    bench.on_pause = lambda _: rates.append(bench.kafka.rates[2])
    rates: list[dict[str, int]] = []
    bench.run()
    assert bench.settings() == FOREIGN
    assert all(each == FOREIGN[0][2] for each in rates), "a lower rate of others is not raised"


def test_a_topic_whose_every_replica_is_throttled_gets_no_entries() -> None:
    bench = Bench()
    bench.kafka.configs["t"]["leader.replication.throttled.replicas"] = "*"
    bench.on_pause = lambda _: found.append(
        bench.kafka.configs["t"]["leader.replication.throttled.replicas"]
    )
    found: list[str] = []
    bench.run()
    assert {*found} == {"*"}


def test_without_a_rate_nothing_is_throttled() -> None:
    bench = Bench()
    seen: list[object] = []
    bench.on_pause = lambda _: seen.append(bench.settings())
    assert bench.run(rate=None).is_complete
    assert seen
    assert all(each == NOTHING for each in seen)


def test_copies_to_a_broker_that_dies_are_called_off_and_told() -> None:
    bench = Bench()
    bench.on_pause = lambda n: bench.kafka.fence(4) if n == 1 else None
    outcome = bench.run()
    assert {*outcome.failures} == {*AFTER}, "no second wave upon a first that failed"
    assert "broker 4 is not live" in outcome.failures["t", 0]
    assert bench.lists() == BEFORE
    # Nobody but the broker itself takes its rate away.
    assert bench.settings() == ({4: {"follower.replication.throttled.rate": RATE}}, {})
    (left,) = outcome.left
    assert left.startswith(
        f"broker 4 is not live and keeps follower.replication.throttled.rate={RATE}"
    )
    bench.kafka.unfence(4)
    assert bench.run(Direction.BACK).is_complete
    assert (bench.lists(), bench.settings()) == (BEFORE, NOTHING)


def test_the_same_command_goes_on_when_the_broker_is_back() -> None:
    bench = Bench()
    bench.on_pause = lambda n: bench.kafka.fence(4) if n == 1 else None
    bench.run()
    bench.kafka.unfence(4)
    bench.on_pause = None
    assert bench.run().is_complete
    assert (bench.lists(), bench.settings()) == (AFTER, NOTHING)


def test_a_replica_does_not_go_back_to_a_dead_broker() -> None:
    bench = Bench()
    bench.run()
    bench.kafka.fence(1)
    outcome = bench.run(Direction.BACK)
    assert "broker 1 is not live" in outcome.failures["t", 1]
    assert bench.settings() == NOTHING
    bench.kafka.unfence(1)
    assert bench.run(Direction.BACK).is_complete
    assert bench.lists() == BEFORE


@pytest.mark.parametrize("anew", [False, True])
def test_a_topic_that_is_deleted_midway_is_told_and_the_others_go_on(anew: bool) -> None:
    bench = Bench()

    def delete(number: int) -> None:
        if number == 1:
            bench.kafka.delete("u")
            if anew:
                bench.kafka.create("u", [(5, 4)])

    bench.on_pause = delete
    outcome = bench.run()
    assert outcome.failures == {("u", n): "its topic was deleted" for n in (0, 1)}
    lists = {key: each for key, each in bench.lists().items() if key[0] == "t"}
    assert lists == {key: each for key, each in AFTER.items() if key[0] == "t"}
    assert bench.settings() == NOTHING
    assert not anew or bench.lists()["u", 0] == (5, 4), "a new topic of the name is let alone"


def test_a_reassignment_of_somebody_else_is_refused_by_name() -> None:
    bench = Bench()
    bench.kafka.alter_reassignments({("t", 1): (2, 3, 5)})
    with pytest.raises(ApplyRefused, match=r"t-1 is moved to \[2, 3, 5\] by a reassignment"):
        bench.run()
    assert bench.store.journal is None
    assert len(bench.kafka.altered) == 1


def test_a_partition_that_somebody_else_takes_over_midway_is_left_to_them() -> None:
    bench = Bench()

    def take(number: int) -> None:
        if number == 1:
            bench.kafka.alter_reassignments({("t", 1): None})
            bench.kafka.alter_reassignments({("t", 1): (5, 3, 1)})

    bench.on_pause = take
    outcome = bench.run()
    assert "which this plan has not asked for" in outcome.failures["t", 1]
    bench.kafka.copy()
    assert bench.lists()["t", 1] == (5, 3, 1)
    assert bench.settings() == NOTHING
    with pytest.raises(ApplyRefused, match=r"t-1 is on \[5, 3, 1\]"):
        bench.run(Direction.BACK)


@pytest.mark.parametrize("direction", [*Direction])
def test_a_reassignment_that_never_ends_is_cancelled(direction: Direction) -> None:
    """It is what stating the old list of a running one leaves, with this tool or another."""
    bench = Bench()
    bench.kafka.crash_at = 15
    with pytest.raises(Crash):
        bench.run()
    bench.kafka.alter_reassignments({("t", 0): (4, 2, 3)})
    bench.kafka.alter_reassignments({("t", 0): (1, 2, 3)})
    bench.kafka.copy()
    assert [*bench.kafka.list_reassignments()] == [("t", 0)]
    bench.kafka.crash_at = None
    assert bench.run(direction).is_complete
    assert bench.lists() == (AFTER if direction is Direction.FORWARD else BEFORE)


def test_another_plan_or_cluster_is_refused() -> None:
    bench = Bench()
    with pytest.raises(ApplyRefused, match="nothing to roll back"):
        bench.run(Direction.BACK)
    bench.run()
    bench.plan = type(PLAN)("other", PLAN.waves)
    with pytest.raises(ApplyRefused, match="the journal is of plan plan, this is plan other"):
        bench.run()


def test_a_stop_calls_the_copies_off_and_the_same_command_goes_on() -> None:
    bench = Bench()

    def stop(number: int) -> None:
        bench.stopping = number >= 3

    bench.on_pause = stop
    outcome = bench.run()
    assert outcome.stopped
    assert bench.settings() == NOTHING
    assert bench.store.journal is not None
    assert not bench.store.journal.own, "what others set later is not taken for ours"
    bench.lists()
    bench.stopping, bench.on_pause = False, None
    assert bench.run().is_complete
    assert bench.lists() == AFTER


def test_brokers_that_do_not_answer_for_a_while_only_delay() -> None:
    bench = Bench()

    def cut(number: int) -> None:
        bench.kafka.unreachable = "no controller" if 1 <= number < 5 else None

    bench.on_pause = cut
    assert bench.run().is_complete
    assert bench.told.count("no controller; trying again") == 4
    assert (bench.lists(), bench.settings()) == (AFTER, NOTHING)


def test_brokers_that_do_not_answer_any_more_end_the_command() -> None:
    bench = Bench()
    bench.on_pause = lambda _: setattr(bench.kafka, "unreachable", "no controller")
    with pytest.raises(BrokerUnreachable):
        bench.run()
    assert len(bench.told) == FAILED_ROUNDS_MAX - 1
    bench.on_pause, bench.kafka.unreachable = None, None
    assert bench.run().is_complete
    assert (bench.lists(), bench.settings()) == (AFTER, NOTHING)


def test_progress_is_told_in_bytes_of_the_whole_plan() -> None:
    bench = Bench()
    bench.run()
    total = 100 + 100 + 100 + 10
    assert {each.bytes_total for each in bench.shown} == {total}
    assert [each.wave for each in bench.shown] == sorted(each.wave for each in bench.shown)
    assert (bench.shown[-1].bytes_done, bench.shown[-1].partitions_done) == (total, 3)
    done = [each.bytes_done for each in bench.shown]
    assert done == sorted(done)


def test_time_left_is_what_arrived_scaled_to_the_rest() -> None:
    first, now = Progress(1, 1, 0, 2, 100, 1000), Progress(1, 1, 1, 2, 400, 1000)
    assert seconds_left(first, now, 30.0) == 60.0
    assert seconds_left(first, first, 30.0) is None
