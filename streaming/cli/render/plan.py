"""Shows the answer of `placer plan` to people: the fleet, the moves, the rules still broken."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from placement.diagnosis import DRAIN_RULE
from placement.wording import format_bytes, format_count, format_crossing
from streaming.cli.render.console import Paragraph, Table, shorten
from streaming.cli.render.utilisation import peak_lines, usage_of
from streaming.cli.times import duration_text

if TYPE_CHECKING:
    from streaming.offline import PlanResult, ReassignmentFiles, VerifyResult
    from streaming.requests import Rehearsal

# A person looks at the first moves; programs take --output json.
_MOVES_SHOWN_MAX = 60
# Of many links the first fill a line.
_LINKS_SHOWN_MAX = 4
_STYLES = {"replace": "cyan", "add": "green", "remove": "red", "leader": "magenta"}


def show_plan(console: Any, answer: "PlanResult") -> None:
    """Print a plan."""
    from rich.text import Text

    from streaming.cli.render.topology import change_tree

    levels, body = answer.document.cluster.levels, answer.body()
    moves = body["moves"]
    if not moves:
        console.print("nothing to move", style="green")
    else:
        loads = answer.loads(after=False), answer.loads(after=True)
        used = [body["utilisation"], body["final"]["utilisation"]] if "utilisation" in body else []
        usage = usage_of(used, body.get("peak"))
        console.print(change_tree(answer.nodes, *loads, levels, usage))
        console.print()
        if "waves" in body:
            _show_waves(console, body["waves"])
        _show_moves(console, moves)
        console.print(_summary(body), style="dim")
        for line in (*_traffic(body["traffic"]), *peak_lines(body.get("peak", {}))):
            console.print(Paragraph(line), style="dim")
        console.print(f"impact {body['impact']['hash']}", style="dim")
    if "fixpoint" in body:
        _show_fixpoint(console, body["fixpoint"])
    if body["hold"]:
        console.print(Paragraph(Text.assemble(("hold ", "red"), body["hold"]["reason"])))
    for each in body["warnings"]:
        console.print(Paragraph(Text.assemble((f"{each['code']} ", "yellow"), each["message"])))
    for each in body.get("decisions", ()):
        name = each["stream"] or "(a stream without a name)"
        said = each["reasons"][0]["message"]
        text = Text.assemble((f"{name} ", "bold"), ("rejected", "red"), f" {said}")
        console.print(Paragraph(text))
    unfixable = body["unfixable"]
    for each in unfixable[:_MOVES_SHOWN_MAX]:
        shard = "" if each["shard"] is None else f"/{each['shard']}"
        where = f" in {each['domain']}" if each["domain"] else ""
        what = f"{each['stream'] or 'the cluster'}{shard}: {each['rule']}{where}, "
        style = "red" if each["strength"] == "required" else "yellow"
        text = Text.assemble(("unfixable ", style), what, each["reason"]["message"])
        console.print(Paragraph(text))
    if len(unfixable) > _MOVES_SHOWN_MAX:
        left = format_count(len(unfixable) - _MOVES_SHOWN_MAX, "more violation")
        console.print(f"  … and {left}: --output json", style="dim")


def show_reassignment(console: Any, files: "ReassignmentFiles") -> None:
    """Print the commands that carry the files of a plan out with Kafka's tools."""
    if not files.waves:
        return
    waves = "the net change of all waves" if files.squashed else "a wave"
    copies = format_count(files.copies, "copy", "copies")
    console.print()
    text = f"With Kafka's tools, {copies} in all; each file of --execute is {waves} and has to be "
    console.print(Paragraph(f"{text}complete, says --verify, before the next command:"))
    for command in files.commands():
        tool, _, file = command.rpartition(" --")
        lines = f"  {tool} \\\n    --{file}"
        console.print(lines, markup=False, highlight=False, soft_wrap=True)
    if files.elections:
        many = format_count(len(files.elections), "partition", "partitions")
        text = f"The last command makes the preferred leaders of {many} lead: a reassignment sets "
        console.print(
            Paragraph(f"{text}the order of replicas, and only an election changes who leads.")
        )


def show_verification(console: Any, answer: "VerifyResult") -> None:
    """Print whether a saved plan still stands."""
    body = answer.body()
    if answer.is_current:
        count = len(body["moves"])
        moves = format_count(count, "move")
        console.print(f"the plan is valid: nothing that its {moves} depend on has changed")
        console.print(f"impact {body['hash']}", style="dim")
        return
    console.print("the plan is refused: the cluster has changed", style="red")
    for change in answer.changes:
        console.print(f"  {change}")


def show_rehearsal(console: Any, played: "Rehearsal") -> None:
    """Print what a request moves, in how many waves, and what stays."""
    body = played.body()
    moves = body["moves"]
    if moves:
        _show_moves(console, moves)
        largest = max(Counter(move["wave"] for move in moves).values())
        waves = format_count(body["waves"], "wave")
        copies = format_count(body["copies"], "copy", "copies")
        crossing = format_crossing(body["crossing"], body["level"])
        limits = f"in {waves} of at most {largest}, as the limits of moves allow"
        console.print(f"{format_count(len(moves), 'move')} {limits}: {copies}, {crossing}")
    else:
        console.print("nothing to move")
    blocked = body["blocked_replicas"]
    for each in blocked[:_MOVES_SHOWN_MAX]:
        shard, why = f"{each['stream']}/{each['shard']}", each["reason"]["message"]
        stays = f" stays on {each['node']}" if each["rule"] == DRAIN_RULE else ""
        console.print(Paragraph(f"blocked {shard}{stays}: {why}"))
    if len(blocked) > _MOVES_SHOWN_MAX:
        console.print(f"  … and {len(blocked) - _MOVES_SHOWN_MAX} more that stay", style="dim")


def _summary(body: dict[str, Any]) -> str:
    """Summarise the moves on one line."""
    traffic, moves = body["traffic"], len(body["moves"])
    copies = format_count(traffic["copies"], "copy", "copies")
    crossing = format_crossing(traffic["crossing"], traffic["level"])
    bound = f"at least {body['lower_bound']} needed"
    if "bytes_lower_bound" in body:
        bound += f", of {format_bytes(body['bytes_lower_bound'])}"
    return f"{format_count(moves, 'move')}: {copies}, {crossing}; {bound}"


def _traffic(traffic: dict[str, Any]) -> Iterator[str]:
    """Say how many bytes are copied, over which links, and how long that takes at a rate."""
    if "bytes" not in traffic:
        return
    links = (f"{format_bytes(e['bytes'])} {e['from']} -> {e['to']}" for e in traffic["links"])
    between = shorten([*links], _LINKS_SHOWN_MAX) or f"none to another {traffic['level']}"
    yield f"{format_bytes(traffic['bytes'])} are copied: {between}"
    if "seconds" in traffic:
        rate = format_bytes(traffic["rate_bytes_per_second"])
        took = duration_text(traffic["seconds"])
        yield f"{took} where each node sends and receives {rate}/s"


def _show_waves(console: Any, waves: list[dict[str, Any]]) -> None:
    columns: tuple[str, ...] = ("wave", "moves", "copies", "crossing", "left waiting")
    names = ("wave", "moves", "copies", "crossing", "waiting")
    rows = [[wave[name] for name in names] for wave in waves[:_MOVES_SHOWN_MAX]]
    for name, write in (("bytes", format_bytes), ("seconds", duration_text)):
        if waves and name in waves[0]:
            columns = (*columns, "time" if name == "seconds" else name)
            rows = [[*row, write(wave[name])] for row, wave in zip(rows, waves, strict=False)]
    console.print(Table(columns, rows, right=columns))
    if len(waves) > _MOVES_SHOWN_MAX:
        console.print(f"  … and {len(waves) - _MOVES_SHOWN_MAX} more waves", style="dim")
    console.print()


def _show_fixpoint(console: Any, fixpoint: dict[str, Any]) -> None:
    """The proof that it ended: a plan that has nothing to move."""
    if fixpoint["reached"]:
        console.print(f"plan {fixpoint['plans']} has nothing to move: done", style="green")


def _show_moves(console: Any, moves: list[dict[str, Any]]) -> None:
    from rich.text import Text

    waves = ("wave",) if moves and "wave" in moves[0] else ()
    sizes = ("bytes",) if any("bytes" in move for move in moves) else ()
    columns = (*waves, "shard", "kind", "from", "to", "leads", *sizes, "cause", "why")
    rows = [
        (
            *(move[name] for name in waves),
            f"{move['stream']}/{move['shard']}",
            Text(move["kind"], _STYLES[move["kind"]]),
            move["remove"] or "-",
            move["add"] or "-",
            move.get("leader", ""),
            *(format_bytes(move["bytes"]) if "bytes" in move else "" for _ in sizes),
            move["cause"],
            move["reason"]["message"],
        )
        for move in moves[:_MOVES_SHOWN_MAX]
    ]
    left_out = ("leads", "cause", "kind")
    console.print(Table(columns, rows, right=(*waves, *sizes), first_left_out=left_out))
    if len(moves) > _MOVES_SHOWN_MAX:
        console.print(f"  … and {len(moves) - _MOVES_SHOWN_MAX} more moves", style="dim")
