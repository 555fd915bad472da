"""`placer stream …`: streams created, altered, dropped and shown, each with its answer.

A request is checked by the reconciler's own code before it is sent; then its decision is waited
for and shown.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.options import (
    Output,
    OutputOption,
    connection_options,
    enable_plugins,
    with_options,
)
from streaming.cli.requests import AnswerOptions, print_requests

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from placement.model import Decision
    from streaming.requests import StreamAnswer, StreamMessage, StreamRequests
    from streaming.settings import Settings

EXIT_UNANSWERED = 1
_ENDS = (
    "Exit code 1: it was refused, waits or lacks replicas, with the reasons; 2: the request is "
    "wrong or names what is not there, nothing was sent; 3: no decision in time."
)
_STYLES = {
    "placed": "green",
    "dropped": "green",
    "degraded": "yellow",
    "partial": "yellow",
    "waiting": "magenta",
    "rejected": "red",
    "refused": "red",
}

app = typer.Typer(
    name="stream",
    help="Create, alter, drop and show streams, and see what was decided.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The stream's name.")]


@dataclass(frozen=True, slots=True)
class Spec:
    """The options that say what a stream asks for."""

    shards: Annotated[
        int | None,
        typer.Option(
            "--shards",
            help="How many shards it has. [dim]default of a new stream: 1[/dim]",
            show_default=False,
        ),
    ] = None
    rf: Annotated[
        int | None,
        typer.Option(
            "--rf",
            help="Replication factor: copies of each shard. [dim]default of a new stream: 3[/dim]",
            show_default=False,
        ),
    ] = None
    policies: Annotated[
        str | None,
        typer.Option(
            "--policies",
            help="A placement_policies string: 'node=exclusive;shard=balanced'.",
            show_default=False,
        ),
    ] = None
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="YAML|JSON",
            help="A whole policy: '{strategy: spread, within: \\[/az1]}'.",
            show_default=False,
        ),
    ] = None
    quorum: Annotated[
        str | None,
        typer.Option(
            "--quorum",
            metavar="majority|one|N",
            help="Quorum: how many live copies a shard needs.",
            show_default=False,
        ),
    ] = None

    def fields(self) -> dict[str, Any]:
        """Return the given options as the fields of a request."""
        if self.policies is not None and self.policy is not None:
            raise typer.BadParameter("--policies and --policy exclude each other")
        quorum: str | int | None = self.quorum
        if quorum is not None and self.quorum and self.quorum.isdecimal():
            quorum = int(self.quorum)
        given = {
            "shards": self.shards,
            "replication_factor": self.rf,
            "placement_policies": self.policies,
            "policy": parse_mapping(self.policy),
            "quorum": quorum,
        }
        return {name: value for name, value in given.items() if value is not None}


@app.command(
    epilog="[bold]Examples[/bold]\n\n"
    "  placer stream create orders --shards 4 --rf 3\n\n"
    "  placer stream create clicks --rf 2 --policy '{strategy: spread, within: \\[/eu]}'\n\n"
    f"{_ENDS}",
)
@with_options(spec=Spec, waiting=AnswerOptions, settings=connection_options)
def create(name: Name, spec: Spec, waiting: AnswerOptions, settings: "Settings") -> None:
    """Ask for the placement of a new stream, and show what was decided."""
    fields = spec.fields()
    fields.setdefault("shards", 1)
    if "replication" not in fields.get("policy", {}):
        fields.setdefault("replication_factor", 3)
    send_and_show(settings, [read_known_streams(settings).make_create(name, fields)], waiting)


@app.command(
    epilog="[bold]Examples[/bold]\n\n"
    "  placer stream alter orders --rf 5\n\n"
    "  placer stream alter orders --policies 'shard=exclusive'\n\n" + _ENDS
)
@with_options(spec=Spec, waiting=AnswerOptions, settings=connection_options)
def alter(name: Name, spec: Spec, waiting: AnswerOptions, settings: "Settings") -> None:
    """Change a stream; what is not given stays as it is."""
    fields = spec.fields()
    if not fields:
        raise typer.BadParameter("say what is to change: --shards, --rf, --policy …")
    send_and_show(settings, [read_known_streams(settings).make_alter(name, fields)], waiting)


@app.command(epilog=_ENDS)
@with_options(waiting=AnswerOptions, settings=connection_options)
def drop(name: Name, waiting: AnswerOptions, settings: "Settings") -> None:
    """Drop a stream: its moves are cancelled, its assignments are taken away."""
    send_and_show(settings, [read_known_streams(settings).make_drop(name)], waiting)


@app.command(
    epilog="Exit code 1: it waits, lacks replicas, or its last change was refused; 2: there is no "
    "such stream."
)
@with_options(settings=connection_options)
def show(name: Name, settings: "Settings", output: OutputOption = Output.TEXT) -> None:
    """Show what a stream asks for, what was decided and why, and its health now."""
    from streaming.live import PublishedState
    from streaming.offline import CheckOptions, Document, check_cluster
    from streaming.requests import StreamRequests, is_satisfied

    enable_plugins(settings.policy.plugins)
    with PublishedState(settings) as live:
        decision = StreamRequests(live, settings).get(name)
        checked = check_cluster(Document(live.cluster()), CheckOptions())
        violations = [each for each in live.violations if each.stream == name]
        body = live.latest["decisions.v1"][name]
    health = checked.diagnosis.streams.get(name)
    broken = [f"{v.rule} in {v.stream}/{v.shard}: {v.reason.message}" for v in violations]
    if output is Output.JSON:
        _print_json({**body, "health": health, "violations": len(violations)})
    else:
        from streaming.cli.render.console import text_console

        console = text_console()
        print_decision(console, decision)
        console.print(f"  health: {health or 'nothing is placed'}")
        _print_lines(console, "  ", "violation", broken)
        _print_spec(console, decision)
    if not is_satisfied(decision):
        raise typer.Exit(EXIT_UNANSWERED)


def read_known_streams(settings: "Settings") -> "StreamRequests":
    """The streams of the running reconciler; the strategies of one's own that the settings name
    are known, too."""
    from streaming.requests import read_streams

    enable_plugins(settings.policy.plugins)
    return read_streams(settings)


def send_and_show(
    settings: "Settings", messages: "Sequence[StreamMessage]", waiting: AnswerOptions
) -> None:
    """Send requests, show their answers as they come, and end the command as they say."""
    from streaming.requests import send_stream_requests, send_stream_requests_and_wait

    if waiting.no_wait:
        names = [message.stream for message in messages]
        sent = send_stream_requests(settings, messages)
        print_requests(settings, zip(names, sent, strict=True), waiting.output)
        return
    fine = True
    for answer in send_stream_requests_and_wait(settings, messages, waiting.timeout):
        fine &= answer.is_satisfied
        _print_answer(answer, waiting.output)
    if not fine:
        raise typer.Exit(EXIT_UNANSWERED)


def parse_mapping(text: str | None) -> dict[str, Any] | None:
    """The value of --policy, YAML or JSON; a usage error where it is no mapping."""
    import yaml

    try:
        value = None if text is None else yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise typer.BadParameter(f"--policy: not YAML: {error}") from error
    if text is not None and not isinstance(value, dict):
        raise typer.BadParameter(f"--policy: expected a mapping, got {text!r}")
    return value


def _print_answer(answer: "StreamAnswer", output: Output) -> None:
    from streaming.cli.render.console import text_console

    decision = answer.decision
    if output is Output.JSON:
        _print_json(answer.to_json())
    elif decision is not None:
        print_decision(text_console(), decision)
    else:
        assert answer.refusal is not None
        code, message = answer.refusal
        console = text_console()
        _print_heading(console, answer.stream, "refused", "")
        _print_lines(console, "  ", code, [message])


def _print_json(body: Any) -> None:
    import orjson

    typer.echo(orjson.dumps(body))


def print_decision(console: "Console", decision: "Decision") -> None:
    """The outcome with its counts and reasons; what was refused of an alteration says so."""
    counts = ""
    if decision.outcome not in ("rejected", "dropped"):
        counts = f", {decision.shards_placed} of {decision.spec.shards} shards whole"
    if decision.replicas_missing:
        counts += f", replicas missing: {decision.replicas_missing}"
    _print_heading(console, decision.stream, str(decision.outcome), counts)
    if decision.requested is not None:
        console.print("  the change is refused; the stream stays as it was:", style="red")
    for reason in decision.reasons:
        _print_lines(console, "  ", reason.code, [reason.message])
    for warning in decision.warnings:
        _print_lines(console, "  warning ", warning.code, [warning.message])


def _print_heading(console: "Console", stream: str, outcome: str, more: str) -> None:
    from rich.text import Text

    console.print(Text.assemble((f"{stream} ", "bold"), (outcome, _STYLES[outcome]), more))


def _print_lines(console: "Console", indent: str, word: str, lines: "Iterable[str]") -> None:
    from streaming.cli.render.console import Paragraph

    for line in lines:
        console.print(Paragraph(f"{indent}{word} {line}"))


def _print_spec(console: "Console", decision: "Decision") -> None:
    """The options of the stream that are in force, and those of a refused change, a line each."""
    from streaming.requests import spec_fields

    for head, spec in (("asks for", decision.spec), ("refused", decision.requested)):
        if spec is not None:
            console.print(f"  {head}:")
            for name, value in spec_fields(spec).items():
                console.print(f"     {name}: {value}", markup=False)
