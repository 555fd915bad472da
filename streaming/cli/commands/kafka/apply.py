"""`placer kafka apply`: carries a saved plan out on a running cluster."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placement.wording import format_bytes, format_count
from streaming.cli.commands.kafka.group import app
from streaming.cli.options import Bootstrap, Config, Output, load_connection, parse_rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.kafka_bridge import Direction, Executor, Outcome, ReassignmentPlan
    from streaming.offline import SavedPlan

# What was planned did not come about, or the cluster is not as it was planned on.
EXIT_INCOMPLETE = 1


@app.command(
    epilog="[bold]Examples[/bold]\n\n"
    "  placer plan cluster.yaml --until-balanced --save plan.json\n\n"
    "  placer kafka apply plan.json --bootstrap kafka:9092 --throttle 50MB --dry-run\n\n"
    "  placer kafka apply plan.json --bootstrap kafka:9092 --throttle 50MB\n\n"
    "  placer kafka apply plan.json --bootstrap kafka:9092 --rollback\n\n"
    "Ctrl-C calls the copies of the wave at hand off and takes the throttles back; after it, and "
    "after a crash, the same command goes on, and --rollback goes back. PLAN.journal beside the "
    "plan says how far it is: keep it until you are sure. Exit code 1: the cluster is not as it "
    "was planned on (nothing is changed), or something did not come about; 2: the plan cannot be "
    "read; 3: the brokers do not answer or do not allow it; 130: stopped.",
)
def apply(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="A plan that placer plan --save has written.")
    ],
    bootstrap: Bootstrap = None,
    throttle: Annotated[
        str | None,
        typer.Option(
            "--throttle",
            metavar="RATE",
            help="Bytes a second that a broker's copies may take, in and out: 50MB. A rate that a "
            "broker has already is kept. [dim]default: no throttle[/dim]",
            show_default=False,
        ),
    ] = None,
    rollback: Annotated[
        bool,
        typer.Option(
            "--rollback",
            help="Go back: call running copies off and give every partition the list it had.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Look at the cluster and say what would be done."),
    ] = False,
    output: Annotated[
        Output,
        typer.Option("--output", help="text for people; json: how it ended, on one line."),
    ] = Output.TEXT,
    config: Config = None,
) -> None:
    """Carry a saved plan out on a running Kafka cluster: waves, throttles, elections, a check."""
    from streaming.cli.render.apply import ApplyScreen
    from streaming.kafka_bridge import Direction, Executor, JournalFile, KafkaAdmin
    from streaming.signals import EXIT_INTERRUPTED, stop_on_signals

    rate = parse_rate(throttle, "--throttle")
    saved, waves = _load(plan)
    direction = Direction.BACK if rollback else Direction.FORWARD
    settings = load_connection(config, bootstrap, None)
    store = JournalFile(plan.with_name(f"{plan.name}.journal"))
    stopping = "stopping: the copies of this wave are called off"
    with (
        _lock(plan),
        KafkaAdmin(settings.kafka.bootstrap_servers, settings.resolved_kafka_options()) as admin,
        stop_on_signals(stopping) as stop,
        ApplyScreen(stop) as screen,
    ):
        executor = Executor(admin, waves, store, screen, rate)
        _check(executor, saved, direction, waves, output if dry_run else None)
        if dry_run:
            return
        outcome = executor.run(direction)
    _show(outcome, waves, direction, output)
    if outcome.stopped:
        raise typer.Exit(EXIT_INTERRUPTED)
    if not outcome.is_complete:
        raise typer.Exit(EXIT_INCOMPLETE)


def _load(plan: Path) -> "tuple[SavedPlan, ReassignmentPlan]":
    from streaming.cli.commands.kafka.saved_plan import reassignment_plan
    from streaming.offline import SavedPlanInvalid, load_plan

    try:
        saved = load_plan(str(plan))
        return saved, reassignment_plan(saved)
    except (OSError, SavedPlanInvalid) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise typer.BadParameter(f"{plan}: {said}", param_hint="PLAN") from error


@contextmanager
def _lock(plan: Path) -> Iterator[None]:
    """Hold the plan, so that no second command carries it out; a crash lets go of it."""
    with plan.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = f"{plan} is being carried out by another process: wait for it, or stop it"
            raise typer.BadParameter(message, param_hint="PLAN") from error
        yield


def _check(
    executor: "Executor",
    saved: "SavedPlan",
    direction: "Direction",
    waves: "ReassignmentPlan",
    shown: Output | None,
) -> None:
    """Refuse a cluster that is not as it was planned on; `shown`: print what would be done."""
    from streaming.cli.commands.kafka.saved_plan import find_changes
    from streaming.kafka_bridge import ApplyRefused

    anew = executor.begins_anew(direction)
    seen, journal = executor.check(direction)
    changes = find_changes(saved, seen) if anew else ()
    if changes:
        lines = [f"the cluster has changed since plan {saved.hash}; nothing was changed:"]
        lines += [f"  {change}" for change in changes[:_CHANGES_SHOWN_MAX]]
        if len(changes) > _CHANGES_SHOWN_MAX:
            lines.append(f"  and {len(changes) - _CHANGES_SHOWN_MAX} more")
        raise ApplyRefused("\n".join([*lines, "import the cluster and plan again"]))
    if shown is not None:
        _preview(waves, direction, seen, journal, shown)


# A screen of them says that the plan is an old one.
_CHANGES_SHOWN_MAX = 20


def _preview(
    plan: "ReassignmentPlan", direction: "Direction", seen: Any, journal: Any, output: Output
) -> None:
    """Print what each wave would do."""
    import orjson

    from streaming.kafka_bridge import Direction, copied_bytes, sort_wave

    back = direction is Direction.BACK
    first = journal.wave
    numbers = range(first, -1, -1) if back else range(first, len(plan.waves))
    rows: list[dict[str, Any]] = []
    for number in numbers:
        wave = plan.wave(number, direction)
        standing = sort_wave(wave, seen, journal.uids)
        left = {key: change for key, change in wave.items() if key not in standing.done}
        sizes = {key: seen.size_of(*key) or 0 for key in wave}
        rows.append(
            {
                "wave": number + 1,
                "partitions": len(left),
                "copies": sum(len(change.added) for change in left.values()),
                "bytes": copied_bytes(left, sizes),
            }
        )
    if output is Output.JSON:
        typer.echo(orjson.dumps({"plan": plan.hash, "direction": direction, "waves": rows}))
        return
    for row in rows:
        typer.echo(
            f"wave {row['wave']}: {format_count(row['partitions'], 'partition')}, "
            f"{format_count(row['copies'], 'copy', 'copies')}, {format_bytes(row['bytes'])}"
        )
    typer.echo(f"plan {plan.hash}: nothing was changed")


def _show(
    outcome: "Outcome", plan: "ReassignmentPlan", direction: "Direction", output: Output
) -> None:
    """Print how it ended."""
    import orjson

    from streaming.kafka_bridge import Direction, name_partition

    partitions = len(plan.partitions())
    if output is Output.JSON:
        typer.echo(orjson.dumps(_outcome_body(outcome, plan, direction)))
        return
    done = "rolled back" if direction is Direction.BACK else "carried out"
    if outcome.is_complete:
        many = format_count(partitions, "partition")
        typer.secho(f"plan {plan.hash} is {done}: {many} as recorded", fg=typer.colors.GREEN)
    for key, why in sorted(outcome.failures.items()):
        typer.secho(f"{name_partition(key)}: {why}", fg=typer.colors.RED, err=True)
    for sentence in outcome.left:
        typer.secho(sentence, fg=typer.colors.YELLOW, err=True)
    if not outcome.is_complete:
        typer.echo(
            f"plan {plan.hash} is not {done} to its end: the same command goes on, "
            f"{'without' if direction is Direction.BACK else 'with'} --rollback it goes "
            f"{'forward' if direction is Direction.BACK else 'back'}",
            err=True,
        )


def _outcome_body(
    outcome: "Outcome", plan: "ReassignmentPlan", direction: "Direction"
) -> "Mapping[str, Any]":
    return {
        "plan": plan.hash,
        "direction": direction,
        "complete": outcome.is_complete,
        "stopped": outcome.stopped,
        "partitions": len(plan.partitions()),
        "waves": len(plan.waves),
        "failures": [
            {"topic": topic, "partition": number, "reason": why}
            for (topic, number), why in sorted(outcome.failures.items())
        ],
        "left": outcome.left,
    }
