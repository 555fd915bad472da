"""Goal: every record we publish has a line a person can read; no record can break the watcher.

Method: the contract's canonical examples, and records of shapes nobody promised.
"""

from pathlib import Path
from typing import Any

import orjson
import pytest

import schemas
from streaming.brokers import Record
from streaming.cli.render.record import Reminders, TextPrinter, describe_value

EXAMPLES = Path(schemas.__file__).parent / "examples"


def record(
    topic: str, value: Any, key: str | None = "k", headers: dict[str, str] | None = None
) -> Record:
    raw = None if value is None else orjson.dumps(value)
    shown = value if isinstance(value, dict) else None
    return Record(topic, 0, 1, key, shown, headers or {}, 1_700_000_000_123, raw)


def example(name: str) -> dict[str, Any]:
    value = orjson.loads((EXAMPLES / f"{name}.json").read_bytes())
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(
    ("topic", "name", "state", "words"),
    [
        ("decisions.v1", "Decision", "outcome", ["2x3", "spread", "NO_SPARE_NODE"]),
        ("moves.v1", "Move", "state", ["orders/0", "node-0x1 -> node-0x2", "under_replicated"]),
        ("topology.v1", "NodeView", "status", ["/site1"]),
        ("alerts.v1", "Alert", "severity", ["/eu/az1", "REPAIR_HELD", "12 nodes"]),
        ("answers.v1", "RequestAnswered", "outcome", ["drain", "REQUEST_ACCEPTED", "a887c0d2"]),
    ],
)
def test_the_state_comes_first_and_the_facts_follow(
    topic: str, name: str, state: str, words: list[str]
) -> None:
    value = example(name)
    _, told, rest = describe_value(record(topic, value))
    assert told == value[state]
    assert [word for word in words if word not in rest] == []


def test_an_assignment_shows_its_replicas_and_what_changes() -> None:
    value = example("Assignment") | {"replicas": ["a", "b"], "adding": ["c"], "removing": ["a"]}
    value["epoch"] = 9
    assert describe_value(record("assignments.v1", value)) == (
        "assignment",
        "[a b]",
        "+c -a epoch 9",
    )


def test_violations_show_rule_count_and_class() -> None:
    kind, _, rest = describe_value(record("violations.v1", example("Violations")))
    assert kind == "violation"
    first = example("Violations")["violations"][0]
    assert f"{first['rule']} " in rest
    assert f"{first['count']}/{first['limit']} {first['class']}" in rest


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (record("violations.v1", None), ("violation", "healed", "")),
        (
            record("violations.v1", None, headers={"ce_outcome": "dropped"}),
            ("violation", "removed", ""),
        ),
        (record("moves.v1", None), ("move", "removed", "")),
        (record("decisions.v1", [1]), ("decision", "", "3 bytes that are not a JSON object")),
        (record("decisions.v1", {"spec": [1]}), ("decision", "", '{"spec":[1]}')),
        (record("topology.v1", {"tags": 1}), ("node", "", '{"tags":1}')),
        (record("moves.v1", {}), ("move", "", "None/None · -> ·")),
        (
            record("nodes.v1", {"a": 1}, headers={"ce_type": "placement.NodeHeartbeat.v1"}),
            ("nodes", "NodeHeartbeat", '{"a":1}'),
        ),
        (
            record(
                "dlq.v1",
                None,
                headers={
                    "__placement.errors.topic": "nodes.v1",
                    "__placement.errors.partition": "0",
                    "__placement.errors.offset": "17",
                    "__placement.errors.reason": "KEY_MISMATCH",
                    "__placement.errors.message": "the record has no key",
                },
            ),
            ("dead-letter", "", "nodes.v1-0@17 KEY_MISMATCH the record has no key"),
        ),
    ],
)
def test_odd_records_are_shown_too(made: Record, expected: tuple[str, str, str]) -> None:
    assert describe_value(made) == expected


def test_a_record_cannot_draw_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"state": "\x1b[31m", "stream": "a\nb", "shard": "[bold]"}
    TextPrinter().show([record("moves.v1", value, key="\x1b[2J")])
    line = capsys.readouterr().out
    assert line.endswith("move \\x1b[2J \\x1b[31m a\\nb/[bold] · -> ·\n")
    assert line.count("\n") == 1
    assert line.isascii() or "·" in line


def test_an_alert_shows_kind_severity_and_subject(capsys: pytest.CaptureFixture[str]) -> None:
    value = example("Alert")
    TextPrinter().show([record("alerts.v1", value, key=value["kind"])])
    line = capsys.readouterr().out
    words = (value["kind"], value["severity"], value["subject"], value["reason"]["message"])
    assert line.split(" ", 1)[1].startswith(f"alert {words[0]} {words[1]} {words[2]} ")
    assert line.rstrip().endswith(words[3])


def reminder(move_id: str, number: int, seconds: float) -> Record:
    value = example("Move") | {"move_id": move_id, "state": "cancelled", "reminded": number}
    at = 1_700_000_000_000 + round(seconds * 1000)
    return Record("moves.v1", 0, 1, move_id, value, {}, at, orjson.dumps(value))


def test_reminders_are_summed_up_once_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    printer = TextPrinter()
    cancelled = example("Move") | {"state": "cancelled"}
    printer.show([record("moves.v1", cancelled, key="m1")])
    assert " move m1 cancelled orders/0 " in capsys.readouterr().out, "that is news"
    printer.show([reminder(f"m{number}", 1, 1) for number in range(10)])
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert "10 reminders 10 moves were called off, no executor has confirmed it: " in line
    assert line.rstrip().endswith("and 7 more")
    printer.show([reminder("m1", 2, 20), reminder("m2", 2, 40)])
    assert capsys.readouterr().out == ""
    printer.show([reminder("m1", 3, 62)])
    assert " 3 reminders 2 moves were called off" in capsys.readouterr().out
    printer.show([reminder("m1", 4, 70)])
    printer.close()
    assert " 1 reminder 1 move was called off" in capsys.readouterr().out, "what was held back"
    printer.close()
    assert capsys.readouterr().out == ""


def test_only_moves_are_reminders() -> None:
    reminders = Reminders()
    assert not reminders.collect(record("moves.v1", example("Move")))
    assert not reminders.collect(record("moves.v1", None))
    assert not reminders.collect(record("alerts.v1", {"reminded": 3}))
    assert reminders.summarise(at_the_end=True) is None
