"""`placer broker`: a real Kafka broker on this machine, for trying things out."""

from pathlib import Path
from typing import Annotated

import typer

from streaming.errors import StreamingError

# How soon the command notices that the broker has died.
LOOK_SECONDS = 0.5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "broker",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer broker --port 9092\n\n"
        "  placer broker --port 9092 --data-dir ./kafka    [dim]# topics survive a restart[/dim]",
    )(broker)


def broker(
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=1,
            max=65_535,
            help="Port on 127.0.0.1. [dim]default: a free one[/dim]",
            show_default=False,
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            help="Keep the data here. [dim]default: temporary, removed at the end[/dim]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run a single Kafka broker on this machine until Ctrl-C.

    Prints its address on one line when clients can connect. It has no topics at first.
    """
    from streaming.runtime import EmbeddedBroker
    from streaming.signals import EXIT_INTERRUPTED, stop_on_signals

    try:
        with stop_on_signals() as stop, EmbeddedBroker(port, data_dir) as running:
            typer.echo(f"broker ready at {running.bootstrap_servers}")
            while not stop.wait(LOOK_SECONDS):
                if running.pid is None:
                    raise StreamingError(
                        "the broker process ended unexpectedly; start it again with: placer broker"
                    )
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
