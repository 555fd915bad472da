"""Liveness: what is made of each record, and what of silence."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.liveness import LivenessTable, Verdict
from placement.model import Code, Liveness
from tests.builders.node_logs import (
    FLAPPING,
    STATEMENTS,
    TIMERS,
    Line,
    cut,
    every_second,
    run,
    timeline,
    told,
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["n1.a.1 registers"], ["0 n1.a.1 up"]),
        # A repeat is none; the same sequence with another body is a conflict.
        (["n1.a.1 registers", "n1.a.1 registers"], ["0 n1.a.1 up"]),
        (["n1.a.1 registers", "n1.a.1 registers other"], ["0 n1.a.1 up", "1 n1.a.1 SEQUENCE"]),
        (["n1.a.2 registers", "n1.a.1 registers other"], ["0 n1.a.2 up"]),
        (["n1.a.1 registers", "n1.a.2 registers"], ["0 n1.a.1 up", "1 n1.a.2 up"]),
        # Nothing but a registration makes a node known; a change of place says something that has
        # to be sent again.
        (
            ["n1.a.1 beats", "n1.a.2 moves", "n1.a.3 leaves", "n1.a.4 stops"],
            ["1 n1.a.2 UNKNOWN", "2 n1.a.3 UNKNOWN"],
        ),
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
        # What another incarnation says that has never registered is refused.
        (
            ["n1.a.1 registers", "n1.b.9 beats", "n1.b.10 moves", "n1.b.11 leaves"],
            ["0 n1.a.1 up", "2 n1.b.10 INCARNATION_UNKNOWN", "3 n1.b.11 INCARNATION_UNKNOWN"],
        ),
        # After the holder left, another may come, with sequences of its own; the old one is gone.
        (
            ["n1.a.7 registers", "n1.a.8 leaves", "n1.b.1 registers", "n1.a.9 beats"],
            ["0 n1.a.7 up", "1 n1.a.8 unregistered", "2 n1.b.1 up after=a"],
        ),
        # Nodes do not disturb each other.
        (
            ["n1.a.1 registers", "n2.a.1 registers", "n1.a.2 leaves", "n2.a.1 registers"],
            ["0 n1.a.1 up", "1 n2.a.1 up", "2 n1.a.2 unregistered"],
        ),
    ],
)
def test_records(lines: list[str], expected: list[str]) -> None:
    short = {
        Code.SEQUENCE_CONFLICT: "SEQUENCE",
        Code.NODE_UNKNOWN: "UNKNOWN",
    }
    found = told(run([(at * 100, what) for at, what in enumerate(lines)]))
    for code, name in short.items():
        found = [line.replace(code, name) for line in found]
    assert found == expected


def test_a_refusal_says_who_holds_the_name() -> None:
    verdicts = run([(0, "n1.a.3 registers"), (1, "n1.b.1 leaves")])
    assert verdicts[1].refused is not None
    assert verdicts[1].refused.message == (
        "n1: unregistering of incarnation b refused: this incarnation has not registered; "
        "incarnation a at 3 is up"
    )


@pytest.mark.parametrize("order", [*permutations(range(4))])
def test_what_was_refused_and_is_sent_again_makes_all_orders_one(order: tuple[int, ...]) -> None:
    """Whatever comes before the registration is refused, and sent again once it is there."""
    said = ["n1.a.1 registers", "n1.a.2 moves", "n1.a.3 moves", "n1.a.4 moves"]
    lines = [said[n] for n in order]
    early = lines[: lines.index(said[0])]
    verdicts = run([*enumerate([*lines, *early])])
    refused = [v for v in verdicts if v.refused is not None]
    assert [v.statement and v.statement.sequence for v in refused] == [int(e[5]) for e in early]
    assert {v.refused.code for v in refused if v.refused} <= {Code.NODE_UNKNOWN}
    told_last = [v for v in verdicts if v.refused is None][-1]
    assert (told_last.sequence, told_last.liveness) == (4, Liveness.UP)


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
        said = draw(st.sampled_from(["tick"] * 8 + ["beats"] * 6 + ["registers"] * 3 + STATEMENTS))
        if said == "tick":
            lines.append((at, draw(st.sampled_from(["tick", "tick 1", "tick 1", "tick 2"]))))
            continue
        node_id, incarnation = draw(st.sampled_from("xxyz")), draw(st.sampled_from("aaabbc"))
        said = draw(st.sampled_from([said] * 3 + ["registers replaces=a"] * (said == "registers")))
        lines.append((at, f"{node_id}.{incarnation}.{draw(st.integers(1, 99))} {said}"))
    return lines


def uncut(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Verdicts without what tells where their stretch began."""
    said = [v.statement and replace(v.statement, elapsed=0) for v in verdicts]
    return [replace(v, statement=s) for v, s in zip(verdicts, said, strict=True)]


@given(logs(), st.sets(st.integers(1, 59)))
def test_where_the_log_is_cut_changes_nothing(lines: list[Line], places: set[int]) -> None:
    assert uncut(run(lines, places, FLAPPING)) == uncut(run(lines, (), FLAPPING))


@given(logs(), st.sets(st.integers(1, 59)))
def test_where_the_log_is_cut_changes_no_count(lines: list[Line], places: set[int]) -> None:
    whole, pieces = LivenessTable(FLAPPING), LivenessTable(FLAPPING)
    for stretch in cut(lines):
        whole.apply(stretch)
    for stretch in cut(lines, places):
        pieces.apply(stretch)
    assert pieces.take_ignored() == whole.take_ignored()
    assert not whole.take_ignored()


@given(logs())
def test_bytes_are_the_same_however_they_came_about(lines: list[Line]) -> None:
    """Spark compares tables by a hash of these bytes."""
    whole, pieces = LivenessTable(FLAPPING), LivenessTable(FLAPPING)
    for stretch in cut(lines):
        whole.apply(stretch)
    for stretch in cut(lines, range(len(lines))):
        pieces.apply(stretch)
        pieces = LivenessTable.from_bytes(pieces.to_bytes(), FLAPPING)
    assert whole.to_bytes() == pieces.to_bytes()
