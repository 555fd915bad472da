"""Shows the answer of `placer status` to people: a summary first, then the fleet by location.

The summary is a few lines at any size of a fleet. The tree below it takes the room that is left.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from placement.wording import format_count
from streaming.cli.render.console import Table, shorten, wrap
from streaming.cli.render.progress import order_text
from streaming.cli.render.topology import TopologyTree
from streaming.cli.times import ago_text, duration_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from streaming.live import CellStatus, RebalancePreview
    from streaming.presence import ProcessSeen

STYLES = {
    "healthy": "green",
    "up": "green",
    "placed": "green",
    "rebalancing": "cyan",
    "degraded": "yellow",
    "partial": "yellow",
    "suspect": "yellow",
    "waiting": "magenta",
    "draining": "magenta",
    "maintenance": "magenta",
    "cordoned": "magenta",
    "deferred": "cyan",
    "fixable": "yellow",
}
_LABEL_WIDTH = 12
# Of long lists the first are named; --output json has all.
_NAMED_MAX = 5
_CRITICAL_NAMED_MAX = 3
_MOVES_SHOWN_MAX = 5
# What the tree gets on a terminal that scrolls, however long the summary is. Where nothing may
# scroll, single moves give way to it: their number and causes are in the summary.
_TREE_LINES_WANTED = 12
# The root, a line for what is hidden, and how to see it.
_TREE_LINES_LEAST = 3
# What is asked of the terminal below the screen: the line with the prompt.
_PROMPT_LINES = 1
# Whose records wait on each input topic.
_RECORDS_OF = {
    "nodes": "from nodes",
    "detector": "from detectors",
    "inventory": "from the inventory",
    "streams": "about streams",
    "acks": "from executors",
    "operator": "from operators",
}


class StatusScreen:
    """The screen. `fits`: no longer than the terminal is high; else it scrolls. `path`: only what
    stands in this domain; `depth`: so many levels of it."""

    def __init__(
        self, found: "CellStatus", *, path: str = "", depth: int | None = None, fits: bool = False
    ) -> None:
        self._found, self._path, self._depth, self._fits = found, path, depth, fits

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """All lines; the tree as long as the terminal is high, or whole into a pipe."""
        from rich.text import Text

        width = options.max_width
        body = self._found.body()
        fields = _summary(self._found, body)
        lines = [line for field in fields for line in indent(*field, width)]
        moves, room = _moves(body["moves"], width), None
        if console.is_terminal:
            height = (options.height or console.height) - _PROMPT_LINES
            room = height - len(lines) - len(moves) - 1
            if not self._fits:
                room = max(room, _TREE_LINES_WANTED)
            elif room < _TREE_LINES_WANTED:
                moves, room = [], height - len(lines) - 1
                lines = lines[:height]
        yield from (*lines, *moves)
        if self._depth != 0 and (room is None or room >= _TREE_LINES_LEAST):
            yield Text()
            yield from self._tree(room).lines(width)

    def _tree(self, room: int | None) -> TopologyTree:
        found = self._found
        return TopologyTree(
            found.cluster.nodes,
            (found.loads,),
            found.cluster.levels,
            leaders=found.leaders,
            conditions=found.conditions,
            path=self._path,
            depth=self._depth,
            lines_max=None if self._depth is not None else room,
            hint="folded: placer status PATH opens a branch, --depth N shows N levels",
        )


Field = tuple[str, Any]


def _summary(found: "CellStatus", body: Mapping[str, Any]) -> Iterator[Field]:
    """Label and text, one after the other; a field without a label goes on with the one before."""
    yield "cell", _heading(found)
    if len(found.processes) > 1:
        yield "processes", _processes(found.processes)
    yield from _health_fields(found, body)
    yield from _work_fields(found, body)
    for each in body["alerts"]:
        # A hold that is on has said all that its alert says.
        if each.get("kind") != "HOLD" or each.get("subject") not in body["holds"]:
            yield "alert", _alert(each, found.at_ms)
    if body["ignored"]:
        yield "ignored", _ignored(body["ignored"], found.at_ms)
    yield from _critical(body["health"]["critical"])


def _processes(processes: "Sequence[ProcessSeen]") -> Any:
    """Name the active process and those that stand by, with the commit that they have proven."""
    from rich.text import Text

    said = []
    for each in processes:
        role = each.role if each.role == "active" else "standby"
        proven = "" if role == "active" else ", nothing proven yet"
        if each.proven is not None:
            proven = f", commit {each.proven} proven"
        said.append(f"{each.instance} ({role}{proven})")
    return Text("; ".join(said))


def _health_fields(found: "CellStatus", body: Mapping[str, Any]) -> Iterator[Field]:
    """Summarise the health of streams and nodes, and the violations."""
    from rich.text import Text

    yield from _health(body["health"])
    yield "nodes", _counts(body["conditions"])
    yield from (("", line) for line in _notes_on_nodes(body, found.at_ms))
    yield "streams", _counts(body["streams"])
    yield from _unjudged(body["unjudged"])
    for each in body["awaited"][:_NAMED_MAX]:
        yield "", Text(f"being adopted: {each['message']}")
    if body["violations"]:
        yield "violations", _counts(body["violations"])
        if "unfixable" in body["violations"]:
            yield "", Text("why: placer violations --where class=unfixable", "dim")


def _unjudged(streams: Mapping[str, str]) -> Iterator[Field]:
    """Name the streams that are not in the health above."""
    from rich.text import Text

    for name, reason in [*streams.items()][:_NAMED_MAX]:
        yield "", Text(f"{name} could not be judged: {reason}", "yellow")
    if len(streams) > _NAMED_MAX:
        yield "", Text(f"… and {len(streams) - _NAMED_MAX} more that could not be judged", "yellow")


def _work_fields(found: "CellStatus", body: Mapping[str, Any]) -> Iterator[Field]:
    """Summarise holds, open moves and operators' orders."""
    from rich.text import Text

    from streaming.live import PLANNED_REPLICAS_MAX, blocked_lines

    for domain, hold in body["holds"].items():
        yield "hold", _hold_text(domain, hold, found)
        if not hold["overridden"]:
            yield "", Text(f"override it: placer hold override {domain} --dry-run", "dim")
    yield "moves", _move_counts(body["moves"])
    for each in body["moves"]["waiting"][:_NAMED_MAX]:
        waits = format_count(each["count"], "need waits", "needs wait")
        such = "such as " if each["count"] > 1 else ""
        yield "", Text(f"{waits}: {each['code']}, {such}{each['message']}")
    if found.balance is not None:
        yield "balance", _balance(found.balance)
    elif sum(found.loads.values()) > PLANNED_REPLICAS_MAX:
        asked = "placer rebalance --dry-run"
        yield "balance", Text(f"not previewed above {PLANNED_REPLICAS_MAX:,} replicas: {asked}")
    for target, request in body["requests"].items():
        yield "request", Text(order_text(request, found.at_ms))
        yield from (("", Text(line)) for line in blocked_lines(request))
        yield from _end_of(target, request)


def _heading(found: "CellStatus") -> Any:
    from rich.text import Text

    marker = found.marker
    waiting = {name.removesuffix(".v1"): count for name, count in found.lag.items() if count}
    whose = [
        f"{format_count(count, 'record')} {_RECORDS_OF.get(name, f'on {name}')}"
        for name, count in waiting.items()
    ]
    unread = f"{', '.join(whose)} not yet read" if waiting else "all input is read"
    ago = ago_text(int(marker["now"]), found.at_ms)
    commit = f"commit {marker['sequence']} of writer epoch {marker['writer_epoch']}, {ago}"
    return Text.assemble((str(marker["cell"]), "bold"), f", {commit}; {unread}")


def _health(health: Mapping[str, Any]) -> Iterator[Field]:
    from rich.text import Text

    worst, counts = health["worst"], health["counts"]
    totals = {things: sum(rungs.values()) for things, rungs in counts.items()}
    if len(counts["shards"]) > 1 or len(counts["streams"]) > 1:
        there = [
            f"{counts[things].get(worst, 0)} of {format_count(n, things[:-1])}"
            for things, n in totals.items()
        ]
        yield "health", Text.assemble((worst, _style(worst)), f": {', '.join(there)}")
        for things in ("streams", "shards"):
            yield "", Text.assemble(f"{things}: ", _counts(counts[things]))
        return
    whole = " and ".join(format_count(n, things[:-1]) for things, n in totals.items())
    yield "health", Text.assemble((worst, _style(worst)), f": {whole}")


def _counts(counts: Mapping[str, int]) -> Any:
    from rich.text import Text

    if not counts:
        return Text("none")
    words = [Text(f"{n} {name}", _style(name)) for name, n in counts.items()]
    return Text(", ").join(words)


def _style(name: str) -> str:
    """Return the style of a word, or of the worst of several."""
    hidden = name.partition("(")[2].rstrip(")")
    return STYLES.get(hidden or name.partition(" ")[0], "red")


def _notes_on_nodes(body: Mapping[str, Any], now_ms: int) -> Iterator[Any]:
    """Restarts that are not followed yet, and places that wait for an approval."""
    from rich.text import Text

    restarts = body["restarts"]
    for each in restarts[:_NAMED_MAX]:
        since = ago_text(int(each["since"]), now_ms)
        if each["state"] == "pending":
            grace = duration_text(each["grace_ms"] / 1000)
            said = (
                f"restarted {since}, takes over once its earlier incarnation has been silent "
                f"for {grace}"
            )
        else:
            said = f"another process claims its id, refused {since}: {each['reason']}"
        yield Text.assemble(f"{each['node']}: ", (said, "yellow"))
    if len(restarts) > _NAMED_MAX:
        yield Text(
            f"and {len(restarts) - _NAMED_MAX} more, see: placer nodes --where restart=pending"
        )
    moved = [f"{node} to {place}" for node, place in body["relocations"].items()]
    if moved:
        named = shorten(moved, _NAMED_MAX)
        yield Text(f"relocations to approve: {named}; see: placer approve NODE --dry-run")


def _hold_text(domain: str, hold: Mapping[str, Any], found: "CellStatus") -> Any:
    from rich.text import Text

    where = "the whole fleet" if hold["domain"] is None else domain
    began = "" if hold["began_at"] is None else f", for {_elapsed_text(hold['began_at'], found)}"
    away = f"{hold['away']} of {format_count(hold['most'], 'node')} are suspect or dead{began};"
    if hold["overridden"]:
        said = "overridden: their replicas are replaced, and the hold ends when they are back"
        return Text.assemble((where, "yellow"), f": {away} {said}")
    window = found.hold_window_ms
    quiet = "a while" if window is None else duration_text(window / 1000)
    said = (
        "their replicas are not replaced until all are back, or more than half are and no other "
        f"has returned for {quiet}"
    )
    return Text.assemble((where, "bold red"), f": {away} {said}")


def _elapsed_text(at_ms: int, found: "CellStatus") -> str:
    return duration_text(max(found.at_ms - at_ms, 0) / 1000)


def _move_counts(moves: Mapping[str, Any]) -> Any:
    from rich.text import Text

    if not moves["open"]:
        return Text("none open")
    causes = ", ".join(f"{count} {cause}" for cause, count in moves["by_cause"].items())
    return Text(f"{moves['open']} open: {causes}")


def _balance(balance: "RebalancePreview") -> Any:
    from rich.text import Text

    if not balance.moves:
        return Text("even: a rebalance would move nothing")
    leaders = format_count(balance.moves - balance.copies, "leader")
    if not balance.copies:
        return Text(f"replicas are even; a rebalance would change {leaders} and copy nothing")
    parts = f"make {format_count(balance.copies, 'copy', 'copies')}"
    if balance.moves > balance.copies:
        parts += f" and change {leaders}"
    return Text(f"a rebalance would {parts}: placer rebalance --dry-run")


def _end_of(target: str, request: Mapping[str, Any]) -> Iterator[Field]:
    """Name the command that ends an order which does not end by itself."""
    from rich.text import Text

    end = {"drain": "undrain", "maintenance": "undrain", "cordon": "uncordon"}
    command = end.get(str(request["action"]))
    if command is not None and request.get("until") is None:
        yield "", Text(f"ends with: placer {command} {target}", "dim")


def _critical(critical: Sequence[Mapping[str, Any]]) -> Iterator[Field]:
    """Each domain once, whatever levels it is one of; those with most shards first."""
    from rich.text import Text

    shards: dict[str, int] = {}
    for each in critical:
        shards[each["domain"]] = max(each["shards"], shards.get(each["domain"], 0))
    if shards:
        ranked = sorted(shards.items(), key=lambda each: -each[1])
        named = [f"{name} ({format_count(n, 'shard')})" for name, n in ranked]
        said = f"{shorten(named, _CRITICAL_NAMED_MAX)}: the loss of any one takes a quorum"
        yield "critical", Text(said)


def _ignored(ignored: Mapping[str, Mapping[str, Any]], now_ms: int) -> Any:
    """Records that changed nothing: how many, why, and how long ago the last one came."""
    from rich.text import Text

    whole = format_count(sum(each["count"] for each in ignored.values()), "record")
    said = [
        f"{each['count']} {reason} (last {ago_text(int(each['last_at']), now_ms)})"
        for reason, each in ignored.items()
    ]
    return Text(f"{whole} without effect: {', '.join(said)}")


def _alert(alert: Mapping[str, Any], now_ms: int) -> Any:
    from rich.text import Text

    reason = alert.get("reason") or {}
    when = ago_text(int(alert.get("at", now_ms)), now_ms)
    severity = alert.get("severity")
    kind = f"{alert.get('kind')} {alert.get('subject', '')}".strip()
    style = "red" if severity == "critical" else "yellow"
    said = f", {when}: {reason.get('message', '')}"
    return Text.assemble((f"{severity} " if severity else "", style), (kind, style), said)


def _moves(body: Mapping[str, Any], width: int) -> list[Any]:
    """The oldest moves under way."""
    from rich.text import Text

    moves = body["oldest"][:_MOVES_SHOWN_MAX]
    if not moves:
        return []
    title = "open moves" if len(moves) == body["open"] else f"the {len(moves)} oldest moves"
    columns = ("shard", "kind", "from", "to", "state", "age", "cause", "move")
    rows = [
        (
            f"{each['stream']}/{each['shard']}",
            each["kind"],
            each["remove"] or "-",
            name_target(each),
            each["state"],
            duration_text(each["seconds"]),
            each["cause"],
            each["move_id"],
        )
        for each in moves
    ]
    left_out = ("state", "kind", "cause", "age")
    table = Table(columns, rows, right=("age",), first_left_out=left_out)
    return [Text(), Text(title, "bold"), *table.lines(width)]


def name_target(move: Mapping[str, Any]) -> str:
    """Name the node that a move is for: the one that gets a replica, or is to lead."""
    return move["add"] or (f"{move['leader']} leads" if move["leader"] else "-")


def indent(label: str, text: Any, width: int) -> list[Any]:
    """A field with its label before the first line; what does not fit goes on below the text."""
    from rich.text import Text

    room = max(width - _LABEL_WIDTH, _LABEL_WIDTH)
    lines = wrap(text, room)
    heads = [Text(label.ljust(_LABEL_WIDTH), "bold"), *[Text(" " * _LABEL_WIDTH)] * len(lines)]
    return [
        Text.assemble(head, line, no_wrap=True, overflow="ignore")
        for head, line in zip(heads, lines, strict=False)
    ]
