"""`placer place FILE`: place the streams of a cluster file, without Kafka, Spark or Java."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.options import Output, OutputOption

if TYPE_CHECKING:
    from streaming.offline import DocumentFault, Placed

EXIT_UNANSWERED = 1
EXIT_DOCUMENT = 2

_BAR_WIDTH = 24
_STYLES = {
    "placed": "green",
    "degraded": "yellow",
    "partial": "yellow",
    "waiting": "magenta",
    "rejected": "red",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "place",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer place cluster.yaml\n\n"
        "  placer place cluster.yaml --output json | jq '.decisions[].outcome'\n\n"
        "  cat clusters.ndjson | placer place - --output json    "
        "[dim]# one line for each document[/dim]\n\n"
        "Exit code 1: a stream was rejected, waits or lacks replicas; 2: a document is malformed.",
    )(place)


def place(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Cluster file in YAML or JSON; - reads stdin.")
    ],
    output: OutputOption = Output.TEXT,
) -> None:
    """Place the streams of a cluster file as the running reconciler would."""
    from streaming import offline

    status = 0
    for answer in offline.place(_read(file)):
        if isinstance(answer, offline.DocumentFault):
            status = EXIT_DOCUMENT
        elif any(_unanswered(decision) for decision in answer.decisions):
            status = max(status, EXIT_UNANSWERED)
        if output is Output.JSON:
            _print_json(answer)
        else:
            _print_text(answer, file)
    raise typer.Exit(status)


def _read(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.read()
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{file}: not UTF-8 at byte {error.start}") from error


def _unanswered(decision: Any) -> bool:
    from streaming.offline import UNANSWERED

    return getattr(decision, "outcome", None) in (None, *UNANSWERED)


def _print_json(answer: "Placed | DocumentFault") -> None:
    import orjson

    from streaming.offline import DocumentFault

    fault = isinstance(answer, DocumentFault)
    body = {"error": answer.body()} if fault else answer.body()
    typer.echo(orjson.dumps(body))


def _print_text(answer: "Placed | DocumentFault", file: str) -> None:
    from rich.console import Console

    from streaming.offline import DocumentFault

    if isinstance(answer, DocumentFault):
        place = f"{file}:{answer.line}" if answer.line else file
        Console(stderr=True, highlight=False).print(f"{place}: {answer.message}", markup=False)
        return
    console = Console(highlight=False)
    if answer.cluster.name:
        console.rule(answer.cluster.name)
    console.print(_topology(answer))
    for decision in answer.body()["decisions"]:
        _print_decision(console, decision)


def _topology(answer: "Placed") -> Any:
    """The location tree with a bar for the replicas of each node."""
    from rich.text import Text
    from rich.tree import Tree

    loads = dict.fromkeys((node.id for node in answer.cluster.nodes), 0)
    for assignment in answer.assignments.values():
        for node_id in assignment.replicas:
            loads[node_id] += 1
    most = max([*loads.values(), 1])
    root = Tree("/", guide_style="dim")
    branches: dict[str, Tree] = {"": root}
    for node in answer.cluster.nodes:
        branch = _branch(branches, node.location or "")
        bar = "█" * round(_BAR_WIDTH * loads[node.id] / most)
        status = "" if node.status == "up" else f" {node.status}"
        branch.add(
            Text.assemble(f"{node.id} ", (bar, "cyan"), f" {loads[node.id]}", (status, "red"))
        )
    return root


def _branch(branches: dict[str, Any], path: str) -> Any:
    """The tree's branch of a location, made with its parents where it is not there yet."""
    if path not in branches:
        parent, _, name = path.rpartition("/")
        branches[path] = _branch(branches, parent).add(name, style="bold", guide_style="dim")
    return branches[path]


def _print_decision(console: Any, decision: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    style = _STYLES[decision["outcome"]]
    console.print(Text.assemble((f"{decision['stream']} ", "bold"), (decision["outcome"], style)))
    for kind in ("reasons", "warnings"):
        for reason in decision[kind]:
            line = Text.assemble("  ", (reason["code"], style), " ", reason["message"])
            console.print(line, soft_wrap=True)
    if not decision["replicas"]:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("  shard", justify="right")
    table.add_column("replicas, leader first")
    for shard, nodes in enumerate(decision["replicas"]):
        table.add_row(str(shard), " ".join(nodes))
    console.print(table)
