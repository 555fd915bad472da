"""`placer describe node|stream|shard NAME`: all that is known of one thing, on one screen."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.options import Output, OutputOption, connection_options, with_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming.live import PublishedState
    from streaming.settings import Settings

app = typer.Typer(
    name="describe",
    help="Show all that is known about one node, stream or shard.",
    epilog="[bold]Examples[/bold]\n\n"
    "  placer describe node n7\n\n"
    "  placer describe stream orders\n\n"
    "  placer describe shard orders/3 --output json\n\n"
    "Its past: placer history. Exit code 2: it does not exist.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Its id or name.")]
Shard = Annotated[str, typer.Argument(metavar="STREAM/SHARD", help="A shard, counted from 0.")]


@app.command()
@with_options(settings=connection_options)
def node(name: Name, settings: "Settings", output: OutputOption = Output.TEXT) -> None:
    """Show a node: place, condition, lives, orders, replicas by stream, moves, violations."""
    from streaming.cli.render.describe import node_lines
    from streaming.live import describe_node

    _show(lambda live: describe_node(live, name), node_lines, output, settings)


@app.command()
@with_options(settings=connection_options)
def stream(name: Name, settings: "Settings", output: OutputOption = Output.TEXT) -> None:
    """Show a stream: what it asks for, the answer, its health, where its replicas stand, moves."""
    from streaming.cli.render.describe import stream_lines
    from streaming.live import describe_stream

    _show(lambda live: describe_stream(live, name), stream_lines, output, settings)


@app.command()
@with_options(settings=connection_options)
def shard(name: Shard, settings: "Settings", output: OutputOption = Output.TEXT) -> None:
    """Show a shard: replicas and their nodes, quorum, move, violations, and what happens next."""
    from streaming.cli.render.describe import shard_lines
    from streaming.live import describe_shard

    stream, number = shard_name(name)
    _show(lambda live: describe_shard(live, stream, number), shard_lines, output, settings)


def shard_name(text: str) -> tuple[str, int]:
    """Stream and number of `orders/3`. Raises BadParameter."""
    stream, slash, number = text.rpartition("/")
    if not slash or not stream or not number.isdecimal():
        raise typer.BadParameter(f"expected STREAM/SHARD such as orders/3, got {text!r}")
    return stream, int(number)


def _show(
    found: "Callable[[PublishedState], dict[str, Any]]",
    lines: "Callable[[Any, int], Iterator[Any]]",
    output: Output,
    settings: "Settings",
) -> None:
    from streaming.cli.render.describe import DescribeScreen
    from streaming.live import PublishedState

    with PublishedState(settings) as live:
        body = found(live)
    if output is Output.JSON:
        import orjson

        typer.echo(orjson.dumps(body))
        return
    from streaming.cli.render.console import text_console

    text_console().print(DescribeScreen(body, lines, time.time_ns() // 1_000_000))
