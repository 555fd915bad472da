"""`placer explain`: why a replica is where it is, and how a refused stream could be placed.

With a cluster file it explains all streams, one, or one shard; with `--live STREAM[/SHARD]` the
published state, and why nothing moves.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.documents import (
    EXIT_DOCUMENT,
    answer_documents,
    assign,
    read_assignments,
)
from streaming.cli.options import (
    Bootstrap,
    Config,
    FailOn,
    FailOnOption,
    Output,
    OutputOption,
    PluginOption,
    Prefix,
    StrictOption,
    load_connection,
)
from streaming.cli.plan_options import Assigned

if TYPE_CHECKING:
    from streaming.offline import ExplainOptions, ExplainResult, ShardExplanation, StreamExplanation
    from streaming.settings import Settings

# Whole sentences for the first replicas; programs take --output json.
_LINES_SHOWN_MAX = 60


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "explain",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer explain cluster.yaml    [dim]# every stream; for refusals, what to add[/dim]\n\n"
        "  placer explain cluster.yaml orders/0\n\n"
        "  placer explain cluster.yaml orders --node n5    [dim]# why not n5?[/dim]\n\n"
        "  placer explain --live orders/0 --bootstrap 127.0.0.1:9092    "
        "[dim]# as it stands now[/dim]\n\n"
        "What is advised has been tried: the nodes were added and the stream placed again. "
        "Exit code 1: a stream was rejected, waits or lacks replicas; 2: a document is malformed, "
        "or has no such stream or node.",
    )(explain)


def explain(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Cluster file in YAML or JSON, - for stdin; with --live a stream.",
        ),
    ],
    stream: Annotated[
        str | None,
        typer.Argument(metavar="[STREAM[/SHARD]]", help="Only this stream, or this shard of it."),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="NODE", help="Explain why this node is used or not."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Explain the running state instead of a file.")
    ] = False,
    assignments: Assigned = None,
    output: OutputOption = Output.TEXT,
    fail_on: FailOnOption = None,
    strict: StrictOption = False,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
    _plugin: PluginOption = None,
) -> None:
    """Explain the placement of a cluster file: the funnel from candidates to the chosen node."""
    if live:
        if stream is not None or strict or fail_on is not None or assignments is not None:
            message = "--live reads no file: placer explain --live STREAM/SHARD, without "
            raise typer.BadParameter(f"{message}--strict, --fail-on and --assignments")
        _explain_live(
            _parse_options(file, node), output, load_connection(config, bootstrap, prefix)
        )
        return
    if any(each is not None for each in (bootstrap, prefix, config)):
        raise typer.BadParameter("--bootstrap, --prefix and --config need --live")
    from streaming.offline import ExplainResult, explain_streams

    wanted, assigned = _parse_options(stream, node), read_assignments(assignments)
    lost: list[str] = []

    def solve(document: Any) -> "ExplainResult":
        explanation = explain_streams(assign(document, assigned), wanted)
        if explanation.missing is not None:
            lost.append(explanation.missing)
        return explanation

    def is_failure(answer: "ExplainResult") -> bool:
        if fail_on is FailOn.NEVER:
            return False
        return answer.has_unanswered or (fail_on is FailOn.DEGRADED and answer.has_degraded)

    try:
        answer_documents(
            file,
            output,
            solve,
            ExplainResult.body,
            _show,
            is_failure,
            strict=strict,
            doing="explaining",
        )
    except typer.Exit:
        if lost:
            raise typer.Exit(EXIT_DOCUMENT) from None
        raise


def _parse_options(stream: str | None, node: str | None) -> "ExplainOptions":
    from streaming.offline import ExplainOptions

    name, slash, shard = (stream or "").partition("/")
    if slash and not shard.isdecimal():
        raise typer.BadParameter(f"expected STREAM or STREAM/SHARD, got {stream!r}")
    return ExplainOptions(name or None, int(shard) if slash else None, node)


def _show(console: Any, answer: "ExplainResult") -> None:
    from streaming.cli.render.console import Paragraph
    from streaming.cli.render.place import line_of

    if answer.missing is not None:
        console.print(Paragraph(answer.missing), style="red")
        return
    placed = answer.placed
    places = {id(decision): index for index, decision in enumerate(placed.decisions)}
    for position, each in enumerate(answer.streams):
        if position:
            console.print()
        decision = placed.answer(each.decision)
        line = line_of(placed.document, places[id(each.decision)], decision)
        show_stream(console, each, decision, line)


def show_stream(
    console: Any, each: "StreamExplanation", decision: dict[str, Any], line: int | None
) -> None:
    """A stream's heading, what was decided and why, what would help, and shard by shard what holds
    its replicas."""
    from streaming.cli.render.console import Paragraph
    from streaming.cli.render.place import show_advice

    console.print(_heading(each, decision, line))
    for kind in ("reasons", "warnings"):
        for reason in decision[kind]:
            console.print(Paragraph(f"  {_sentence(reason['message'])}"))
    show_advice(console, [advice.message for advice in each.advice])
    lines = [absent.reason for absent in each.unplaced]
    for shard in each.shards:
        lines += _lines(shard)
    for text in lines[:_LINES_SHOWN_MAX]:
        console.print(Paragraph(f"  {text}"))
    if len(lines) > _LINES_SHOWN_MAX:
        left = len(lines) - _LINES_SHOWN_MAX
        name = decision["stream"]
        console.print(f"  … and {left} more; ask for {name}/SHARD", style="dim")


def _heading(each: "StreamExplanation", decision: dict[str, Any], line: int | None) -> Any:
    """The stream and how it fares: its health where it stands somewhere, else what was decided."""
    from streaming.cli.render.check import HEALTH_STYLES
    from streaming.cli.render.place import heading

    if each.health is None:
        return heading(decision, line)
    from rich.text import Text

    name, health = decision["stream"], str(each.health)
    partly = f", {decision['outcome']}" if decision["outcome"] in ("partial", "waiting") else ""
    return Text.assemble((f"{name} ", "bold"), (health, HEALTH_STYLES[health]), partly)


def _lines(shard: "ShardExplanation") -> list[str]:
    """Write the sentences of one shard. A shard that has replicas already also gets its violations,
    its move, or why it has none."""
    reasons = [each.reason for each in shard.held]
    reasons += [] if shard.absent is None else [shard.absent.reason]
    if shard.health is None:
        return reasons
    epoch = "" if shard.epoch is None else f" at epoch {shard.epoch}"
    lines = [f"{shard.stream}/{shard.shard}{epoch} {shard.health}: {' '.join(shard.replicas)}"]
    lines += [f"  {each}" for each in reasons]
    for each in shard.violations:
        what = f"{each.rule} in {each.domain}" if each.domain else each.rule
        reason = _sentence(each.reason.message)
        lines.append(f"  {each.strength} {what}, {each.violation_class}: {reason}")
    move = shard.move
    if move is not None:
        ways = f"{move['remove'] or '-'} -> {move['add'] or '-'}"
        lines.append(f"  move {ways} is {move['state']}: {_sentence(move['reason']['message'])}")
    if shard.hold is not None:
        lines.append(f"  a running reconciler would hold repair back: {_sentence(shard.hold)}")
    if shard.violations and move is None:
        lines.append(f"  nothing moves: what is broken is {shard.violations[0].violation_class}.")
    elif shard.no_move_reason is not None:
        lines.append(f"  nothing moves: {_sentence(shard.no_move_reason)}")
    return lines


def _sentence(text: str) -> str:
    word = text.partition(" ")[0]
    begun = text[:1].upper() + text[1:] if word.isalpha() else text
    return begun + ("" if text.endswith(".") else ".")


def _explain_live(wanted: "ExplainOptions", output: Output, settings: "Settings") -> None:
    from streaming.cli.options import enable_plugins
    from streaming.cli.render.console import text_console
    from streaming.live import PublishedState, explain_live

    enable_plugins(settings.policy.plugins)
    with PublishedState(settings) as live:
        explained = explain_live(live, wanted.stream or "", wanted.shard, wanted.node)
    if output is Output.JSON:
        import orjson

        typer.echo(orjson.dumps(explained.body()))
        return
    show_stream(text_console(), explained.stream, explained.body(), None)
