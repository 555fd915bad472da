"""Liveness: what is made of each record, and what of silence.

Tables tell the log of one partition as lines, `<time> <who> <what>`, and the verdicts it leads to.
Times are milliseconds of broker append time; `suspect_after` is 10 s and `dead_after` 30 s.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.liveness import Clock, LivenessTable, Timers, Verdict
from placement.model import Liveness
from placement.node_log import Beat, Beats, PartitionLog, Statement, Tick, Told
from placement.reasons import Code

TIMERS = Timers(suspect_after_ms=10_000, dead_after_ms=30_000)
TOLD = {
    "registers": Told.REGISTERED,
    "moves": Told.LOCALITY_CHANGED,
    "leaves": Told.UNREGISTERED,
}

Line = tuple[int, str]


def cut(
    lines: Sequence[Line], places: Iterable[int] = (), partition: int = 0
) -> list[PartitionLog]:
    """The log as stretches, cut before the given offsets, as the packing of a batch makes them:
    `elapsed` adds up the gaps within the stretch, none more than `gap_max_ms`."""
    edges = [0, *sorted({place for place in places if 0 < place < len(lines)}), len(lines)]
    stretches = []
    for start, end in pairwise(edges):
        elapsed, records, before = 0, [], lines[start][0]
        for offset in range(start, end):
            at, what = lines[offset]
            elapsed += min(max(at - before, 0), TIMERS.gap_max_ms)
            before = at
            records.append(record(offset, elapsed, at, what))
        kinds: dict[str, Any] = {"beats": Beat, "statements": Statement, "ticks": Tick}
        parts: dict[str, Any] = {
            n: [r for r in records if isinstance(r, kind)] for n, kind in kinds.items()
        }
        parts["beats"] = Beats.of(parts["beats"])
        stretches.append(PartitionLog(partition, lines[start][0], before, elapsed, **parts))
    return stretches


def record(offset: int, elapsed: int, at: int, what: str) -> Beat | Statement | Tick:
    """`tick`, `n1.a.7 beats` (node, incarnation, sequence), `n1.a.7 registers [body]`."""
    if what == "tick":
        return Tick(offset, elapsed, at)
    who, said, *body = what.split()
    node_id, incarnation, sequence = who.split(".")
    if said == "beats":
        return Beat(offset, elapsed, at, node_id, incarnation, int(sequence))
    told = TOLD[said]
    body_hash = body[0] if body else told.value
    return Statement(offset, elapsed, at, node_id, incarnation, int(sequence), told, body_hash)


def run(lines: Sequence[Line], places: Iterable[int] = ()) -> list[Verdict]:
    """Verdicts of a log; between two stretches the table goes through its bytes."""
    table, verdicts = LivenessTable(TIMERS), []
    for stretch in cut(lines, places):
        verdicts += table.apply(stretch)
        table = LivenessTable.from_bytes(table.to_bytes(), TIMERS)
    return verdicts


def told(verdicts: Iterable[Verdict]) -> list[str]:
    """`<offset> <node>.<incarnation>.<sequence> <verdict>`."""
    return [
        f"{v.offset} {v.node_id}.{v.incarnation}.{v.sequence} "
        f"{v.refused.code if v.refused else v.liveness}"
        for v in verdicts
    ]


def every_second(start: int, end: int, what: str = "tick") -> list[Line]:
    return [(at, what) for at in range(start, end + 1, 1_000)]


def timeline(*parts: Iterable[Line]) -> list[Line]:
    """The parts in one log, in the order of their times."""
    return sorted((line for part in parts for line in part), key=lambda line: line[0])


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["n1.a.1 registers"], ["0 n1.a.1 up"]),
        # A repeat is none; the same sequence with another body is a conflict.
        (["n1.a.1 registers", "n1.a.1 registers"], ["0 n1.a.1 up"]),
        (["n1.a.1 registers", "n1.a.1 registers other"], ["0 n1.a.1 up", "1 n1.a.1 SEQUENCE"]),
        (["n1.a.2 registers", "n1.a.1 registers other"], ["0 n1.a.2 up"]),
        (["n1.a.1 registers", "n1.a.2 registers"], ["0 n1.a.1 up", "1 n1.a.2 up"]),
        # Nothing but a registration makes a node known.
        (["n1.a.1 beats", "n1.a.2 moves", "n1.a.3 leaves"], []),
        # A beat of a node that is up says nothing new, but raises its sequence.
        (["n1.a.1 registers", "n1.a.5 beats", "n1.a.4 moves"], ["0 n1.a.1 up"]),
        (
            ["n1.a.1 registers", "n1.a.5 beats", "n1.a.5 moves"],
            ["0 n1.a.1 up", "2 n1.a.5 SEQUENCE"],
        ),
        (["n1.a.1 registers", "n1.a.2 moves"], ["0 n1.a.1 up", "1 n1.a.2 up"]),
        # A node that left has to register to come back.
        (
            ["n1.a.1 registers", "n1.a.2 leaves", "n1.a.3 beats", "n1.a.4 moves", "n1.a.5 leaves"],
            ["0 n1.a.1 up", "1 n1.a.2 unregistered"],
        ),
        (
            ["n1.a.1 registers", "n1.a.2 leaves", "n1.a.2 registers"],
            ["0 n1.a.1 up", "1 n1.a.2 unregistered", "2 n1.a.2 SEQUENCE"],
        ),
        (
            ["n1.a.1 registers", "n1.a.2 leaves", "n1.a.3 registers"],
            ["0 n1.a.1 up", "1 n1.a.2 unregistered", "2 n1.a.3 up"],
        ),
        # Another incarnation while the holder is up is refused, and its other words are ignored.
        (
            ["n1.a.1 registers", "n1.b.9 registers", "n1.b.10 beats", "n1.b.11 leaves"],
            ["0 n1.a.1 up", "1 n1.b.9 INCARNATION"],
        ),
        # After the holder left, another may come, with sequences of its own; the old one is gone.
        (
            ["n1.a.7 registers", "n1.a.8 leaves", "n1.b.1 registers", "n1.a.9 beats"],
            ["0 n1.a.7 up", "1 n1.a.8 unregistered", "2 n1.b.1 up"],
        ),
        # Nodes do not disturb each other.
        (
            ["n1.a.1 registers", "n2.a.1 registers", "n1.a.2 leaves", "n2.a.1 registers"],
            ["0 n1.a.1 up", "1 n2.a.1 up", "2 n1.a.2 unregistered"],
        ),
    ],
)
def test_records(lines: list[str], expected: list[str]) -> None:
    short = {Code.SEQUENCE_CONFLICT: "SEQUENCE", Code.INCARNATION_CONFLICT: "INCARNATION"}
    found = told(run([(at * 100, what) for at, what in enumerate(lines)]))
    for code, name in short.items():
        found = [line.replace(code, name) for line in found]
    assert found == expected


def test_a_refusal_says_who_holds_the_name() -> None:
    verdicts = run([(0, "n1.a.3 registers"), (1, "n1.b.1 registers")])
    assert verdicts[1].refused is not None
    assert "n1: registered with another incarnation" in verdicts[1].refused.message
    assert "incarnation a at 3 is up" in verdicts[1].refused.message


def test_silence_makes_suspect_then_dead_at_ticks() -> None:
    log = timeline([(0, "n1.a.1 registers")], every_second(500, 40_500))
    # Ticks at 500, 1500, … have the offsets 1, 2, …: ten seconds have passed at 10,500.
    assert told(run(log)) == ["0 n1.a.1 up", "11 n1.a.1 suspect", "31 n1.a.1 dead"]


def test_exactly_on_time() -> None:
    log = timeline([(0, "n1.a.1 registers")], every_second(1_000, 30_000))
    assert told(run(log)) == ["0 n1.a.1 up", "10 n1.a.1 suspect", "30 n1.a.1 dead"]


def test_beats_keep_a_node_up() -> None:
    beats = [(at, f"n1.a.{at // 9_000 + 1} beats") for at in range(9_000, 90_000, 9_000)]
    log = timeline([(0, "n1.a.1 registers")], beats, every_second(500, 90_500))
    assert told(run(log)) == ["0 n1.a.1 up"]


def test_a_repeated_beat_is_no_sign_of_life() -> None:
    repeats = [(at, "n1.a.2 beats") for at in range(1_000, 20_000, 1_000)]
    log = timeline([(0, "n1.a.1 registers")], repeats, every_second(500, 15_500))
    assert [line.split()[2] for line in told(run(log))] == ["up", "suspect"]


@pytest.mark.parametrize(
    ("silence", "sign", "expected"),
    [
        (15_000, "n1.a.2 beats", ["up", "suspect", "up"]),
        (35_000, "n1.a.2 beats", ["up", "suspect", "dead", "up"]),
        (35_000, "n1.a.2 registers", ["up", "suspect", "dead", "up"]),
        (35_000, "n1.a.2 moves", ["up", "suspect", "dead", "up"]),
        (35_000, "n1.a.2 leaves", ["up", "suspect", "dead", "unregistered"]),
        # The holder is not up: another incarnation may take the name.
        (15_000, "n1.b.1 registers", ["up", "suspect", "up"]),
        (35_000, "n1.b.1 registers", ["up", "suspect", "dead", "up"]),
        # A late word of the past, or of somebody else, is no return.
        (15_000, "n1.a.1 beats", ["up", "suspect"]),
        (15_000, "n1.b.7 beats", ["up", "suspect"]),
    ],
)
def test_return(silence: int, sign: str, expected: list[str]) -> None:
    log = timeline([(0, "n1.a.1 registers")], every_second(500, silence))
    log.append((silence + 100, sign))
    assert [line.split()[2] for line in told(run(log))] == expected


def test_one_long_silence_in_one_look_is_dead_without_suspect() -> None:
    """Ticks may be missing from what is judged at once: the verdict is the last one."""
    log = timeline(
        [(0, "n1.a.1 registers")],
        [(at, "n2.a.1 registers") for at in range(1_000, 31_000, 1_000)],
        [(31_000, "tick")],
    )
    # n2 spoke once: its repeats are no signs of life, and it is silent for 30 s as well.
    assert told(run(log)) == ["0 n1.a.1 up", "1 n2.a.1 up", "31 n1.a.1 dead", "31 n2.a.1 dead"]


def test_unregistered_nodes_are_not_judged() -> None:
    lines = [(0, "n1.a.1 registers"), (10, "n1.a.2 leaves")]
    log = timeline(lines, every_second(500, 50_500))
    assert told(run(log)) == ["0 n1.a.1 up", "1 n1.a.2 unregistered"]


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


RESTORED = [
    ("up", "a", 5, "h", Liveness.UP),
    ("suspect", "a", 5, "h", Liveness.SUSPECT),
    ("dead", "a", 5, "h", Liveness.DEAD),
    ("gone", "a", 5, "h", Liveness.UNREGISTERED),
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
        "1 up.b.1 INCARNATION_CONFLICT",
        "3 up.a.5 SEQUENCE_CONFLICT",
        "5 gone.b.1 up",
    ]


def test_many_nodes_outgrow_the_columns_at_every_size() -> None:
    """More than 64 and more than 128 nodes, through bytes at each step."""
    table = LivenessTable(TIMERS)
    for number in range(200):
        [stretch] = cut([(number, f"n{number}.a.{number} registers")])
        assert [v.node_id for v in table.apply(stretch)] == [f"n{number}"]
        table = LivenessTable.from_bytes(table.to_bytes(), TIMERS)
    assert len(table) == 200
    assert all(table.condition(f"n{n}") == (Liveness.UP, "a", n) for n in range(200))


@st.composite
def logs(draw: st.DrawFn) -> list[Line]:
    """Any log of three nodes: repeats, old sequences, other incarnations, gaps and jumps."""
    at, lines = 100_000, []
    for _ in range(draw(st.integers(1, 60))):
        at += draw(st.sampled_from([0, 10, 900, 1_000, 1_000, 2_500, 2_500, 9_000, -5_000]))
        said = draw(st.sampled_from(["tick"] * 8 + ["beats"] * 4 + ["registers"] * 3 + [*TOLD]))
        if said == "tick":
            lines.append((at, "tick"))
            continue
        node_id, incarnation = draw(st.sampled_from("xyz")), draw(st.sampled_from("aaab"))
        lines.append((at, f"{node_id}.{incarnation}.{draw(st.integers(1, 9))} {said}"))
    return lines


def uncut(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Verdicts without what tells where their stretch began."""
    said = [v.statement and replace(v.statement, elapsed=0) for v in verdicts]
    return [replace(v, statement=s) for v, s in zip(verdicts, said, strict=True)]


@given(logs(), st.sets(st.integers(1, 59)))
def test_where_the_log_is_cut_changes_nothing(lines: list[Line], places: set[int]) -> None:
    assert uncut(run(lines, places)) == uncut(run(lines))


@given(logs())
def test_bytes_are_the_same_however_they_came_about(lines: list[Line]) -> None:
    """Spark compares tables by a hash of these bytes."""
    whole, pieces = LivenessTable(TIMERS), LivenessTable(TIMERS)
    for stretch in cut(lines):
        whole.apply(stretch)
    for stretch in cut(lines, range(len(lines))):
        pieces.apply(stretch)
        pieces = LivenessTable.from_bytes(pieces.to_bytes(), TIMERS)
    assert whole.to_bytes() == pieces.to_bytes()
