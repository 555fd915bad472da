"""`placer nodes`, `locations`, `streams`, `policies`, `violations`: the live state as tables."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.options import Bootstrap, Config, Output, OutputOption, Prefix, connection
from streaming.cli.status import Watch, follow

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.listings import Rows

_HELP = {
    "nodes": "List the nodes: where they stand, how they fare, what they hold.",
    "locations": "List the domains of every level with their nodes and load.",
    "streams": "List the streams and the last answer to each.",
    "policies": "List the policies in use and how many streams live under each.",
    "violations": "List what is broken, and what becomes of it.",
}
# What a person wants to see first; --columns and --output json have the rest.
_COLUMNS = {
    "nodes": ("node", "location", "status", "replicas", "leaders", "coming", "going", "weight"),
    "locations": ("location", "nodes", "up", "replicas", "per_weight"),
    "streams": ("stream", "outcome", "shards", "rf", "strategy", "missing", "reasons"),
    "policies": ("policy", "streams", "violations"),
    "violations": ("shard", "strength", "rule", "domain", "count", "limit", "class", "reason"),
}

Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="COLUMN=VALUE",
        help="Only rows in which the column is this, or begins so and a * ends it; repeatable.",
        show_default=False,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option("--columns", help="Columns to show, separated by commas; all: every one."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for name, sentence in _HELP.items():
        app.command(
            name,
            help=sentence,
            epilog="[bold]Examples[/bold]\n\n"
            f"  placer {name} --bootstrap 127.0.0.1:9092\n\n"
            f"  placer {name} --columns all --output json",
        )(_command(name))


def _command(name: str) -> "Callable[..., None]":
    def command(
        where: Where = None,
        columns: Columns = None,
        watch: Watch = False,
        output: OutputOption = Output.TEXT,
        bootstrap: Bootstrap = None,
        prefix: Prefix = None,
        config: Config = None,
    ) -> None:
        from streaming.listings import LISTINGS
        from streaming.live import Live

        wanted = _conditions(where or [])
        settings = connection(config, bootstrap, prefix)
        with Live(settings) as live:

            def rows(live: Live) -> "Rows":
                return _selected(LISTINGS[name](live), wanted)

            def told(found: "Rows") -> Any:
                return _table(found, _shown(name, columns, found))

            if watch:
                follow(live, rows, lambda found: found, told, output)
                return
            _print(rows(live), told, output)

    return command


def _conditions(where: list[str]) -> list[tuple[str, str]]:
    pairs = [each.partition("=") for each in where]
    for column, equals, _ in pairs:
        if not equals:
            raise typer.BadParameter(f"expected COLUMN=VALUE, got {column!r}", param_hint="--where")
    return [(column, value) for column, _, value in pairs]


def _selected(rows: "Rows", wanted: list[tuple[str, str]]) -> "Rows":
    for column, _ in wanted:
        if rows and column not in rows[0]:
            known = ", ".join(rows[0])
            raise typer.BadParameter(
                f"no column {column!r}; there are {known}", param_hint="--where"
            )
    return [row for row in rows if all(_fits(row[column], value) for column, value in wanted)]


def _fits(found: object, value: str) -> bool:
    text = _text(found)
    return text.startswith(value[:-1]) if value.endswith("*") else text == value


def _shown(name: str, columns: str | None, rows: "Rows") -> list[str]:
    known = list(rows[0]) if rows else list(_COLUMNS[name])
    if columns is None:
        return list(_COLUMNS[name])
    if columns == "all":
        return known
    asked = [column.strip() for column in columns.split(",")]
    for column in asked:
        if rows and column not in known:
            raise typer.BadParameter(
                f"no column {column!r}; there are {', '.join(known)}", param_hint="--columns"
            )
    return asked


def _print(rows: "Rows", told: "Callable[[Rows], Any]", output: Output) -> None:
    if output is Output.JSON:
        import orjson

        typer.echo(orjson.dumps(rows))
        return
    from rich.console import Console

    console = Console(highlight=False)
    # A person wants columns that fit, a pipe wants whole lines.
    console.width = console.width if console.is_terminal else 1000
    console.print(told(rows))


def _table(rows: "Rows", columns: list[str]) -> Any:
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return Text("none", "dim")
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for column in columns:
        number = isinstance(rows[0].get(column), int | float)
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*(Text(_text(row[column])) for column in columns))
    return table


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return "; ".join(map(str, value))
    if isinstance(value, dict):
        return ",".join(f"{key}={each}" for key, each in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
