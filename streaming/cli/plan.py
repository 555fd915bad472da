"""`placer plan FILE`: what would be moved, and why; what stays broken."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.answers import File, answer_documents
from streaming.cli.options import FailOn, FailOnOption, Output, OutputOption, PluginOption

if TYPE_CHECKING:
    from schemas.cluster import ClusterNode
    from streaming.offline_plan import Planned

# A person looks at the first moves; programs take --output json.
_MOVES_SHOWN_MAX = 60
_STYLES = {"replace": "cyan", "add": "green", "remove": "red", "leader": "magenta"}


class Phase(StrEnum):
    """What to plan."""

    REPAIR = "repair"
    REBALANCE = "rebalance"
    ALL = "all"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "plan",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer plan cluster.yaml\n\n"
        "  placer plan cluster.yaml --lose /eu/az1 --phase repair    "
        "[dim]# what would follow[/dim]\n\n"
        "  placer plan cluster.yaml --drain n1 --output json | jq '.moves[]'\n\n"
        "A shard gets at most one move; carry the plan out and plan again until nothing is left. "
        "Exit code 1: a required rule stays broken, or a stream is refused; 2: a document is "
        "malformed. A plan with moves is 0.",
    )(plan)


def plan(
    file: File,
    phase: Annotated[
        Phase,
        typer.Option(
            "--phase", help="repair, rebalance, or all: repairs, then balance once none is left."
        ),
    ] = Phase.ALL,
    max_moves: Annotated[
        int | None,
        typer.Option("--max-moves", min=0, metavar="N", help="At most so many moves of replicas."),
    ] = None,
    max_moves_per_node: Annotated[
        int | None,
        typer.Option(
            "--max-moves-per-node",
            min=1,
            metavar="N",
            help="At most so many moves from and to any node that lives.",
        ),
    ] = None,
    lose: Annotated[
        list[str] | None,
        typer.Option(
            "--lose",
            metavar="DOMAIN|TAG",
            help="Plan as if this domain (/eu/az1), tag (key=value) or node were dead; repeatable.",
            show_default=False,
        ),
    ] = None,
    drain: Annotated[
        list[str] | None,
        typer.Option(
            "--drain",
            metavar="NODE|DOMAIN",
            help="Plan as if this node or domain were to be emptied; repeatable.",
            show_default=False,
        ),
    ] = None,
    add: Annotated[
        str | None,
        typer.Option(
            "--add", metavar="FILE", help="Plan as if the nodes of this cluster file had joined."
        ),
    ] = None,
    output: OutputOption = Output.TEXT,
    fail_on: FailOnOption = None,
    _plugin: PluginOption = None,
) -> None:
    """Say what would be moved to repair a cluster or to even it out."""
    from placement import plan as core
    from streaming.offline_check import NothingThere
    from streaming.offline_plan import Planned, Wanted, planned

    def found(answer: "Planned") -> bool:
        if fail_on is FailOn.NEVER:
            return False
        worse = fail_on is FailOn.DEGRADED and bool(answer.unfixable)
        stuck = answer.stuck and fail_on is not FailOn.FIXABLE
        return bool(stuck or worse or answer.judged.refused)

    joining = () if add is None else _joining(add)
    bounds = (max_moves, max_moves_per_node)
    wanted = Wanted(core.Phase(phase), *bounds, tuple(lose or ()), tuple(drain or ()), joining)
    try:
        answer_documents(
            file, output, lambda each: planned(each, wanted), Planned.body, _show, found
        )
    except NothingThere as error:
        raise typer.BadParameter(str(error), param_hint="--lose, --drain") from error


def _joining(file: str) -> tuple["ClusterNode", ...]:
    from streaming.offline import DocumentFault
    from streaming.offline_plan import nodes_of

    try:
        nodes = nodes_of(file)
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="--add") from error
    if isinstance(nodes, DocumentFault):
        raise typer.BadParameter(f"{file}: {nodes.message}", param_hint="--add")
    return nodes


def _show(console: Any, answer: "Planned") -> None:
    from rich.text import Text

    from streaming.cli.topology_text import topology_tree

    levels, body = answer.document.cluster.levels, answer.body()
    moves = body["moves"]
    if not moves:
        console.print("nothing to move", style="green")
    else:
        console.print(topology_tree(answer.nodes, answer.loads(after=False), levels))
        console.print("\nafter the plan", style="dim")
        console.print(topology_tree(answer.nodes, answer.loads(after=True), levels))
        console.print()
        _show_moves(console, moves)
        bound = f"{len(moves)} moves, at least {body['lower_bound']} copies are needed"
        console.print(bound, style="dim")
    if body["hold"]:
        console.print(Text.assemble(("hold ", "red"), body["hold"]["reason"]))
    for each in body["warnings"]:
        console.print(Text.assemble((f"{each['code']} ", "yellow"), each["message"]))
    for each in body.get("decisions", ()):
        name = each["stream"] or "(a stream without a name)"
        said = each["reasons"][0]["message"]
        console.print(Text.assemble((f"{name} ", "bold"), ("rejected", "red"), f" {said}"))
    for each in body["unfixable"]:
        shard = "" if each["shard"] is None else f"/{each['shard']}"
        where = f" in {each['domain']}" if each["domain"] else ""
        what = f"{each['stream'] or 'the cluster'}{shard}: {each['rule']}{where}, "
        style = "red" if each["strength"] == "required" else "yellow"
        console.print(Text.assemble(("unfixable ", style), what, each["reason"]["message"]))


def _show_moves(console: Any, moves: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for column in ("shard", "kind", "from", "to", "leads", "cause", "why"):
        table.add_column(column)
    for move in moves[:_MOVES_SHOWN_MAX]:
        table.add_row(
            f"{move['stream']}/{move['shard']}",
            Text(move["kind"], _STYLES[move["kind"]]),
            move["remove"] or "-",
            move["add"] or "-",
            move.get("leader", ""),
            move["cause"],
            move["reason"]["message"],
        )
    width = console.width
    # A person wants whole sentences, a pipe wants lines.
    console.width = width if console.is_terminal else 1000
    console.print(table)
    console.width = width
    if len(moves) > _MOVES_SHOWN_MAX:
        console.print(f"  … and {len(moves) - _MOVES_SHOWN_MAX} more moves", style="dim")
