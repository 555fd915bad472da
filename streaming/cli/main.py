"""Entry point of the `placer` command: puts the groups together, turns failures into exit codes.

Exit codes: 0 fine, 1 a difference or a rejection was found, 2 wrong usage or settings, 3 the
surroundings failed (no broker, no jars, no Java).
"""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from streaming.cli.commands import (
    api,
    apply,
    broker,
    check,
    conformance,
    console,
    demo,
    describe,
    dlq,
    doctor,
    explain,
    handover,
    history,
    kafka,
    listings,
    nearest,
    node,
    operate,
    package,
    place,
    plan,
    record,
    replay,
    run,
    send,
    simulate,
    status,
    stream,
    suggest,
    topics,
    watch,
)
from streaming.cli.extras import explain_missing
from streaming.errors import StreamingError


class PlacerGroup(TyperGroup):
    """Tells expected failures in one message, without a traceback. A package of an extra that is
    not installed is one of them."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what is expected to fail ends it with an exit code."""
        try:
            return super().invoke(ctx)
        except StreamingError as error:
            raise _end(error) from error
        except ModuleNotFoundError as error:
            missing = explain_missing(error)
            if missing is None:
                raise
            raise _end(missing) from error


def _end(error: StreamingError) -> typer.Exit:
    """Tell a failure; returns what ends the command."""
    for line in str(error).splitlines():
        typer.secho(f"placer: {line}", fg=typer.colors.RED, err=True)
    return typer.Exit(error.exit_code)


app = typer.Typer(
    name="placer",
    cls=PlacerGroup,
    help="Keeps the replicas of sharded streams where they belong: events in, placement "
    "decisions and moves out, through Kafka.",
    epilog="[bold]Try it[/bold] in three terminals, with no Kafka needed:\n\n"
    "  placer run --embedded    [dim]# prints its address when it is ready[/dim]\n\n"
    "  placer watch --bootstrap ADDRESS\n\n"
    "  placer send node n1 --location /z1/r1 --bootstrap ADDRESS\n\n"
    "Settings come from flags, PLACER_… variables and --config FILE; see placer run --help.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    # A traceback with local variables could show secrets.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"placer {version('placement-reconciler')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """Options of the command itself."""


run.register(app)
broker.register(app)
package.register(app)
app.add_typer(topics.app)
app.add_typer(stream.app)
apply.register(app)
app.add_typer(node.app)
app.add_typer(send.app)
watch.register(app)
operate.register(app)
handover.register(app)
status.register(app)
listings.register(app)
app.add_typer(describe.app)
app.add_typer(history.app)
suggest.register(app)
place.register(app)
check.register(app)
plan.register(app)
explain.register(app)
nearest.register(app)
app.add_typer(kafka.app)
simulate.register(app)
conformance.register(app)
demo.register(app)
api.register(app)
console.register(app)
app.add_typer(dlq.app)
doctor.register(app)
record.register(app)
replay.register(app)


def main() -> None:
    """The console script."""
    app(prog_name="placer")
