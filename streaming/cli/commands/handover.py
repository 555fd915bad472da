"""`placer handover`: let a standby take over from the active reconciler, as before an upgrade."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli.options import Output, OutputOption, connection_options, with_options

if TYPE_CHECKING:
    from streaming.settings import Settings

# A take-over of a proven state takes a second or two; one that reads a million shards again, ten.
TIMEOUT_SECONDS = 60.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "handover",
        rich_help_panel="Operating",
        epilog="Exit code 3: there is no standby, or nobody has taken over in time.",
    )(handover)


@with_options(settings=connection_options)
def handover(
    settings: "Settings",
    reason: Annotated[
        str | None, typer.Option("--reason", help="Why, for people.", show_default=False)
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout-seconds", min=0.1, help="How long to wait.")
    ] = TIMEOUT_SECONDS,
    output: OutputOption = Output.TEXT,
) -> None:
    """Let a standby take over at once. The one that was active stands by (--ha) or ends."""
    from streaming.requests import hand_over

    done = hand_over(settings, reason, timeout)
    if output is Output.JSON:
        import orjson

        typer.echo(orjson.dumps(asdict(done)))
        return
    name = done.instance or "another process"
    typer.echo(
        f"{name} is active: writer epoch {done.before} -> {done.after}, "
        f"{done.seconds:.1f} s between their commits"
    )
