"""Flapping: when a node is held down, for how long, and how that survives a restart."""

from dataclasses import replace

import pytest

from placement.liveness import (
    Clock,
    Heartbeat,
    Heartbeats,
    LivenessTable,
    PartitionLog,
    Registration,
    Statement,
    Tick,
    Timers,
    Unregistration,
    Verdict,
)
from placement.model import (
    FlapHistory,
    FlapPolicy,
    HoldDown,
    Liveness,
    NodeAttributes,
    NodeView,
    Transition,
)

RULE = FlapPolicy(transitions=5, window_ms=600, hold_ms=100, hold_max_ms=350)
TIMERS = Timers(2_000, 4_000, FlapPolicy(3, 60_000, 10_000, 15_000))


def after(*times: int) -> FlapHistory:
    """What is held against a node that turned at these times."""
    flaps = FlapHistory()
    for number, at in enumerate(times):
        flaps = flaps.with_transition(at, (Liveness.SUSPECT, Liveness.UP)[number % 2], RULE)
    return flaps


@pytest.mark.parametrize(
    ("times", "held"),
    [
        ((1, 2, 3, 4), None),
        ((1, 2, 3, 4, 5), (5, 105)),
        ((1, 2, 3, 4, 600), (600, 700)),
        ((1, 2, 3, 4, 601), None),
        ((1, 2, 3, 4, 601, 601), (601, 701)),
        # Only what happens during a hold-down counts for the next, which is twice as long.
        ((1, 2, 3, 4, 5, 6, 7, 8, 9), (5, 105)),
        ((1, 2, 3, 4, 5, 6, 7, 8, 9, 10), (10, 210)),
        # Twice again would be 400.
        ((1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), (15, 365)),
        # Quiet for as long as it was held: the first length again.
        ((1, 2, 3, 4, 5, 201, 202, 203, 204, 204), (204, 404)),
        ((1, 2, 3, 4, 5, 201, 202, 203, 204, 205), (205, 305)),
    ],
)
def test_hold_down(times: tuple[int, ...], held: tuple[int, int] | None) -> None:
    hold = after(*times).hold
    assert (hold and (hold.since, hold.until)) == held
    assert after(*times).is_held_down is (held is not None)


def test_the_latest_transitions_are_kept() -> None:
    assert [each.at for each in after(1, 2, 3, 4, 5, 6).transitions] == [2, 3, 4, 5, 6]
    assert [each.at for each in after(1, 2, 700).transitions] == [700]


def test_what_matters_no_more_is_forgotten() -> None:
    assert not after(1, 2).is_forgettable(601, RULE)
    assert after(1, 2).is_forgettable(602, RULE)
    held = after(1, 2, 3, 4, 5)
    assert not held.is_forgettable(10_000, RULE), "it is still to be released"
    assert held.with_release().is_forgettable(10_000, RULE)
    assert not FlapHistory(hold=HoldDown(0, 100, active=False)).is_forgettable(199, RULE)


def verdicts_of(table: LivenessTable, first: int, said: dict[int, str]) -> list[Verdict]:
    """Ticks each second from `first` to the last of `said`, and what the node says in between."""
    records: list[Statement | Tick | Heartbeat] = []
    for at in range(first, max(said) + 1, 500):
        if at in said:
            life = (len(records), at - first, at, "n1", "a", at)
            registers = said[at] == "registers"
            registration = Registration(NodeAttributes())
            records.append(Statement(*life, registration, "h") if registers else Heartbeat(*life))
        elif at % 1_000 == 0:
            records.append(Tick(len(records), at - first, at))
    log = PartitionLog(
        0,
        first,
        max(said),
        max(said) - first,
        Heartbeats.of(each for each in records if isinstance(each, Heartbeat)),
        [each for each in records if isinstance(each, Statement)],
        [each for each in records if isinstance(each, Tick)],
    )
    return table.apply(log)


def lives_of(table: LivenessTable, restarts: int, away: int, gone: bool) -> list[Verdict]:
    """A node's process lives for ten seconds, is away for `away` ms, and comes as another life.

    `gone`: it unregisters when it ends; the last life goes on.
    """
    statements, ticks, at = list[Statement](), list[Tick](), 500
    for life in range(restarts + 1):
        name, end = f"life-{life}", at + 10_000
        said = Registration(NodeAttributes())
        statements.append(Statement(0, at, at, "n1", name, 1, said, "h"))
        for sequence, beat in enumerate(range(at + 1_000, end, 1_000), 2):
            statements.append(Statement(0, beat, beat, "n1", name, sequence, said, "h"))
        if gone and life < restarts:
            statements.append(Statement(0, end, end, "n1", name, 99, Unregistration(), "h"))
        at = end + away
    at -= away + 500
    for second in range(1_000, at, 1_000):
        ticks.append(Tick(0, second, second))
    offsets = {id(each): n for n, each in enumerate(sorted([*statements, *ticks], key=_at))}
    log = PartitionLog(
        0,
        0,
        at,
        at,
        Heartbeats.of([]),
        [replace(each, offset=offsets[id(each)]) for each in statements],
        [replace(each, offset=offsets[id(each)]) for each in ticks],
    )
    return table.apply(log)


def _at(record: Statement | Tick) -> int:
    return record.at


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize(("away", "held"), [(3_000, False), (6_000, True)])
def test_restarts_of_a_rolling_upgrade_hold_no_node_down(away: int, gone: bool, held: bool) -> None:
    """Four in a minute, each by a new life before the node is dead; later it is a loss."""
    timers = Timers(2_000, 4_000, FlapPolicy(), incarnation_grace_ms=1_000)
    found = lives_of(LivenessTable(timers), 4, away, gone)
    assert sum(v.liveness is Liveness.UP and v.flaps is not None for v in found) == 4
    assert any(v.flaps is not None and v.flaps.is_held_down for v in found) is (held and not gone)


def test_a_process_that_crashes_again_and_again_is_held_down() -> None:
    timers = Timers(2_000, 4_000, FlapPolicy(), incarnation_grace_ms=1_000)
    found = lives_of(LivenessTable(timers), 5, 3_000, False)
    assert any(v.flaps is not None and v.flaps.is_held_down for v in found)


@pytest.mark.parametrize("ended", [Liveness.SUSPECT, Liveness.UNREGISTERED])
def test_a_restart_is_one_change(ended: Liveness) -> None:
    flaps = FlapHistory()
    for at in range(0, 40, 10):
        flaps = flaps.with_transition(at, ended, RULE).with_restart(at + 5, RULE)
        assert not flaps.is_held_down
    assert [each.at for each in flaps.transitions] == [5, 15, 25, 35]
    assert flaps.with_transition(40, ended, RULE).is_held_down
    assert FlapHistory().with_restart(1, RULE).transitions == (Transition(1, Liveness.UP),)


def told(verdicts: list[Verdict]) -> list[tuple[int, str, bool | None]]:
    return [(v.at, v.liveness.value, v.flaps and v.flaps.is_held_down) for v in verdicts]


def test_a_flapping_node_is_held_and_released_at_a_tick() -> None:
    table = LivenessTable(TIMERS)
    beats = dict.fromkeys(range(7500, 20000, 1000), "beats")
    found = verdicts_of(table, 500, {500: "registers", 4_500: "beats", **beats})
    assert told(found) == [
        (500, "up", None),
        (3_000, "suspect", False),
        (4_500, "up", False),
        (7_000, "suspect", True),
        (7_500, "up", True),
        (17_000, "up", False),
    ]
    assert found[3].flaps is not None
    assert found[3].flaps.hold == HoldDown(7_000, 17_000)


def test_a_restored_table_goes_on_holding() -> None:
    """What the node's record says is all that it takes."""
    turns = (Transition(1_000, Liveness.SUSPECT), Transition(2_000, Liveness.UP))
    held = HoldDown(2_000, 12_000)
    view = NodeView(
        "n1", "a", 1, "h", 3, NodeAttributes(), Liveness.UP, 2_000,
        transitions=turns, hold_down=held,
    )  # fmt: skip
    table = LivenessTable(TIMERS)
    table.restore([view], {0: Clock(9_000, 11_000)})
    table = LivenessTable.from_bytes(table.to_bytes(), TIMERS)
    found = verdicts_of(table, 11_500, {12_500: "beats", 13_500: "beats"})
    assert told(found) == [(12_000, "up", False)]
    assert found[0].flaps == FlapHistory(turns, HoldDown(2_000, 12_000, active=False))
