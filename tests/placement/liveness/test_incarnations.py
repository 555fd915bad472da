"""Lives of a node's process: who holds its name, who waits, who is refused.

`suspect_after` is 10 s, `dead_after` 30 s, the grace 5 s. Ticks come at every half second, beats
at full seconds.
"""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.liveness import Clock, LivenessTable, Registration, Verdict
from placement.model import Lives, NodeAttributes, NodeView, PendingLife
from tests.builders.node_logs import (
    FLAPPING,
    TIMERS,
    Line,
    cut,
    every_second,
    lives_text,
    run,
    timeline,
    told,
)


def beats(life: str, start: float, end: float, every: float = 1.0, first: int = 100) -> list[Line]:
    """A life's heartbeats from `start` to `end` seconds."""
    count = int((end - start) / every) + 1
    return [(round((start + n * every) * 1000), f"{life}.{first + n} beats") for n in range(count)]


def at(seconds: float, what: str) -> list[Line]:
    return [(round(seconds * 1000), what)]


def log_of(*parts: Iterable[Line], until: float = 60) -> list[Line]:
    """The parts with a tick each second, at the half."""
    return timeline(*parts, every_second(500, round(until * 1000)))


def course(verdicts: Iterable[Verdict]) -> list[str]:
    """`<second> <incarnation> <verdict> <lives>`."""
    return [
        f"{v.at / 1000:g} {v.incarnation} {v.refused.code if v.refused else v.liveness}"
        f"{lives_text(v.lives)}"
        for v in verdicts
    ]


OLD = [*at(0, "n1.a.1 registers"), *beats("n1.a", 1, 20)]


@pytest.mark.parametrize(
    ("away", "over"),
    # The holder spoke last at 20 s: it has been silent for 5 s at the tick of 25.5 s; a life that
    # comes later need not wait.
    [(0.2, 25.5), (0.9, 25.5), (3, 25.5), (4.9, 25.5), (5, 25), (9, 29)],
)
def test_a_process_that_is_killed_and_returns(away: float, over: float) -> None:
    new = [*at(20 + away, "n1.b.1 registers"), *beats("n1.b", 20.1 + away, 90)]
    found = course(run(log_of(OLD, new, until=90)))
    waits = [] if over == 20 + away else [f"{20 + away:g} a up waits=b"]
    assert found == ["0 a up", *waits, f"{over:g} b up after=a"]


@pytest.mark.parametrize(
    ("end", "over"),
    [
        # At once: it has said that it stops, leaves for good, or is named.
        (at(20.1, "n1.a.900 stops"), "20.3 b up after=a"),
        (at(20.1, "n1.a.900 leaves"), "20.3 b up after=a"),
        # The same, said after the later life has come.
        (at(20.4, "n1.a.900 stops"), "20.4 b up after=a"),
        (at(20.4, "n1.a.900 leaves"), "20.4 b up after=a"),
    ],
)
def test_a_process_that_says_that_it_goes_is_followed_at_once(end: list[Line], over: str) -> None:
    new = [*at(20.3, "n1.b.1 registers"), *beats("n1.b", 20.6, 60)]
    found = course(run(log_of(OLD, end, new)))
    assert found[-1] == over
    assert "suspect" not in " ".join(found)


def test_a_registration_that_names_the_earlier_life_takes_over_at_once() -> None:
    new = [*at(20.3, "n1.b.1 registers h replaces=a"), *beats("n1.b", 21, 60)]
    # What the earlier life had sent before it ended comes in late.
    late = at(20.9, "n1.a.300 beats")
    assert course(run(log_of(OLD, new, late))) == ["0 a up", "20.3 b up after=a"]


def test_naming_another_life_than_the_holder_helps_nobody() -> None:
    new = [*at(20.3, "n1.b.1 registers h replaces=x"), *beats("n1.b", 21, 60)]
    assert course(run(log_of(OLD, new)))[1:] == ["20.3 a up waits=b", "25.5 b up after=a"]


def test_a_holder_that_beats_slowly_is_waited_for_for_three_beats() -> None:
    slow = [*at(0, "n1.a.1 registers"), *beats("n1.a", 3, 60, every=3)]
    new = [*at(61, "n1.b.1 registers"), *beats("n1.b", 61.2, 99)]
    found = course(run(log_of(slow, new, until=90)))
    assert found == ["0 a up", "61 a up waits=b", "69.5 b up after=a"]


def test_nobody_waits_longer_than_for_suspicion() -> None:
    """A holder that would be suspect is followed instead."""
    slow = [*at(0, "n1.a.1 registers"), *beats("n1.a", 7, 56, every=7)]
    new = [*at(57, "n1.b.1 registers"), *beats("n1.b", 57.2, 99)]
    found = course(run(log_of(slow, new, until=90)))
    assert found == ["0 a up", "57 a up waits=b", "66.5 b up after=a"]


def test_an_outage_is_no_usual_beat() -> None:
    """The node was away for 9 s and beats each second again: the grace is 5 s."""
    back = beats("n1.a", 29, 60, first=200)
    new = [*at(60.2, "n1.b.1 registers"), *beats("n1.b", 60.4, 99)]
    assert course(run(log_of(OLD, back, new, until=90)))[-1] == "65.5 b up after=a"


def test_two_that_live_are_one_conflict_and_the_holder_stays() -> None:
    old = [*at(0, "n1.a.1 registers"), *beats("n1.a", 1, 300)]
    new = [*at(20.3, "n1.b.1 registers"), *beats("n1.b", 20.6, 300)]
    verdicts = run(log_of(old, new, until=299))
    assert course(verdicts) == ["0 a up", "20.3 a up waits=b", "26.5 a up waits=b refused=b"]
    assert verdicts[-1].lives is not None
    assert verdicts[-1].lives.refused is not None
    message = verdicts[-1].lives.refused.reason.message
    assert "incarnation a holds it, incarnation b goes on sending" in message


def test_the_one_that_lives_on_holds_the_name() -> None:
    old = [*at(0, "n1.a.1 registers"), *beats("n1.a", 1, 40)]
    new = [*at(20.3, "n1.b.1 registers"), *beats("n1.b", 20.6, 90)]
    assert course(run(log_of(old, new, until=90)))[-1] == "45.5 b up after=a"


def test_a_life_that_waits_and_falls_silent_is_forgotten_without_harm() -> None:
    old = [*at(0, "n1.a.1 registers"), *beats("n1.a", 1, 90)]
    new = [*at(20.3, "n1.b.1 registers"), *beats("n1.b", 20.6, 22)]
    assert course(run(log_of(old, new, until=90))) == [
        "0 a up",
        "20.3 a up waits=b",
        "32.5 a up alone",
    ]


def test_a_life_that_waits_and_leaves_is_forgotten_without_harm() -> None:
    old = [*at(0, "n1.a.1 registers"), *beats("n1.a", 1, 90)]
    new = [*at(20.3, "n1.b.1 registers"), *at(21.2, "n1.b.2 leaves"), *at(22.2, "n1.b.3 moves")]
    assert course(run(log_of(old, new, until=90))) == [
        "0 a up",
        "20.3 a up waits=b",
        "21.2 a up alone",
        "22.2 b INCARNATION_UNKNOWN",
    ]


def test_an_earlier_life_that_speaks_again_is_one_conflict() -> None:
    """Its process was only stopped for a while; the holder stays."""
    new = [*at(21, "n1.b.1 registers"), *beats("n1.b", 21.2, 200)]
    again = [*beats("n1.a", 40, 50, first=500), *at(51.2, "n1.a.900 moves")]
    once_more = beats("n1.a", 120, 121, first=950)
    assert course(run(log_of(OLD, new, again, once_more, until=160))) == [
        "0 a up",
        "21 a up waits=b",
        "25.5 b up after=a",
        "40 b up refused=a after=a",
        "51.2 a INCARNATION_CONFLICT",
        # It has been silent for as long as it takes to be dead: a later word is told again.
        "81.5 b up after=a",
        "120 b up refused=a after=a",
        "151.5 b up after=a",
    ]


def test_an_earlier_life_that_registers_again_waits_like_any_other() -> None:
    """A version that is rolled back may come with the incarnation that it had."""
    new = [*at(21, "n1.b.1 registers"), *beats("n1.b", 21.2, 30)]
    back = [*at(31, "n1.a.5 registers"), *beats("n1.a", 31.2, 60, first=6)]
    assert course(run(log_of(OLD, new, back)))[2:] == [
        "25.5 b up after=a",
        "31 b up waits=a after=a",
        "34.5 a up after=b",
    ]


def test_of_two_that_wait_the_last_takes_over() -> None:
    """A process that crashes at its start leaves a life behind each time."""
    first = [*at(20.2, "n1.b.1 registers"), *at(20.4, "n1.b.2 beats")]
    second = [*at(22, "n1.c.1 registers"), *beats("n1.c", 22.2, 60)]
    assert course(run(log_of(OLD, first, second))) == [
        "0 a up",
        "20.2 a up waits=b",
        "22 a up waits=c after=b",
        "25.5 c up after=b,a",
    ]


def test_a_crash_loop_is_remembered_by_its_last_lives() -> None:
    parts = [at(20 + n, f"n1.b{n}.1 registers") for n in range(1, 30)]
    found = run(log_of(OLD, *parts, until=90))
    kept = [v.lives.earlier for v in found if v.lives is not None]
    assert max(map(len, kept)) == 3
    assert kept[-1] == ("b27", "b28", "b25")


def test_who_registers_again_while_it_waits_says_what_counts() -> None:
    first = [*at(20.2, "n1.b.1 registers here"), *at(20.4, "n1.b.2 registers there")]
    more = [*at(21.2, "n1.b.3 moves elsewhere"), *at(21.4, "n1.b.3 moves nowhere")]
    late = [*at(21.6, "n1.b.2 beats"), *beats("n1.b", 22, 60)]
    found = run(log_of(OLD, first, more, late))
    assert course(found)[1:] == [
        "20.2 a up waits=b",
        "20.4 a up waits=b",
        "21.2 a up waits=b",
        "21.4 b SEQUENCE_CONFLICT",
        "25.5 b up after=a",
    ]
    assert found[-1].statement is not None
    assert found[-1].statement.body == Registration(NodeAttributes("/elsewhere"))
    assert found[-1].sequence == 103


def test_who_registers_again_and_again_while_it_waits_is_published_once() -> None:
    again = [(20_200 + n * 1_000, f"n1.b.{n + 1} registers") for n in range(200)]
    old = beats("n1.a", 21, 230, first=500)
    found = course(run(log_of(OLD, old, again, until=220)))
    assert found == ["0 a up", "20.2 a up waits=b", "26.5 a up waits=b refused=b"]


def test_heartbeats_of_the_past_do_not_end_the_waiting() -> None:
    """A holder's repeated words are no sign that it lives."""
    new = [*at(20.2, "n1.b.1 registers"), *beats("n1.b", 20.4, 60)]
    repeats = [(t, "n1.a.100 beats") for t in range(21_000, 60_000, 1_000)]
    assert course(run(log_of(OLD, new, repeats)))[2:] == [
        "25.5 b up after=a",
        "31 b up refused=a after=a",
    ]


@pytest.mark.parametrize("silence", [12, 40])
def test_who_follows_a_suspect_or_dead_holder_need_not_wait(silence: int) -> None:
    new = at(20 + silence, "n1.b.1 registers")
    assert course(run(log_of(OLD, new)))[-1 - (silence == 12)].endswith("b up after=a")


def test_a_change_of_life_is_no_flap() -> None:
    parts = []
    for n in range(30):
        parts += [*at(10 * n, f"n1.a{n}.1 registers"), *beats(f"n1.a{n}", 10 * n + 1, 10 * n + 8)]
    verdicts = run(log_of(parts, until=320), timers=FLAPPING)
    before = [v for v in verdicts if v.at < 300_000]
    assert {v.incarnation for v in before} == {f"a{n}" for n in range(30)}
    assert {v.flaps for v in before} == {None}


def test_a_restart_of_the_reconciler_remembers_who_waits() -> None:
    life = PendingLife("b", 4, "h", 7, 5_000, NodeAttributes("/here"))
    view = NodeView(
        "n1", "a", 9, "h", 1, NodeAttributes(), "up", 0, lives=Lives(life, None, ("z",))
    )
    table = LivenessTable(TIMERS)
    table.restore([view], {0: Clock(70_000, 0)})
    table = LivenessTable.from_bytes(table.to_bytes(), TIMERS)
    # Late words of an earlier life, and of the one that waits, then silence of the holder.
    lines = [*at(0, "n1.z.99 beats"), *at(0.1, "n1.b.5 beats"), *at(3, "n1.b.6 beats")]
    [stretch] = cut(log_of(lines, until=9.5))
    found = table.apply(stretch)
    assert course(found) == ["5.5 b up after=z,a"]
    assert found[0].statement is not None
    assert found[0].statement.body == Registration(NodeAttributes("/here"))
    assert (found[0].sequence, table.take_ignored()) == (6, {"earlier_incarnation": 1})


def test_a_change_of_the_partitions_delays_and_decides() -> None:
    new = [*at(20.2, "n1.b.1 registers"), *beats("n1.b", 20.4, 60)]
    log = [*timeline(OLD, new), (60_100, "tick 1"), (60_200, "tick 2")]
    ticks = [(60_200 + n * 1_000, "tick 2") for n in range(1, 15)]
    more = beats("n1.b", 60.5, 75, first=900)
    found = course(run(timeline(log, ticks, more)))
    assert found[-1].split(" ", 1)[1] == "b up after=a"


@st.composite
def lives(draw: st.DrawFn) -> list[Line]:
    """A node that is restarted, doubled and stopped at random, with its ticks."""
    parts: list[Line] = []
    clock = 0.0
    for number in range(draw(st.integers(1, 6))):
        life = f"n1.{draw(st.sampled_from('abc'))}"
        clock += draw(st.sampled_from([0.3, 2, 6, 14]))
        lasts = draw(st.sampled_from([0, 1.5, 8, 25]))
        replaces = draw(st.sampled_from(["", "", " h replaces=a"]))
        first = draw(st.sampled_from([1, 100 * number]))
        parts += at(clock, f"{life}.{first + 1} registers{replaces}")
        parts += beats(life, clock + 0.1, clock + lasts, first=first + 2)
        end = draw(st.sampled_from(["", "", "stops", "leaves", "moves"]))
        parts += at(clock + lasts + 0.2, f"{life}.{first + 90} {end}") if end else []
    ticks = draw(st.sampled_from(["tick", "tick 1"]))
    return timeline(parts, every_second(500, round(clock * 1000) + 50_000, ticks))


@given(lives(), st.sets(st.integers(1, 120)))
def test_where_the_log_is_cut_changes_nothing(lines: list[Line], places: set[int]) -> None:
    assert told(run(lines, places)) == told(run(lines))


@given(lives())
def test_who_speaks_is_up_and_holds_the_name_or_is_refused(lines: list[Line]) -> None:
    """After 50 s of one life alone it holds the name, whatever was before."""
    end = lines[-1][0]
    last = [(end, "n1.z.1 registers"), *beats("n1.z", end / 1000 + 0.1, end / 1000 + 50)]
    table = LivenessTable(TIMERS)
    for stretch in cut(timeline(lines, last, every_second(end + 500, end + 50_500))):
        table.apply(stretch)
    condition = table.condition("n1")
    assert condition is not None
    assert condition[:2] == ("up", "z")
