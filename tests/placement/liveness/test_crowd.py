"""A flood of made-up nodes takes no more memory of the operator than there is."""

import pytest

from placement.liveness import LivenessTable, statements
from tests.builders.node_logs import FLAPPING, TIMERS, cut, every_second, run, timeline, told


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three nodes are a crowd."""
    monkeypatch.setattr(statements, "NODES_MAX", 3)


def test_nodes_above_the_quota_are_refused_and_the_others_go_on() -> None:
    flood = [(at, f"x{at}.a.1 registers") for at in range(100, 160)]
    log = timeline(
        [(0, "n1.a.1 registers"), (1, "n2.a.1 registers")], flood, [(200, "n1.a.2 beats")]
    )
    verdicts = run(log)
    assert [line.split()[1:] for line in told(verdicts)[:3]] == [
        ["n1.a.1", "up"],
        ["n2.a.1", "up"],
        ["x100.a.1", "up"],
    ]
    assert {v.refused.code for v in verdicts[3:] if v.refused} == {"QUOTA_EXCEEDED"}
    assert len(verdicts) == 62
    assert verdicts[3].refused is not None
    assert verdicts[3].refused.message.endswith("the limit is 3 nodes")


def test_who_left_or_died_first_makes_room() -> None:
    beats = [(at, f"n2.a.{at} beats") for at in range(5_000, 60_000, 5_000)]
    log = timeline(
        [(0, "n1.a.1 registers"), (1, "n2.a.1 registers"), (3_000, "n3.a.1 registers")],
        beats,
        every_second(500, 40_500),
        [(40_600, "n4.a.1 registers"), (40_700, "n2.a.70000 leaves"), (40_800, "n5.a.1 registers")],
        [(40_900, "n6.a.1 registers"), (40_950, "n7.a.1 registers"), (41_000, "n1.a.9 beats")],
    )
    late = [line.split(" ", 1)[1] for line in told(run(log, range(0, 60, 7))) if "up" in line]
    assert late[3:] == ["n4.a.1 up", "n5.a.1 up", "n6.a.1 up"]
    # n1 died first, then n2 left, then n3, dead, is forgotten; n1 is not known any more.
    assert told(run(log)) == told(run(log, range(60)))


def test_the_place_of_another_is_clean() -> None:
    table = LivenessTable(FLAPPING)
    gone = [(at, f"n1.a.{at + 1} {said}") for at, said in enumerate(["registers", "leaves"] * 3)]
    full = [(10, "n2.a.1 registers"), (11, "n3.a.1 registers"), (12, "n4.b.1 registers")]
    [stretch] = cut([*gone, *full])
    verdicts = table.apply(stretch)
    assert verdicts[5].flaps is not None
    assert verdicts[5].flaps.is_held_down
    table = LivenessTable.from_bytes(table.to_bytes(), TIMERS)
    assert table.condition("n1") is None
    assert table.condition("n4") == ("up", "b", 1)
    [quiet] = cut([(13, "n4.b.2 registers"), (30_000, "tick")])
    assert [v.flaps for v in table.apply(quiet)] == [None]
