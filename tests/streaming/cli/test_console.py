"""Goal: what a row is about is shown whole at any width; a pipe gets everything; plurals are right.

Method: one table rendered for terminals of several widths and for a pipe; offline commands into a
pipe.
"""

from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from placement.wording import format_count
from streaming.cli.main import app
from streaming.cli.render.console import PROSE_WIDTH_MIN, Paragraph, Table, shorten, text_console
from streaming.cli.times import ago_text, duration_text

EXAMPLES = Path(__file__).resolve().parents[3] / "deploy" / "examples"
WHY = "the nodes of /eu/az1 hold more than their share, those of /eu/az2 less than theirs"
ROWS = [
    ("node-0000000111", "/eu-west/az1/rack-7", "up", 6, 1.5, WHY),
    ("node-2", "/eu-west/az12/rack-11", "suspect", 1600, 1, "full"),
]
COLUMNS = ("node", "location", "status", "replicas", "weight", "why")


def rendered(table: Table | Paragraph, width: int | None) -> list[str]:
    written = StringIO()
    text_console(width, written).print(table)
    return written.getvalue().splitlines()


@pytest.mark.parametrize("width", [20, 40, 50, 60, 80, 90, 100, 120, 160, 1000])
def test_rows_stay_what_they_are_about(width: int) -> None:
    lines = rendered(Table(COLUMNS, ROWS, right=("replicas", "weight")), width)
    for node, location, *_ in ROWS:
        assert any(node in line and location in line for line in lines)
    assert all(line == line.rstrip() for line in lines)
    whole = len("node-0000000111  /eu-west/az12/rack-11")
    told = [line for line in lines if line.startswith("not shown: ")]
    assert all(len(line) <= max(width, whole) for line in lines if line not in told)
    heads = lines[0].split()
    left_out = told[0].removeprefix("not shown: ").partition(" (")[0].split(", ") if told else []
    assert sorted([*heads, *left_out]) == sorted(COLUMNS), "a column is shown or named"


def test_a_sentence_is_wrapped_before_a_column_is_left_out() -> None:
    lines = rendered(Table(COLUMNS, ROWS), 100)
    assert lines[0].split() == list(COLUMNS)
    assert len(lines) > 1 + len(ROWS)
    at = lines[0].index("why")
    parts = [line[at:].strip() for line in lines[1:-1]]
    assert " ".join(parts) == WHY
    assert len(lines[0][:at]) + PROSE_WIDTH_MIN <= 100


@pytest.mark.parametrize("head", ["", "  ", "    - "])
def test_a_paragraph_is_wrapped_between_words_as_far_in_as_it_begins(head: str) -> None:
    lines = rendered(Paragraph(head + WHY), 50)
    assert all(len(line) <= 50 for line in lines)
    assert lines[0].startswith(head + "the nodes")
    assert len(lines) > 1
    assert all(len(line) - len(line.lstrip()) == len(head) for line in lines[1:])
    assert " ".join(line.strip() for line in lines).removeprefix("- ") == WHY
    assert rendered(Paragraph(head + WHY), None) == [head + WHY]


def test_what_matters_least_is_left_out_first() -> None:
    table = Table(COLUMNS, ROWS, first_left_out=("weight", "why"), hint="--columns NAME,…")
    assert rendered(table, 95)[0].split() == ["node", "location", "status", "replicas", "why"]
    lines = rendered(table, 65)
    assert lines[0].split() == ["node", "location", "status", "replicas"]
    assert lines[-1] == "not shown: weight, why (--columns NAME,…)"


def test_a_pipe_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = rendered(Table(COLUMNS, ROWS), None)
    assert len(lines) == 1 + len(ROWS)
    assert lines[1].endswith(WHY)
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize(
    "command",
    [
        ("place", "systems.yaml"),
        ("check", "survive.yaml", "--report"),
        ("plan", "two_sites.yaml", "--lose", "/a"),
    ],
)
def test_commands_write_whole_lines_into_a_pipe(command: tuple[str, ...]) -> None:
    name, file, *options = command
    words = [name, str(EXAMPLES / file), *options]
    result = CliRunner(env={"COLUMNS": "30"}).invoke(app, words)
    assert result.exit_code in (0, 1)
    lines = result.stdout.splitlines()
    assert lines
    assert [line for line in lines if line != line.rstrip()] == []
    assert [line for line in lines if line.endswith("…")] == []
    assert max(map(len, lines)) > 30


def test_counts_and_lists() -> None:
    assert [format_count(n, "move") for n in (0, 1, 2)] == ["0 moves", "1 move", "2 moves"]
    assert format_count(2, "copy", "copies") == "2 copies"
    assert shorten(["a", "b"], 2) == "a, b"
    assert shorten(["a", "b", "c"], 2) == "a, b and 1 more"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.44, "0.4s"),
        (9.0, "9s"),
        (10.9, "10s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (192, "3m12s"),
        (3599, "59m59s"),
        (7500, "2h05m"),
        (86_399, "23h59m"),
        (3 * 86_400 + 4 * 3600, "3d04h"),
    ],
)
def test_times_as_people_say_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
    assert ago_text(1_000_000, 1_000_000 + round(seconds * 1000)) == f"{text} ago"
    assert ago_text(2_000_000, 1_000_000) == "0s ago"
