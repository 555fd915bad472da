"""`placer run`: the reconciler itself, against a cluster or on a broker of its own."""

import os
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli.options import Bootstrap, Config, Prefix, enable_plugins
from streaming.cli.render.console import tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.settings import Settings
    from streaming.spark import StartingSession
    from streaming.standby import StandbyOptions


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "run",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer run --embedded    [dim]# with a broker of its own, everything "
        "temporary[/dim]\n\n"
        "  placer run --bootstrap kafka:9092 --checkpoint /var/lib/placer\n\n"
        "  placer run --config placer.yaml --ha    [dim]# one of two or more equal ones[/dim]\n\n"
        "  PLACER_LIVENESS__DEAD_AFTER_SECONDS=30 placer run --config placer.yaml\n\n"
        "  placer run --config placer.yaml --print-config\n\n"
        "A flag overrides a PLACER_… variable, which overrides the file, which overrides "
        "the default. deploy/placer.yaml lists all settings.",
    )(run)


_STOPPING = "placer: stopping after the current batch; Ctrl-C again stops at once"

Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR|URI",
        help="Scratch directory for Spark; needed without --embedded. On a cluster a URI.",
    ),
]
Embedded = Annotated[
    bool, typer.Option("--embedded", help="Start a broker on this machine and create the topics.")
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="With --embedded: keep the broker's data here. [dim]default: temporary[/dim]",
        show_default=False,
    ),
]
PrintConfig = Annotated[
    bool,
    typer.Option("--print-config", help="Print the settings in force, secrets masked, and end."),
]
Cell = Annotated[str | None, typer.Option("--cell", help="Name of this reconciler.")]
SuspectAfter = Annotated[
    float | None,
    typer.Option("--suspect-after-seconds", help="Silence until a node receives no new replicas."),
]
DeadAfter = Annotated[
    float | None,
    typer.Option(
        "--dead-after-seconds", help="Silence until a node's replicas are rebuilt elsewhere."
    ),
]
CompletionOption = Annotated[
    str | None,
    typer.Option("--completion", metavar="acked|immediate", help="When a move counts as done."),
]
AcceptGap = Annotated[
    bool,
    typer.Option(
        "--accept-gap",
        help="Start even if retention has deleted input before it was read; the log names the "
        "lost offsets.",
    ),
]
Ha = Annotated[
    bool,
    typer.Option("--ha", help="Be active if nobody else is, else stand by and take over in time."),
]
StandbyOption = Annotated[
    bool,
    typer.Option("--standby", help="Stand by behind the active one: as --ha, but never first."),
]
AcceptSettings = Annotated[
    bool,
    typer.Option(
        "--accept-settings",
        help="With --ha or --standby: stand by although the active one decides by other settings; "
        "after a take-over these hold.",
    ),
]
MoveDeadline = Annotated[
    float | None, typer.Option("--move-deadline-seconds", help="Time until a move expires.")
]


def run(
    bootstrap: Bootstrap = None,
    checkpoint: Checkpoint = None,
    embedded: Embedded = False,
    data_dir: DataDir = None,
    config: Config = None,
    print_config: PrintConfig = False,
    prefix: Prefix = None,
    cell: Cell = None,
    suspect_after_seconds: SuspectAfter = None,
    dead_after_seconds: DeadAfter = None,
    completion: CompletionOption = None,
    move_deadline_seconds: MoveDeadline = None,
    accept_gap: AcceptGap = False,
    ha: Ha = False,
    standby: StandbyOption = False,
    accept_settings: AcceptSettings = False,
) -> None:
    """Run the reconciler until Ctrl-C.

    Prints one line with the word ready when the first event can be taken.

    Ctrl-C or SIGTERM stops it between two batches, a second Ctrl-C at once.
    """
    from streaming.settings import load_settings

    if embedded and (ha or standby):
        raise typer.BadParameter("--embedded runs one process on a broker of its own: no --ha")
    if accept_settings and not (ha or standby):
        raise typer.BadParameter("--accept-settings needs --ha or --standby")
    if embedded and bootstrap is not None:
        raise typer.BadParameter("--embedded brings its own broker; leave out --bootstrap")
    if data_dir is not None and not embedded:
        raise typer.BadParameter("--data-dir needs --embedded")
    settings = load_settings(
        config,
        {
            "kafka.bootstrap_servers": bootstrap,
            "checkpoint": checkpoint,
            "topics.prefix": prefix,
            "cell": cell,
            "liveness.suspect_after_seconds": suspect_after_seconds,
            "liveness.dead_after_seconds": dead_after_seconds,
            "moves.completion": completion,
            "moves.deadline_seconds": move_deadline_seconds,
        },
    )
    if print_config:
        typer.echo(settings.render(), nl=False)
        return
    from streaming.observability import configure_logging

    configure_logging(settings.log.level, settings.log.format)
    enable_plugins(settings.policy.plugins)
    if settings.checkpoint is None and not embedded:
        raise typer.BadParameter("name a scratch directory: --checkpoint DIR")
    how = None
    if ha or standby:
        from streaming.standby import StandbyOptions

        how = StandbyOptions(behind=standby, accept_settings=accept_settings)
    raise typer.Exit(_run(settings, embedded, data_dir, accept_gap, how))


def _run(
    settings: "Settings",
    embedded: bool,
    data_dir: Path | None,
    accept_gap: bool,
    standby: "StandbyOptions | None",
) -> int:
    from streaming.signals import EXIT_INTERRUPTED, stop_on_signals
    from streaming.spark import start_session

    # A log in JSON is for programs: they have READY and STOPPED.
    tells = settings.log.format == "text"
    say = tell if tells else _discard
    try:
        with ExitStack() as owned:
            stop = owned.enter_context(stop_on_signals(_STOPPING if tells else None))
            if embedded and settings.checkpoint is None:
                scratch = owned.enter_context(_temporary_scratch())
                settings = settings.model_copy(update={"checkpoint": scratch})
            say("starting the reconciler, which takes 5 to 10 s")
            session = start_session(settings)
            # After the thread that finishes it.
            owned.callback(session.abandon)
            if embedded:
                say("starting the broker")
                settings = _run_with_broker(settings, data_dir, owned)
            if stop.is_set():
                return 0
            return _reconcile(settings, session, stop, accept_gap, standby)
    except KeyboardInterrupt:
        # Waiting for the application's threads now could hang: its JVM has just been killed.
        os._exit(EXIT_INTERRUPTED)


def _discard(_: str) -> None:
    """Where nobody reads."""


def _run_with_broker(settings: "Settings", data_dir: Path | None, owned: ExitStack) -> "Settings":
    """Settings for a fresh broker with all topics; `owned` ends it and removes what is temporary.

    The broker dies with the thread that starts it, so this has to be the main thread.
    """
    from streaming.administration import apply_topics
    from streaming.runtime import EmbeddedBroker

    broker = owned.enter_context(EmbeddedBroker(data_dir=data_dir))
    apply_topics(broker.bootstrap_servers, settings.topics.prefix, 1)
    kafka = settings.kafka.model_copy(
        update={"bootstrap_servers": broker.bootstrap_servers, "options": {}}
    )
    return settings.model_copy(update={"kafka": kafka})


@contextmanager
def _temporary_scratch() -> "Iterator[Path]":
    from streaming.runtime import Scratch

    with Scratch("checkpoint") as made:
        yield made.path


def _reconcile(
    settings: "Settings",
    session: "StartingSession",
    stop: threading.Event,
    accept_gap: bool,
    standby: "StandbyOptions | None",
) -> int:
    """Run the application in a thread of its own, so that this one always hears signals.

    In the main thread PySpark would put its own handler in place of ours, and a call into the JVM
    would keep Ctrl-C waiting.
    """
    from streaming import app
    from streaming.signals import join_heeding_signals

    ended: list[int | BaseException] = []

    def on_ready() -> None:
        address = settings.kafka.bootstrap_servers
        typer.echo(
            f"placer ready: cell {settings.cell} on {address}, try: "
            f"placer send node n1 --location /z1/r1 --bootstrap {address}"
            + _prefix_flag(settings.topics.prefix)
        )

    def on_standby(behind: str) -> None:
        typer.echo(f"placer standing by: cell {settings.cell}, {behind}")

    def run_application() -> None:
        try:
            done = app.run(
                settings,
                session,
                on_ready=on_ready,
                stop=stop,
                accept_gap=accept_gap,
                standby=standby,
                on_standby=on_standby,
            )
            ended.append(done)
        except BaseException as error:  # noqa: BLE001 - raised again below, in the main thread
            ended.append(error)

    thread = threading.Thread(target=run_application, name="reconciler", daemon=True)
    thread.start()
    join_heeding_signals(thread)
    outcome = ended[0]
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _prefix_flag(prefix: str) -> str:
    from schemas.topics import DEFAULT_PREFIX

    return "" if prefix == DEFAULT_PREFIX else f" --prefix {prefix}"
