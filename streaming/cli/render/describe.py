"""Shows the answer of `placer describe` to people: every part of a thing after its label.

Lists are bounded, so that a screen is a screen; `--output json` has all.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from placement.wording import format_count
from streaming.cli.render.console import Table, shorten
from streaming.cli.render.progress import order_text
from streaming.cli.render.status import STYLES, indent, name_target
from streaming.cli.times import ago_text, duration_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console, ConsoleOptions, RenderResult

# Of long lists the first; the label says how many there are.
_ROWS_MAX = 8
_SHARDS_NAMED_MAX = 12
_DOMAINS_NAMED_MAX = 8

# A label with its text; a line without a label goes on with the one before. Tables stand below all.
Line = tuple[str, Any]
Body = Mapping[str, Any]


class DescribeScreen:
    """The screen of a thing, as `streaming.live.describe` has found it at `at_ms`."""

    def __init__(
        self, body: Body, lines: "Callable[[Body, int], Iterator[Line | Table]]", at_ms: int
    ) -> None:
        self._body, self._lines, self._at_ms = body, lines, at_ms

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """All lines, none wider than the terminal."""
        from rich.text import Text

        for each in self._lines(self._body, self._at_ms):
            if isinstance(each, Table):
                yield Text()
                yield from each.lines(options.max_width)
                continue
            label, text = each
            styled = text if isinstance(text, Text) else Text(str(text))
            yield from indent(label, styled, options.max_width)


def node_lines(node: Body, at_ms: int) -> Iterator[Line | Table]:
    """A node's screen."""
    yield "node", node["node"]
    yield from _place(node)
    yield "tags", _pairs(node["tags"]) or "none"
    capacity = "no limit" if node["capacity"] is None else format_count(node["capacity"], "replica")
    leads = "" if node["may_lead"] else ", never leads"
    yield "weight", f"{node['weight']:g}, capacity {capacity}{leads}"
    hidden = "" if node["condition"] == node["liveness"] else f"; {node['liveness']}"
    since = duration_text(max(at_ms - node["since"], 0) / 1000)
    yield "condition", _style(node["condition"], f"{hidden} for {since}")
    yield from _history_lines(node, at_ms)
    yield from _order_lines(node, at_ms)
    yield "incarnation", f"{node['incarnation']}, sequence {node['sequence']}"
    yield from _life_lines(node, at_ms)
    yield "replicas", f"{node['replicas']}, of which {node['leaders']} lead"
    for each in node["by_stream"][:_ROWS_MAX]:
        numbers = shorten([str(shard) for shard in each["shards"]], _SHARDS_NAMED_MAX)
        line = f"{each['stream']} {each['replicas']} ({each['leaders']} lead): {numbers}"
        yield "", line
    yield from _more_line(node["by_stream"], "stream")
    if node["critical_shards"]:
        shards = format_count(node["critical_shards"], "shard")
        yield "critical", f"its loss alone takes the quorum of {shards}"
    yield from _moves("moves in", node["moves_in"], at_ms)
    yield from _moves("moves out", node["moves_out"], at_ms)
    yield from _violations(node["violations"], at_ms)


def stream_lines(stream: Body, at_ms: int) -> Iterator[Line | Table]:
    """A stream's screen."""
    spec = stream["spec"]
    yield "stream", stream["stream"]
    decided = f", decided {ago_text(stream['decided_at'], at_ms)} (sequence {stream['sequence']})"
    yield "outcome", _style(stream["outcome"], decided)
    for each in (*stream["reasons"], *stream["warnings"]):
        yield "", f"{each['code']} {each['message']}"
    quorum = f"; quorum {spec['quorum']}"
    quorum += "" if stream["quorum"] is None else f" ({stream['quorum']})"
    copies = format_count(spec["replication_factor"], "copy", "copies")
    yield "asks for", f"{format_count(spec['shards'], 'shard')} with {copies} each{quorum}"
    yield "policy", stream["policy"]
    others = {name: spec[name] for name in ("dimension", "repair") if name in spec}
    if others:
        yield "", _pairs(others)
    if stream["requested"] is not None:
        yield "refused", "an alteration of the stream; --output json has it as `requested`"
    if stream["health"] is None:
        yield "health", "none: the stream is not in force"
        return
    yield "health", _style(stream["health"], f": {_shards(stream)}")
    yield "replicas", f"{stream['replicas']} on {format_count(stream['nodes'], 'node')}"
    for each in stream["spread"]:
        domains = [f"{d['domain']} {d['replicas']}" for d in each["domains"]]
        yield f"by {each['level']}"[:11], shorten(domains, _DOMAINS_NAMED_MAX)
    yield from _moves("moves", stream["moves"], at_ms)
    yield from _violations(stream["violations"], at_ms)


def shard_lines(shard: Body, at_ms: int) -> Iterator[Line | Table]:
    """A shard's screen."""
    yield "shard", f"{shard['stream']}/{shard['shard']}"
    yield "assignment", f"epoch {shard['epoch']}, decided {ago_text(shard['decided_at'], at_ms)}"
    if shard["health"] is not None:
        copies = f": {shard['live']} of {shard['replication_factor']} copies live"
        yield "health", _style(shard["health"], f"{copies}, quorum {shard['quorum']}")
    yield from _moves("move", [shard["move"]] if shard["move"] else [], at_ms)
    if shard["move"]:
        left = shard["move"]["deadline"] - at_ms
        when = f"in {duration_text(left / 1000)}" if left > 0 else "now"
        yield "", f"it expires {when} if it is not done, and another is tried"
    yield from _violations(shard["violations"], at_ms)
    for number, sentence in enumerate(shard["next"]):
        yield "" if number else "next", sentence
    yield "why there", f"placer explain --live {shard['stream']}/{shard['shard']}"
    rows = [
        (
            each["node"],
            _role(each),
            each["location"] or "(unlocated)",
            _style(each["condition"], ""),
            "-" if each["since"] is None else ago_text(each["since"], at_ms),
        )
        for each in shard["replicas"]
    ]
    yield Table(("node", "role", "location", "condition", "since"), rows)


def _shards(stream: Body) -> str:
    """Count the shards by health; only their number where all have the same."""
    rungs = stream["shard_health"]
    said = format_count(stream["spec"]["shards"], "shard")
    if len(rungs) > 1:
        said += ": " + ", ".join(f"{count} {word}" for word, count in rungs.items())
    missing = format_count(stream["missing"], "copy", "copies")
    return f"{said}; {missing} missing" if stream["missing"] else said


def _role(replica: Body) -> str:
    role = "leader" if replica["leads"] else replica["role"]
    return role if replica["complete"] else f"{role}, being copied"


def _place(node: Body) -> Iterator[Line]:
    said = {"claim": "as the node says"}.get(node["location_source"], node["location_source"])
    yield "location", f"{node['location'] or '(unlocated)'}, {said}"
    if node["claimed_location"] is not None:
        yield "", f"the node claims {node['claimed_location'] or '(none)'}, which is not in force"
    pending = node["pending_location"]
    if pending is not None:
        yield "", f"a move to {pending['location']} waits: placer approve {node['node']} --dry-run"
    if node["quarantine"] is not None:
        yield "", f"not trusted with replicas: {node['quarantine']['message']}"
    if node["host"] is not None:
        yield "host", node["host"]


def _history_lines(node: Body, at_ms: int) -> Iterator[Line]:
    before = node["transitions"]
    if before:
        latest = [f"{each['liveness']} {ago_text(each['at'], at_ms)}" for each in before[-5:]]
        yield "", f"latest changes: {', '.join(latest)}"
    hold_down = node["hold_down"]
    if hold_down is not None and hold_down["active"]:
        left = duration_text(max(hold_down["until"] - at_ms, 0) / 1000)
        yield "hold-down", f"its liveness changed too often: no new replicas for another {left}"


def _order_lines(node: Body, at_ms: int) -> Iterator[Line]:
    from streaming.live import blocked_lines

    for order in node["orders"]:
        yield "order", order_text(order, at_ms)
        yield from (("", line) for line in blocked_lines(order))
    for hold in node["holds"]:
        end = "overridden" if hold.get("overridden") else "its replicas are not replaced"
        yield "hold", f"{hold['name']}: {end}; see placer status"


def _life_lines(node: Body, at_ms: int) -> Iterator[Line]:
    """Other lives of the node's process than the one that holds its name."""
    pending, refused = node["pending_life"], node["refused_life"]
    if pending is not None:
        grace = duration_text(pending["grace_ms"] / 1000)
        since = ago_text(pending["since"], at_ms)
        follows = f"takes over once the holder has been silent for {grace}"
        yield "", f"pending: {pending['incarnation']}, registered {since}, {follows}"
    if refused is not None:
        since, why = ago_text(refused["since"], at_ms), refused["reason"]["message"]
        yield "", f"refused: {refused['incarnation']}, since {since}: {why}"
    if node["earlier_lives"]:
        yield "", f"earlier: {shorten(node['earlier_lives'], _ROWS_MAX)}"


def _moves(label: str, moves: Sequence[Body], at_ms: int) -> Iterator[Line]:
    if not moves:
        yield label, "none"
    for number, move in enumerate(moves[:_ROWS_MAX]):
        way = f"{move['remove'] or '-'} -> {name_target(move)}"
        shard, age = f"{move['stream']}/{move['shard']}", ago_text(move["issued_at"], at_ms)
        said = f"{shard} {move['kind']} {way}, {move['cause']}, {move['state']}, issued {age}"
        yield "" if number else label, said
    yield from _more_line(moves, "move")


def _violations(found: Sequence[Body], at_ms: int) -> Iterator[Line]:
    if not found:
        yield "violations", "none"
    for number, each in enumerate(found[:_ROWS_MAX]):
        where = f" in {each['domain']}" if each["domain"] else ""
        rule = f"{each['stream']}/{each['shard']} {each['rule']}{where}"
        since, why = ago_text(each["since"], at_ms), each["reason"]["message"]
        yield (
            "" if number else "violations",
            _style(each["class"], f" {rule}, since {since}: {why}"),
        )
    yield from _more_line(found, "violation")


def _more_line(things: Sequence[Any], one: str) -> Iterator[Line]:
    left = len(things) - _ROWS_MAX
    if left > 0:
        yield "", f"… and {format_count(left, f'more {one}')}: --output json"


def _pairs(values: Body) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _style(word: str, rest: str) -> Any:
    from rich.text import Text

    first = str(word).partition(" ")[0]
    return Text.assemble((str(word), STYLES.get(first, "red")), rest)
