"""`placer executor`: carries moves out without copying anything, to try things out."""

from typing import Annotated

import typer

from streaming.cli.options import Bootstrap, Config, Prefix, connection
from streaming.cli.render.console import tell

# How soon the command notices that its thread has failed.
LOOK_SECONDS = 0.5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "executor",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer executor --delay-seconds 2\n\n"
        "  placer fleet FILE --no-executor    [dim]# in another terminal: nodes to move to[/dim]",
    )(executor)


def executor(
    delay_seconds: Annotated[
        float, typer.Option("--delay-seconds", min=0, max=86_400, help="How long a move takes.")
    ] = 2.0,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
) -> None:
    """Simulate the executor: acknowledge each move, report it completed later, copy nothing."""
    from streaming.brokers import Reachability
    from streaming.cli.signals import stop_on_signals
    from streaming.simulator import Conduct, Executor

    settings = connection(config, bootstrap, prefix)
    with (
        stop_on_signals() as stop,
        Executor(
            settings.kafka.bootstrap_servers,
            settings.topics.prefix,
            Conduct(delay_seconds=delay_seconds),
            options=settings.resolved_kafka_options(),
            reachability=Reachability(settings.kafka.bootstrap_servers, tell),
        ) as running,
    ):
        typer.echo("executor ready")
        # What failed in its thread is raised when it closes.
        while not stop.wait(LOOK_SECONDS) and running.running:
            pass
