"""Goal: options that commands share are declared once and mean the same everywhere."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from streaming.cli.main import app
from streaming.cli.options import with_options


@dataclass(frozen=True)
class Shade:
    """Options of several commands."""

    colour: Annotated[str, typer.Option("--colour", help="Which.")] = "red"
    dark: Annotated[bool, typer.Option("--dark")] = False


def size(width: Annotated[int, typer.Option("--width")] = 1, height: int = 2) -> int:
    """A value that is made of two options."""
    return width * height


def paint() -> typer.Typer:
    command = typer.Typer()

    @command.command()
    @with_options(shade=Shade, area=size)
    def run(
        what: Annotated[str, typer.Argument()],
        shade: Shade,
        area: int,
        twice: Annotated[bool, typer.Option("--twice")] = False,
    ) -> None:
        """Paint it."""
        typer.echo(f"{what} {shade.colour} {shade.dark} {area} {twice}")

    return command


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("wall", "wall red False 2 False"),
        ("wall --colour blue --dark --width 3 --height 4 --twice", "wall blue True 12 True"),
    ],
)
def test_a_set_of_options_makes_one_value(words: str, said: str) -> None:
    result = CliRunner().invoke(paint(), words.split())
    assert (result.exit_code, result.stdout) == (0, f"{said}\n"), result.output


def test_the_help_lists_the_options_and_no_parameter_that_they_make() -> None:
    told = CliRunner(env={"COLUMNS": "200"}).invoke(paint(), ["--help"]).stdout
    assert "Paint it." in told
    for option in ("--twice", "--colour", "--dark", "--width", "--height"):
        assert option in told
    assert "--shade" not in told
    assert "--area" not in told


ASKING = [
    *("drain", "undrain", "maintenance", "cordon", "uncordon", "approve", "cancel", "rebalance"),
    "confirm",
    *("hold override", "node forget", "node release"),
]
WAITING = ["node unregister", "stream create", "stream alter", "stream drop", "apply"]


@pytest.mark.parametrize("command", [*ASKING, *WAITING])
def test_whatever_waits_for_an_answer_waits_alike(command: str) -> None:
    told = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*command.split(), "--help"]).stdout
    options = ["--no-wait", "--timeout", "--output", "--bootstrap", "--prefix", "--config"]
    for option in (*options, *(("--dry-run", "--reason") if command in ASKING else ())):
        assert option in told, option


def test_a_file_that_is_missing_is_told_before_any_broker_is_asked() -> None:
    words = ["apply", "-f", "nowhere.yaml", "--bootstrap", "localhost:1"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "nowhere.yaml: No such file or directory" in result.output
