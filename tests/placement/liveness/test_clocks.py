"""Silence clocks: which clock judges a node, and what makes nobody silent."""

import pytest

from placement.liveness import Clock, LivenessTable, Timers
from placement.liveness.clocks import SETTLE_MS
from placement.model import Liveness, NodeAttributes, NodeView
from tests.builders.node_logs import TIMERS, cut, every_second, run, timeline, told


@pytest.mark.parametrize("gap", [3_001, 10_000, 3_600_000, 10**9])
def test_a_gap_in_the_log_kills_nobody(gap: int) -> None:
    """The application or the broker stood still: the clock moves by 3 s at most."""
    before = timeline([(0, "n1.a.1 registers")], every_second(500, 5_500))
    log = before + [(at + gap, "tick") for at in range(5_500, 7_000, 1_000)]
    assert told(run(log)) == ["0 n1.a.1 up"]


def test_many_gaps_add_up_by_three_seconds_each() -> None:
    log = [(0, "n1.a.1 registers"), *((at, "tick") for at in range(60_000, 900_000, 60_000))]
    # 3, 6, 9, 12 s: suspect at the fourth tick; 30 s: dead at the tenth.
    assert told(run(log)) == ["0 n1.a.1 up", "4 n1.a.1 suspect", "10 n1.a.1 dead"]


def test_a_backward_jump_of_the_broker_kills_nobody_and_delays_little() -> None:
    log = timeline([(100_000, "n1.a.1 registers")], every_second(100_500, 104_500))
    log += every_second(50_500, 54_500)  # half of it again, from an older time
    assert told(run(log)) == ["0 n1.a.1 up"]
    log += every_second(55_500, 61_500)
    assert [line.split()[2] for line in told(run(log))] == ["up", "suspect"]


def test_timers_shorter_than_the_gap_are_respected() -> None:
    """No single gap makes a suspect, whatever the timers."""
    assert Timers(3_000, 5_000).gap_max_ms == 1_500
    assert Timers(60_000, 300_000).gap_max_ms == 3_000


def test_a_node_is_judged_by_the_clock_of_its_own_partition() -> None:
    table = LivenessTable(TIMERS)
    [home] = cut([(0, "n1.a.1 registers")])
    [other] = cut(timeline([(0, "n2.a.1 registers")], every_second(500, 60_500)), partition=1)
    verdicts = [*table.apply(home), *table.apply(other)]
    assert [line.split(" ", 1)[1] for line in told(verdicts)] == [
        "n1.a.1 up",
        "n2.a.1 up",
        "n2.a.1 suspect",
        "n2.a.1 dead",
    ]


def test_a_node_that_changes_its_partition_takes_its_clock() -> None:
    table = LivenessTable(TIMERS)
    [home] = cut(timeline([(0, "n1.a.1 registers")], every_second(500, 8_500)))
    [other] = cut([(0, "n1.a.2 beats"), *every_second(500, 8_500)], partition=1)
    [later] = cut(every_second(9_500, 20_500))
    verdicts = [*table.apply(home), *table.apply(other), *table.apply(later)]
    assert told(verdicts) == ["0 n1.a.1 up"]


def test_more_partitions_kill_nobody() -> None:
    """The node goes on in a partition that is not read yet; the old one's ticks go on. Every clock
    has to agree to its silence, until all clients know of the new partition."""
    table = LivenessTable(TIMERS)
    start = timeline([(0, "n1.a.1 registers")], every_second(500, 5_500, "tick 1"))
    [before] = cut(start)
    [after] = cut(every_second(6_500, 80_500, "tick 2"))
    assert told([*table.apply(before), *table.apply(after)]) == ["0 n1.a.1 up"]
    table = LivenessTable.from_bytes(table.to_bytes(), TIMERS)
    [heard] = cut([(81_000, "n1.a.2 beats"), *every_second(81_500, 120_500, "tick 2")])
    assert told(table.apply(heard)) == [], "the old partition's clock alone decides nothing"
    [other] = cut(every_second(0, 9_500, "tick 2"), partition=1)
    assert told(table.apply(other)) == []
    [other] = cut(every_second(10_000, 11_000, "tick 2"), partition=1)
    [again] = cut(every_second(121_500, 122_500, "tick 2"))
    assert told([*table.apply(other), *table.apply(again)]) == ["0 n1.a.2 suspect"]


def test_when_the_partitions_have_settled_each_judges_its_own() -> None:
    table = LivenessTable(TIMERS)
    [before] = cut([(0, "n1.a.1 registers"), (100, "tick 1")])
    table.apply(before)
    [opened] = cut(every_second(1_000, 2_000, "tick 2"))
    table.apply(opened)
    end = 2_000 + SETTLE_MS
    for partition in (1, 0):
        beats = [(at, f"n1.a.{at} beats") for at in range(2_500, end, 5_000)] * (partition == 0)
        [settled] = cut(timeline(beats, every_second(2_000, end, "tick 2")), partition=partition)
        assert told(table.apply(settled)) == []
    [silent] = cut(every_second(end + 1_000, end + 12_000, "tick 2"))
    assert [line.split(" ", 1)[1] for line in told(table.apply(silent))] == [
        f"n1.a.{end - 4_500} suspect"
    ]


RESTORED = [
    NodeView(name, "a", 5, "h", 1, NodeAttributes(), liveness, 0)
    for name, liveness in (
        ("up", Liveness.UP),
        ("suspect", Liveness.SUSPECT),
        ("dead", Liveness.DEAD),
        ("gone", Liveness.UNREGISTERED),
    )
]


def restored(clocks: dict[int, Clock]) -> LivenessTable:
    table = LivenessTable(TIMERS)
    table.restore(RESTORED, clocks)
    return LivenessTable.from_bytes(table.to_bytes(), TIMERS)


def test_restored_nodes_are_seen_at_the_marker() -> None:
    """A node that was up has all its time again, a suspect one what is left after suspicion; how
    long the application was away does not count."""
    table = restored({0: Clock(reading=700_000, at=1_000_000)})
    assert table.condition("up") == (Liveness.UP, "a", 5)
    assert table.condition("unheard-of") is None
    away = 86_400_000
    verdicts = []
    for stretch in cut(every_second(1_000_000 + away, 1_040_000 + away)):
        verdicts += table.apply(stretch)
    # The first tick adds 3 s at most, each further one a second.
    assert told(verdicts) == ["7 up.a.5 suspect", "17 suspect.a.5 dead", "27 up.a.5 dead"]


def test_restored_nodes_are_judged_by_the_slowest_clock() -> None:
    table = restored({0: Clock(5_000, 0), 1: Clock(90_000, 0)})
    [fast] = cut(every_second(0, 60_000))
    assert table.apply(fast) == []
    [slow] = cut(every_second(0, 9_000), partition=1)
    assert table.apply(slow) == []
    [slow] = cut(every_second(10_000, 11_000), partition=1)
    assert told(table.apply(slow)) == ["0 up.a.5 suspect"]


def test_a_restored_node_that_speaks_has_a_partition_again() -> None:
    table = restored({0: Clock(0, 0), 1: Clock(0, 0)})
    [stretch] = cut([(0, "up.a.6 beats"), (10, "dead.a.6 beats"), *every_second(500, 60_500)])
    assert told(table.apply(stretch)) == [
        "1 dead.a.6 up",
        "12 dead.a.6 suspect",
        "12 up.a.6 suspect",
        "32 dead.a.6 dead",
        "32 up.a.6 dead",
    ]


def test_restored_sequences_and_incarnations_count() -> None:
    table = restored({0: Clock(0, 0)})
    lines = ["up.a.5 beats", "up.b.1 registers", "up.a.5 registers h", "up.a.5 registers other"]
    lines += ["gone.a.6 beats", "gone.b.1 registers"]
    [stretch] = cut([(0, line) for line in lines])
    assert told(table.apply(stretch)) == [
        "1 up.a.5 up waits=b",
        "3 up.a.5 SEQUENCE_CONFLICT",
        "5 gone.b.1 up after=a",
    ]
