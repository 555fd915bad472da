"""External detectors: their word alone counts for the nodes that registered so."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from placement.liveness import (
    LivenessReport,
    LivenessTable,
    Registration,
    ReportedStatus,
    Statement,
)
from placement.model import Liveness, NodeAttributes, NodeView, Reporting
from tests.builders.node_logs import TIMERS, cut, every_second, told

WORDS = {"up": ReportedStatus.UP, "down": ReportedStatus.DOWN}


def external(statement: Statement) -> Statement:
    body = statement.body
    if isinstance(body, Registration):
        return replace(statement, body=body._replace(external=True))
    return statement


def said_of(table: LivenessTable, lines: Sequence[str]) -> list[str]:
    """`n1.a.7 registers`, `n1.a.3 down` (the detector's own sequence), `silence`."""
    found = []
    for number, line in enumerate(lines):
        at = number * 100_000
        who, *what = line.split()
        if line == "silence":
            [stretch] = cut(every_second(at, at + 60_000))
            found += table.apply(stretch)
        elif what[0] in WORDS:
            node_id, life, sequence = who.split(".")
            report = LivenessReport(WORDS[what[0]])
            place = (number, 0, at, node_id, life, int(sequence))
            found += table.report(Statement(*place, report, what[0]))
        else:
            [stretch] = cut([(at, line)])
            statements = [*map(external, stretch.statements)]
            found += table.apply(replace(stretch, statements=statements))
        table = LivenessTable.from_bytes(table.to_bytes(), TIMERS)
    return [line.split(" ", 1)[1] for line in told(found)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # Silence is no sign, and a heartbeat none either.
        (["n1.a.1 registers", "silence"], ["n1.a.1 up"]),
        (["n1.a.1 registers", "n1.a.1 down", "n1.a.9 beats"], ["n1.a.1 up", "n1.a.1 dead"]),
        (
            ["n1.a.1 registers", "n1.a.1 down", "n1.a.2 up", "n1.a.3 up"],
            ["n1.a.1 up", "n1.a.1 dead", "n1.a.1 up"],
        ),
        # What is old or of another life counts for nothing; the same again with another word is a
        # conflict.
        (["n1.a.1 registers", "n1.a.5 up", "n1.a.4 down"], ["n1.a.1 up"]),
        (["n1.a.1 registers", "n1.b.9 down"], ["n1.a.1 up", "n1.b.9 INCARNATION_UNKNOWN"]),
        (["n1.a.1 down", "n1.a.1 registers"], ["n1.a.1 NODE_UNKNOWN", "n1.a.1 up"]),
        (
            ["n1.a.1 registers", "n1.a.5 up", "n1.a.5 down"],
            ["n1.a.1 up", "n1.a.5 SEQUENCE_CONFLICT"],
        ),
        # A node that is said to be down does not talk its way back; another life of it does.
        (
            ["n1.a.1 registers", "n1.a.1 down", "n1.a.2 registers", "n1.a.3 moves"],
            ["n1.a.1 up", "n1.a.1 dead", "n1.a.2 dead", "n1.a.3 dead"],
        ),
        (
            ["n1.a.1 registers", "n1.a.1 down", "n1.b.1 registers", "n1.b.1 down"],
            ["n1.a.1 up", "n1.a.1 dead", "n1.b.1 up after=a", "n1.b.1 dead"],
        ),
        # A life that waits takes over when the detector speaks of it, or gives up the holder.
        (
            ["n1.a.1 registers", "n1.b.1 registers", "n1.b.1 up", "n1.a.2 down"],
            ["n1.a.1 up", "n1.a.1 up waits=b", "n1.b.1 up after=a"],
        ),
        (
            ["n1.a.1 registers", "n1.b.1 registers", "n1.b.1 down"],
            ["n1.a.1 up", "n1.a.1 up waits=b", "n1.b.1 up after=a", "n1.b.1 dead"],
        ),
        (
            ["n1.a.1 registers", "n1.b.1 registers", "n1.a.1 down"],
            ["n1.a.1 up", "n1.a.1 up waits=b", "n1.b.1 up after=a"],
        ),
        # Without a word of the detector the holder's own silence decides.
        (
            ["n1.a.1 registers", "n1.b.1 registers", "silence", "n1.a.9 leaves"],
            [
                "n1.a.1 up",
                "n1.a.1 up waits=b",
                "n1.b.1 up after=a",
                "n1.b.1 up refused=a after=a",
                "n1.a.9 INCARNATION_CONFLICT",
            ],
        ),
        (
            ["n1.a.1 registers", "n1.a.2 leaves", "n1.a.1 up"],
            ["n1.a.1 up", "n1.a.2 unregistered"],
        ),
    ],
)
def test_reports(lines: list[str], expected: list[str]) -> None:
    assert said_of(LivenessTable(TIMERS), lines) == expected


def test_a_report_on_a_node_with_heartbeats_is_refused() -> None:
    table = LivenessTable(TIMERS)
    [stretch] = cut([(0, "n1.a.1 registers")])
    table.apply(stretch)
    report = LivenessReport(ReportedStatus.DOWN)
    (verdict,) = table.report(Statement(0, 0, 1, "n1", "a", 1, report, "h"))
    assert verdict.refused is not None
    assert verdict.refused.code == "NODE_NOT_EXTERNAL"
    assert table.condition("n1") == (Liveness.UP, "a", 1)


def test_a_restored_node_is_still_the_detectors() -> None:
    reporting = Reporting(external=True, sequence=5, said=ReportedStatus.DOWN)
    view = NodeView("n1", "a", 1, "h", 1, NodeAttributes(), Liveness.DEAD, 0, reporting=reporting)
    table = LivenessTable(TIMERS)
    table.restore([view], {})
    assert said_of(table, ["n1.a.9 beats", "n1.a.5 down", "n1.a.4 up", "silence"]) == []
    assert said_of(table, ["n1.a.5 up"]) == ["n1.a.5 SEQUENCE_CONFLICT"]
    assert said_of(table, ["n1.a.6 up"]) == ["n1.a.9 up"]
