"""`placer nodes`, `locations`, `streams`, `policies`, `violations`: the live state as tables."""

import time
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.commands.status import Watch, follow, open_state, print_view
from streaming.cli.options import Output, OutputOption, connection_options, with_options
from streaming.cli.times import ago_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.live import Listing, ListingRows, PublishedState
    from streaming.settings import Settings

_HELP = {
    "nodes": "List the nodes with location, liveness and load.",
    "locations": "List the domains of every level with their nodes and load.",
    "streams": "List the streams with their health and the last decision on each.",
    "policies": "List the policies in use, with the number of streams of each.",
    "violations": "List the open violations of rules, each with its class and reason.",
}
# What a person wants to see first; --columns and --output json have the rest.
_COLUMNS = {
    "nodes": (
        "node",
        "location",
        "status",
        "liveness",
        "replicas",
        "leaders",
        "coming",
        "going",
        "weight",
        "since",
    ),
    "locations": ("location", "nodes", "up", "replicas", "per_weight"),
    "streams": ("stream", "health", "missing", "outcome", "shards", "rf", "strategy", "reasons"),
    "policies": ("policy", "streams", "violations"),
    "violations": (
        "shard",
        "strength",
        "rule",
        "domain",
        "count",
        "limit",
        "class",
        "since",
        "reason",
    ),
}
# Of these what a narrow terminal does without, the first first.
_FIRST_LEFT_OUT = {
    "nodes": ("weight", "going", "coming", "since", "leaders", "liveness", "replicas", "status"),
    "locations": ("per_weight", "up"),
    "streams": ("strategy", "rf", "shards", "reasons", "outcome"),
    "policies": ("violations",),
    "violations": ("since", "strength", "limit", "count", "reason", "class"),
}
_TIMES = ("since",)
_HINT = "--columns A,B or --output json"

Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="COLUMN=VALUE",
        help="Only rows in which the column has this value; a * at its end matches any rest; "
        "repeatable.",
        show_default=False,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option("--columns", help="Columns to show, separated by commas; all: every one."),
]


_EXAMPLES = {
    "nodes": "  placer nodes --where liveness=suspect --where location=/eu*",
    "streams": "  placer streams --where health=unavailable",
    "violations": "  placer violations --where class=unfixable",
}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for name, sentence in _HELP.items():
        app.command(
            name,
            help=sentence,
            epilog="[bold]Examples[/bold]\n\n"
            f"  placer {name} --bootstrap 127.0.0.1:9092\n\n"
            f"  placer {name} --columns all --output json\n\n"
            f"{_EXAMPLES.get(name, '')}",
        )(_command(name))


def _command(name: str) -> "Callable[..., None]":
    @with_options(settings=connection_options)
    def command(
        settings: "Settings",
        where: Where = None,
        columns: Columns = None,
        watch: Watch = False,
        output: OutputOption = Output.TEXT,
    ) -> None:
        from streaming.live import LISTINGS

        listing = LISTINGS[name]
        wanted = _conditions(where or [], listing)
        shown, left_out = choose_columns(name, columns, listing)
        with open_state(settings, watch) as live:

            def rows(live: "PublishedState") -> "ListingRows":
                return select_rows(listing.rows(live), wanted)

            def make_table(found: "ListingRows") -> Any:
                return listing_table(found, shown, left_out, time.time_ns() // 1_000_000)

            def body(found: "ListingRows") -> "ListingRows":
                """The columns that were asked for; all where none were."""
                if columns is None:
                    return found
                return [{name: row[name] for name in shown} for row in found]

            if watch:
                follow(live, rows, body, make_table, output)
                return
            print_view(rows(live), body, make_table, output)

    return command


def _conditions(where: list[str], listing: "Listing") -> list[tuple[str, str]]:
    """Columns and the values they are to have. Raises BadParameter for what can never be."""
    pairs = [each.partition("=") for each in where]
    for column, equals, value in pairs:
        if not equals:
            _refuse("--where", f"expected COLUMN=VALUE, got {column!r}")
        _check_columns("--where", [column], listing)
        legal = listing.words.get(column)
        if legal is not None and not any(_matches(word, value) for word in legal):
            close = get_close_matches(value, legal, 1)
            hint = f"did you mean '{close[0]}'? " if close else ""
            values = f"{hint}its values are {', '.join(legal)}"
            _refuse("--where", f"column {column} has no value {value!r}; {values}")
    return [(column, value) for column, _, value in pairs]


def _check_columns(option: str, names: list[str], listing: "Listing") -> None:
    for name in names:
        if name not in listing.columns:
            _refuse(option, f"no column {name!r}; there are {', '.join(listing.columns)}")


def _refuse(option: str, why: str) -> None:
    raise typer.BadParameter(why, param_hint=option)


def select_rows(rows: "ListingRows", wanted: list[tuple[str, str]]) -> "ListingRows":
    """The rows that have these values in these columns."""
    return [row for row in rows if all(_matches(row[column], value) for column, value in wanted)]


def _matches(found: object, value: str) -> bool:
    text = _text(found)
    return text.startswith(value[:-1]) if value.endswith("*") else text == value


def choose_columns(
    name: str, columns: str | None, listing: "Listing"
) -> tuple[list[str], list[str]]:
    """Choose the columns to show, and those that a narrow terminal leaves out, in that order. A
    column that was named stays."""
    usual, first = [*_COLUMNS[name]], [*_FIRST_LEFT_OUT[name]]
    if columns is None:
        return usual, first
    if columns == "all":
        others = [each for each in listing.columns if each not in usual]
        return [*listing.columns], [*reversed(others), *first]
    asked = [column.strip() for column in columns.split(",")]
    _check_columns("--columns", asked, listing)
    return asked, []


def listing_table(rows: "ListingRows", columns: list[str], left_out: list[str], now_ms: int) -> Any:
    """The rows for people; `left_out`: what a narrow terminal does without, the first first."""
    from rich.text import Text

    from streaming.cli.render.console import Table

    if not rows:
        return Text("none", "dim")
    numbers = [name for name in columns if isinstance(rows[0].get(name), int | float)]
    cells = [
        [
            ago_text(row[name], now_ms) if name in _TIMES else Text(_text(row[name]))
            for name in columns
        ]
        for row in rows
    ]
    return Table(columns, cells, right=numbers, first_left_out=left_out, hint=_HINT)


def _text(value: object) -> str:
    if value is None or value == {}:
        return "-"
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "-"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={each}" for key, each in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
