"""`placer explain FILE [STREAM[/SHARD]]`: why a replica is there, why a node is not used, and what
would let a refused stream be placed. `placer explain --live STREAM[/SHARD]` asks the same of a
running reconciler's topics, and why nothing moves."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.answers import EXIT_DOCUMENT, answer_documents
from streaming.cli.console import text_console
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
    connection,
)

if TYPE_CHECKING:
    from streaming.live_explain import LiveExplanation, LiveShard
    from streaming.offline_explain import Explained, Explanation, Wanted
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
        str | None, typer.Option("--node", metavar="NODE", help="Why this node is used, or not.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Explain the running state instead of a file.")
    ] = False,
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
        if stream is not None or strict or fail_on is not None:
            message = "--live reads no file: placer explain --live STREAM/SHARD, without --strict "
            raise typer.BadParameter(f"{message}and --fail-on")
        _explain_live(_wanted(file, node), output, connection(config, bootstrap, prefix))
        return
    if any(each is not None for each in (bootstrap, prefix, config)):
        raise typer.BadParameter("--bootstrap, --prefix and --config belong to --live")
    from streaming.offline_explain import Explanation, explained

    wanted = _wanted(stream, node)
    lost: list[str] = []

    def solve(document: Any) -> "Explanation":
        explanation = explained(document, wanted)
        if explanation.missing is not None:
            lost.append(explanation.missing)
        return explanation

    def found(answer: "Explanation") -> bool:
        if fail_on is FailOn.NEVER:
            return False
        degraded = fail_on is FailOn.DEGRADED and any(
            getattr(each.decision, "outcome", None) == "degraded" for each in answer.streams
        )
        return answer.unanswered or degraded

    try:
        answer_documents(file, output, solve, Explanation.body, _show, found, strict=strict)
    except typer.Exit:
        if lost:
            raise typer.Exit(EXIT_DOCUMENT) from None
        raise


def _wanted(stream: str | None, node: str | None) -> "Wanted":
    from streaming.offline_explain import Wanted

    name, slash, shard = (stream or "").partition("/")
    if slash and not shard.isdecimal():
        raise typer.BadParameter(f"expected STREAM or STREAM/SHARD, got {stream!r}")
    return Wanted(name or None, int(shard) if slash else None, node)


def _show(console: Any, answer: "Explanation") -> None:
    if answer.missing is not None:
        console.print(answer.missing, style="red")
        return
    from streaming.cli.place import line_of

    placed = answer.placed
    places = {id(decision): index for index, decision in enumerate(placed.decisions)}
    for position, each in enumerate(answer.streams):
        if position:
            console.print()
        decision = placed.answer(each.decision)
        line = line_of(placed.document, places[id(each.decision)], decision)
        _show_stream(console, each, decision, line)


def _show_stream(
    console: Any, each: "Explained", decision: dict[str, Any], line: int | None
) -> None:
    from streaming.cli.place import heading

    console.print(heading(decision, line))
    for kind in ("reasons", "warnings"):
        for reason in decision[kind]:
            console.print(f"  {_sentence(reason['message'])}", markup=False)
    if each.advice:
        console.print("  What would let it be placed (each has been tried):")
        for advice in each.advice:
            console.print(f"    - {advice.message}", markup=False)
    lines = _lines(each)
    for text in lines[:_LINES_SHOWN_MAX]:
        console.print(f"  {text}", markup=False)
    if len(lines) > _LINES_SHOWN_MAX:
        left = len(lines) - _LINES_SHOWN_MAX
        console.print(f"  … and {left} more; ask for {each.decision.stream}/SHARD", style="dim")


def _lines(each: "Explained") -> list[str]:
    """The sentences of all replicas, by shard."""
    held = [(row.shard, 0, row.reason) for row in each.held]
    absent = [(row.shard, 1, row.reason) for row in each.absent]
    return [reason for _, _, reason in sorted([*held, *absent], key=lambda row: row[:2])]


def _sentence(text: str) -> str:
    word = text.partition(" ")[0]
    begun = text[:1].upper() + text[1:] if word.isalpha() else text
    return begun + ("" if text.endswith(".") else ".")


def _explain_live(wanted: "Wanted", output: Output, settings: "Settings") -> None:
    from streaming.cli.options import enable_plugins
    from streaming.live import Live
    from streaming.live_explain import explained_live

    enable_plugins(settings.policy.plugins)
    with Live(settings) as live:
        found = explained_live(live, wanted.stream or "", wanted.shard, wanted.node)
    if output is Output.JSON:
        import orjson

        typer.echo(orjson.dumps(found.body()))
        return
    _show_live(text_console(), found)


def _show_live(console: Any, found: "LiveExplanation") -> None:
    from streaming.cli.place import heading

    body = found.body()
    console.print(heading(body, None))
    for reason in (*body["reasons"], *body["warnings"]):
        console.print(f"  {_sentence(reason['message'])}", markup=False)
    for shard in found.shards[:_LINES_SHOWN_MAX]:
        for text in _live_lines(shard):
            console.print(f"  {text}", markup=False)
    left = len(found.shards) - _LINES_SHOWN_MAX
    if left > 0:
        console.print(f"  … and {left} more shards; ask for {body['stream']}/SHARD", style="dim")


def _live_lines(shard: "LiveShard") -> list[str]:
    """The sentences of one shard: its replicas, its move, what is broken, why it stands still."""
    a, body = shard.assignment, shard.body()
    lines = [f"{a.stream}/{a.shard} at epoch {a.epoch}: {' '.join(a.replicas)}"]
    lines += [f"  {each.reason}" for each in shard.held]
    lines += [] if shard.absent is None else [f"  {shard.absent.reason}"]
    move = body["move"]
    if move is not None:
        ways = f"{move['remove'] or '-'} -> {move['add'] or '-'}"
        lines.append(f"  move {ways} is {move['state']}: {_sentence(move['reason']['message'])}")
    for each in body["violations"]:
        what = f"{each['rule']} in {each['domain']}" if each["domain"] else each["rule"]
        lines.append(f"  {each['strength']} {what}: {_sentence(each['reason']['message'])}")
    if body["still"] is not None:
        lines.append(f"  nothing moves: {_sentence(body['still'])}")
    return lines
