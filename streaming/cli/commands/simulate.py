"""`placer fleet FILE` and `placer executor`: simulate what surrounds a running reconciler.

A fleet registers and beats as a scenario says; an executor answers moves without copying.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.documents import EXIT_FINDINGS, read_text
from streaming.cli.options import connection_options, with_options
from streaming.cli.render.console import tell

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from streaming.settings import Settings
    from streaming.simulator import Executor, Scenario, World

# How soon the executor's command notices that its thread has failed.
LOOK_SECONDS = 0.5


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "fleet",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer demo --scenario deploy/examples/scenarios/zone-loss.yaml    "
        "[dim]# with a reconciler of its own[/dim]\n\n"
        "  placer fleet deploy/examples/scenarios/zone-loss.yaml --bootstrap 127.0.0.1:PORT\n\n"
        "  placer status --watch --bootstrap 127.0.0.1:PORT\n\n"
        "deploy/examples/scenarios has files to start from: rolling restart, rack and zone loss, "
        "flapping, relabelling, bad executors. Exit code 1: a claim of the scenario does not hold.",
    )(fleet)
    app.command(
        "executor",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer executor --delay-seconds 2\n\n"
        "  placer fleet FILE --no-executor    [dim]# in another terminal: nodes to move to[/dim]",
    )(executor)


@with_options(settings=connection_options)
def fleet(
    settings: "Settings",
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Scenario file in YAML; - reads stdin.")
    ],
    keep: Annotated[
        bool,
        typer.Option(
            "--keep/--leave",
            help="After the last step: keep sending heartbeats until Ctrl-C, or fall silent.",
        ),
    ] = True,
    with_executor: Annotated[
        bool,
        typer.Option(
            "--executor/--no-executor",
            help="Carry out moves as the scenario says, or only send heartbeats.",
        ),
    ] = True,
) -> None:
    """Simulate a fleet on a running reconciler. Its nodes register and send heartbeats, its streams
    are created, the scenario of a file is played, and its claims are checked at the end."""
    from contextlib import nullcontext

    from streaming.brokers import Reachability
    from streaming.signals import stop_on_signals
    from streaming.simulator import (
        Executor,
        Fleet,
        LoadReporter,
        ScenarioRefused,
        ScenarioRun,
        StreamCreator,
        World,
        claim_lines,
        read_scenario,
    )

    scenario = read_scenario(read_text(file))
    if scenario.programs is not None:
        raise ScenarioRefused(
            f"programs are not simulated: play it with placer demo --scenario {file}"
        )
    address, options = settings.kafka.bootstrap_servers, settings.resolved_kafka_options()
    topics, nodes, world = settings.topics.prefix, scenario.fleet(), World()
    _tell_settings(scenario, file)
    shared: dict[str, Any] = {"options": options, "reachability": Reachability(address, tell)}
    with (
        stop_on_signals() as stop,
        _watch_topics(scenario, world, settings),
        Fleet(address, topics, nodes, scenario.heartbeat_seconds, **shared) as running,
        Executor(address, topics, scenario.executor, **shared, serves=running.can_serve)
        if with_executor
        else nullcontext() as acts,
        nullcontext()
        if scenario.loads is None
        else LoadReporter(address, topics, scenario.loads, running, world, **shared),
    ):
        create = StreamCreator(address, topics, options)
        found = ScenarioRun(scenario, running, world, create, typer.echo, stop).play()
        is_played = not stop.is_set()
        for line in claim_lines(scenario, found) if is_played else ():
            typer.echo(line)
        if keep and not stop.is_set():
            typer.echo("all steps are played; Ctrl-C ends the fleet")
            stop.wait()
        if acts is not None:
            _tell_moves(acts)
    if is_played and found:
        raise typer.Exit(EXIT_FINDINGS)


@with_options(settings=connection_options)
def executor(
    settings: "Settings",
    delay_seconds: Annotated[
        float, typer.Option("--delay-seconds", min=0, max=86_400, help="How long a move takes.")
    ] = 2.0,
) -> None:
    """Simulate the executor: accept each valid move, report it completed later, copy nothing."""
    from streaming.brokers import Reachability
    from streaming.signals import stop_on_signals
    from streaming.simulator import Executor, ExecutorBehaviour

    with (
        stop_on_signals() as stop,
        Executor(
            settings.kafka.bootstrap_servers,
            settings.topics.prefix,
            ExecutorBehaviour(delay_seconds=delay_seconds),
            options=settings.resolved_kafka_options(),
            reachability=Reachability(settings.kafka.bootstrap_servers, tell),
        ) as running,
    ):
        typer.echo("executor ready")
        # What failed in its thread is raised when it closes.
        while not stop.wait(LOOK_SECONDS) and running.running:
            pass


def _watch_topics(
    scenario: "Scenario", world: "World", settings: "Settings"
) -> "AbstractContextManager[object]":
    """Fill the world from the topics if the scenario needs it. Nodes that only send heartbeats need
    no right to read."""
    from contextlib import nullcontext

    from streaming.brokers import CommittedReader
    from streaming.simulator import WATCHED_TOPICS, Watcher

    if not scenario.streams and scenario.ends is None and scenario.loads is None:
        return nullcontext()
    address, options = settings.kafka.bootstrap_servers, settings.resolved_kafka_options()
    return Watcher(
        world, CommittedReader(address, settings.topics.prefix, WATCHED_TOPICS, options=options)
    )


def _tell_settings(scenario: "Scenario", file: str) -> None:
    """Which settings the reconciler has to have for the scenario's claims."""
    if scenario.flags:
        named = ", ".join(f"{name} {value}" for name, value in scenario.flags.items())
        typer.echo(f"its claims assume a reconciler with {named}")
        typer.echo(f"`placer demo --scenario {file}` runs it with such a reconciler")


def _tell_moves(acts: "Executor") -> None:
    moves = acts.moves
    ends = f"{moves.completed} completed, {moves.failed} failed, {moves.lost} never told"
    typer.echo(f"moves: {moves.accepted} accepted, {ends}, {moves.dropped} overtaken")
