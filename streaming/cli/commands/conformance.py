"""`placer conformance`: plays the contract with executors to one, and judges what it says."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.documents import EXIT_FINDINGS
from streaming.cli.options import (
    Bootstrap,
    Config,
    Output,
    OutputOption,
    Prefix,
    load_connection,
    with_options,
)
from streaming.cli.render.console import Table, tell, text_console

if TYPE_CHECKING:
    from streaming.conformance import Examination, Findings
    from streaming.settings import Settings

_STYLES = {"held": "green", "broken": "red", "not tried": "dim"}
NODES = "node-a,node-b,node-c"
Holds = Annotated[
    str,
    typer.Option(
        "--holds",
        metavar="COMMAND",
        help="A command that gets STREAM SHARD NODE, and ends with 0 where the node holds a "
        "complete replica, else with 1. Without it, clauses about data are not tried.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "conformance",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer conformance -- python my_executor.py    [dim]# on a broker of its own[/dim]\n\n"
        "  placer conformance --holds './holds.sh' --junit conformance.xml -- ./my-executor\n\n"
        "  placer conformance --list    [dim]# what --only may name[/dim]\n\n"
        "  placer conformance --bootstrap kafka:9092 --only replace --only add -- ./executor\n\n"
        "The executor finds the brokers in KAFKA_BOOTSTRAP and the topics' prefix in TOPIC_PREFIX. "
        "Where COPY_SECONDS is set, its copies are to take that long, and to report progress; "
        "where COPY_FAILS is set, they are to fail. What it does not heed is not tried.\n\n"
        "Exit code 0: no clause is broken; 1: one is; 3: the executor cannot be run.",
    )(conformance)


def pace_options(
    patience_seconds: Annotated[
        float, typer.Option("--patience-seconds", min=0.1, help="How long an answer may take.")
    ] = 10.0,
    copy_seconds: Annotated[
        float, typer.Option("--copy-seconds", min=0.5, help="How long slow copies are to take.")
    ] = 3.0,
) -> dict[str, float]:
    """Gather the times of an examination, for `with_options`."""
    return {"patience_seconds": patience_seconds, "copy_seconds": copy_seconds}


@with_options(pace=pace_options)
def conformance(
    pace: dict[str, float],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="The executor's command, behind --."),
    ] = None,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
    nodes: Annotated[
        str, typer.Option("--nodes", help="Three node ids that the executor acts for.")
    ] = NODES,
    holds: Holds = "",
    leader_moves: Annotated[
        bool, typer.Option("--leader-moves", help="Try moves of kind leader too.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="SCENARIO", help="Play this scenario alone. Repeatable."),
    ] = None,
    lists: Annotated[
        bool, typer.Option("--list", help="Show the scenarios and their clauses; run nothing.")
    ] = False,
    junit: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE", help="Write JUnit XML too.", show_default=False),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log",
            metavar="FILE",
            help="Where the executor's output goes. [dim]default: nowhere[/dim]",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Examine an executor: play moves and assignments to it, and judge its acknowledgements.

    Without --bootstrap and --config a broker is started for it. The topics have a prefix of their
    own; on a broker that stays, remove them afterwards.
    """
    from streaming.conformance import examine
    from streaming.runtime import Scratch

    if lists:
        _list(output)
        return
    if not command:
        message = "name the executor's command behind --, or give --list"
        raise typer.BadParameter(message, param_hint="COMMAND")
    with ExitStack() as opened:
        scratch = opened.enter_context(Scratch("conformance"))
        settings = _connect(opened, config, bootstrap, prefix)
        asked = _ask(
            settings,
            command,
            log or scratch.path / "executor.log",
            nodes,
            probe=holds,
            has_leader_moves=leader_moves,
            only=frozenset(only or ()),
            **pace,
        )
        findings = examine(asked, lambda name: tell(f"plays {name}"))
    _report(findings, junit, output)
    if findings.broken:
        raise typer.Exit(EXIT_FINDINGS)


def _connect(
    opened: ExitStack, config: Path | None, bootstrap: str | None, prefix: str | None
) -> "Settings":
    """Read the settings; without an address a broker is started."""
    import uuid

    from streaming.runtime import EmbeddedBroker

    if bootstrap is None and config is None:
        bootstrap = opened.enter_context(EmbeddedBroker()).bootstrap_servers
    return load_connection(config, bootstrap, prefix or f"conformance-{uuid.uuid4().hex[:8]}.")


def _ask(
    settings: "Settings", command: list[str], log: Path, nodes: str, **how: Any
) -> "Examination":
    """Gather what is asked for. Raises BadParameter."""
    from streaming.conformance import Examination

    names = [name for name in nodes.split(",") if name]
    if len({*names}) != NODES.count(",") + 1 or len(names) != len({*names}):
        raise typer.BadParameter(f"'{nodes}' are not three different ids", param_hint="--nodes")
    first, second, third = names
    return Examination(
        command,
        settings.kafka.bootstrap_servers,
        settings.topics.prefix,
        log,
        nodes=(first, second, third),
        options=settings.resolved_kafka_options(),
        **how,
    )


def _list(output: Output) -> None:
    """Show what there is for `--only`, in the order in which it is played."""
    from streaming.conformance import SCENARIOS

    if output is Output.JSON:
        import json

        listed = [
            {"scenario": each.name, "says": each.says, "clauses": [*each.clauses]}
            for each in SCENARIOS
        ]
        typer.echo(json.dumps({"scenarios": listed}))
    else:
        rows = [(each.name, each.says, ", ".join(each.clauses)) for each in SCENARIOS]
        text_console().print(Table(("scenario", "plays", "clauses"), rows))


def _report(findings: "Findings", junit: Path | None, output: Output) -> None:
    from streaming.conformance import to_json, to_junit

    if junit is not None:
        junit.write_bytes(to_junit(findings))
    if output is Output.JSON:
        import json

        typer.echo(json.dumps(to_json(findings)))
    else:
        _show(findings)


def _show(findings: "Findings") -> None:
    import orjson
    from rich.text import Text

    from streaming.conformance import CLAUSES, Verdict

    verdicts = {clause: findings.verdict(clause) for clause in CLAUSES}
    rows = [
        (clause, Text(verdicts[clause], _STYLES[verdicts[clause]]), says, findings.why(clause))
        for clause, says in CLAUSES.items()
    ]
    console = text_console()
    console.print(Table(("clause", "verdict", "obligation", "why"), rows))
    for found in findings.evidence:
        if found.verdict is Verdict.BROKEN:
            console.print(f"\n{found.clause}: {found.why}")
            for record in found.records:
                console.print(f"  {orjson.dumps(record).decode()}", markup=False)
    counts = {word: [*verdicts.values()].count(word) for word in Verdict}
    console.print("\n" + ", ".join(f"{count} {word}" for word, count in counts.items()))
