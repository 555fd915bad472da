"""`placer fleet FILE`: simulated nodes and an executor play a scenario, to try things out."""

from typing import Annotated

import typer

from streaming.cli.answers import File, read
from streaming.cli.options import Bootstrap, Config, Prefix, connection


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "fleet",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer run --embedded    [dim]# in another terminal; it prints its address[/dim]\n\n"
        "  placer fleet deploy/examples/scenarios/zone-loss.yaml --bootstrap 127.0.0.1:PORT\n\n"
        "  placer status --watch --bootstrap 127.0.0.1:PORT\n\n"
        "deploy/examples/scenarios has files to start from: rolling restart, rack and zone loss, "
        "flapping, relabelling, bad executors.",
    )(fleet)


def fleet(
    file: File,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep/--leave", help="After the last step: keep beating until Ctrl-C, or fall silent."
        ),
    ] = True,
    executor: Annotated[
        bool, typer.Option(help="Carry moves out, as the scenario says; else only beat.")
    ] = True,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
) -> None:
    """Simulate a fleet: nodes register, beat, and live through the scenario of a file."""
    from contextlib import nullcontext

    from streaming.cli.signals import stop_on_signals
    from streaming.executor import Executor
    from streaming.fleet import Fleet
    from streaming.scenario import Player, read_scenario

    scenario = read_scenario(read(file))
    settings = connection(config, bootstrap, prefix)
    address, options = settings.kafka.bootstrap_servers, settings.resolved_kafka_options()
    topics, nodes = settings.topics.prefix, scenario.fleet()
    carries_out = (
        Executor(address, topics, scenario.executor, options=options) if executor else nullcontext()
    )
    with (
        stop_on_signals() as stop,
        Fleet(address, topics, nodes, scenario.heartbeat_seconds, options=options) as running,
        carries_out as acts,
    ):
        typer.echo(f"{scenario.name}: {len(nodes)} nodes beat")
        Player(running, typer.echo, stop).play(scenario)
        if keep and not stop.is_set():
            typer.echo("all steps are played; Ctrl-C ends the fleet")
            stop.wait()
        if acts is not None:
            ends = f"{acts.completed} completed, {acts.failed} failed, {acts.lost} never told"
            typer.echo(f"moves: {acts.accepted} accepted, {ends}, {acts.dropped} overtaken")
