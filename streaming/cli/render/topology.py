"""The fleet as a tree for people: every domain and node with a bar for what it holds."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from placement.wording import format_count
from streaming.cli.render.location_tree import UP, Branch, FoldedTree, build_tree, fold_tree
from streaming.cli.render.utilisation import Usage

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from schemas.cluster import ClusterNode

_BAR_WIDTH = 24
# A bar must tell a half from a whole.
_BAR_WIDTH_MIN = 4
# Offline, where nobody asked for the fleet: more nodes than this do not fit a few screens, then
# each lowest domain stands for its nodes.
NODES_SHOWN_MAX = 60
_STATUS_STYLES = {"dead": "red", "down": "red", "unregistered": "red"}
# Of a kind of its own among the depths of domains.
_NODES = -1


class TopologyTree:
    """All locations with bars that compare domains of one depth, and nodes, with the fullest of
    their kind.

    `loads`: replicas by node id, now and, if given, as they will be; `leaders`: of them those that
    lead, where these are to be shown; `conditions`: words for nodes of which the status does not
    say all; `usage`: words for what nodes and domains bear. `path`: only what stands in this
    domain. `depth`: so many levels below the root. `lines_max`: as many levels as fit so many
    lines; None: all. `hint`: what shows more.
    """

    def __init__(
        self,
        nodes: Sequence["ClusterNode"],
        loads: Sequence[Mapping[str, int]],
        levels: Sequence[str] = (),
        *,
        leaders: Mapping[str, int] | None = None,
        conditions: Mapping[str, str] | None = None,
        usage: Usage | None = None,
        path: str = "",
        depth: int | None = None,
        lines_max: int | None = None,
        hint: str = "",
    ) -> None:
        self._root = build_tree(nodes, loads, leaders or {}, path)
        self._levels, self._hint, self._conditions = levels, hint, conditions or {}
        self._usage = usage or Usage()
        self._shows_leaders = leaders is not None
        self._depth, self._lines_max = depth, lines_max
        self._most: defaultdict[int, int] = defaultdict(lambda: 1)
        self._figures = 1
        for branch in self._root.walk():
            kind = branch.depth if branch.node is None else _NODES
            self._most[kind] = max(self._most[kind], *branch.replicas)
            self._figures = max(self._figures, len(_levels_that_differ(branch)))

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """The lines, with bars as long as the width allows."""
        yield from self.lines(options.max_width)

    def lines(self, width: int) -> list[Any]:
        """Rich's Texts: the root, what is below it, and how to see what is folded, if anything."""
        from rich.text import Text

        tree = fold_tree(self._root, self._lines_max, self._depth)
        rows = list(self._rows(tree, self._root, ""))
        left_out = self._leave_usage_out(rows, width)
        bar_width = max(min(self._room_for_bars(rows, width), _BAR_WIDTH), _BAR_WIDTH_MIN)
        tiers = "/" + "/".join(self._levels)
        lines = [Text(self._root.path or tiers, "dim" if self._levels else "")]
        for strokes, branch, closed in rows:
            label = Text(branch) if isinstance(branch, str) else self._label(branch, bar_width)
            lines.append(Text.assemble((strokes, "dim"), label))
            if closed is not None:
                lines[-1].append_text(_concern_text(closed))
        hints = [self._hint] if tree.has_hidden and self._hint else []
        lines += [Text(hint, "dim") for hint in (*hints, *left_out)]
        for line in lines:
            line.no_wrap, line.overflow = True, "ignore"
        return lines

    def _rows(
        self, tree: FoldedTree, branch: Branch, before: str
    ) -> Iterator[tuple[str, Branch | str, Branch | None]]:
        """Yield every line below a branch. A line is the strokes before it, a branch or the words
        for hidden ones, and the branch again if it is closed."""
        shown: list[Branch | str] = [*tree.shown_children(branch)]
        hidden = tree.hidden_children(branch)
        if hidden:
            nodes = format_count(sum(each.nodes for each in hidden), "node")
            domains = sum(each.node is None for each in hidden)
            where = f" in {format_count(domains, 'domain')}" if domains else ""
            shown.append(f"… {nodes} more{where}")
        for number, each in enumerate(shown, 1):
            last = number == len(shown)
            strokes = before + ("└── " if last else "├── ")
            if isinstance(each, str):
                yield strokes, each, None
                continue
            closed = each if each.node is None and not tree.is_open(each) else None
            yield strokes, each, closed
            yield from self._rows(tree, each, before + ("    " if last else "│   "))

    def _leave_usage_out(
        self, rows: Sequence[tuple[str, Branch | str, Branch | None]], width: int
    ) -> list[str]:
        """Leave out what nodes bear where the lines are too long for it; say so."""
        if not (self._usage.nodes or self._usage.domains):
            return []
        if self._room_for_bars(rows, width) >= _BAR_WIDTH_MIN:
            return []
        self._usage = Usage()
        return ["not shown: utilisation (--output json)"]

    def _room_for_bars(
        self, rows: Sequence[tuple[str, Branch | str, Branch | None]], width: int
    ) -> int:
        """Return the length of bars with which the longest line fits, too short if none does."""
        longest = 0
        for strokes, branch, closed in rows:
            if isinstance(branch, Branch):
                rest = _concern_text(closed).cell_len if closed else 0
                longest = max(longest, len(strokes) + self._label(branch, 0).cell_len + rest)
        # Each bar has a blank behind it.
        return (width - longest) // self._figures - 1

    def _label(self, branch: Branch, bar_width: int) -> Any:
        from rich.text import Text

        node = branch.node
        style, kind = ("blue", branch.depth) if node is None else ("cyan", _NODES)
        label = Text.assemble((branch.name, "bold" if node is None else ""), " ")
        for number, count in enumerate(_levels_that_differ(branch)):
            label.append(" → " if number else "")
            label.append(_bar(count, self._most[kind], bar_width), style)
            label.append(str(count))
        if self._shows_leaders:
            label.append(f" ({branch.leaders} lead)", "dim")
        if node is not None:
            status = self._conditions.get(node.id, str(node.status))
            label.append("" if status == UP else f" {status}", _style(str(node.status)))
        else:
            share = f"{branch.replicas[-1] / branch.weight:.1f} per weight"
            label.append(f" on {format_count(branch.nodes, 'node')}, {share}", "dim")
        used = self._usage
        said = used.domains.get(branch.path) if node is None else used.nodes.get(node.id)
        label.append(f", {said}" if said else "", "dim")
        return label


def topology_tree(
    nodes: Sequence["ClusterNode"],
    loads: Mapping[str, int],
    levels: Sequence[str] = (),
    usage: Usage | None = None,
) -> TopologyTree:
    """The tree of a cluster file. `loads`: replicas by node id; `levels`: names of the tiers."""
    return _build_file_tree(nodes, (loads,), levels, usage)


def change_tree(
    nodes: Sequence["ClusterNode"],
    before: Mapping[str, int],
    after: Mapping[str, int],
    levels: Sequence[str] = (),
    usage: Usage | None = None,
) -> TopologyTree:
    """Draw the tree with two bars: the present and the planned load of each domain and node."""
    return _build_file_tree(nodes, (before, after), levels, usage)


def _build_file_tree(
    nodes: Sequence["ClusterNode"],
    loads: Sequence[Mapping[str, int]],
    levels: Sequence[str],
    usage: Usage | None,
) -> TopologyTree:
    deepest = max((_depth(node) for node in nodes), default=0)
    depth = deepest if len(nodes) > NODES_SHOWN_MAX and deepest else None
    return TopologyTree(nodes, loads, levels, usage=usage, depth=depth)


def _depth(node: "ClusterNode") -> int:
    return (node.location or "").count("/")


def _concern_text(branch: Branch) -> Any:
    """Count the nodes of a closed branch that are not up, by status."""
    from rich.text import Text

    text = Text()
    for status, count in sorted(branch.statuses.items()):
        if status != UP:
            text.append(f", {count} {status}", _style(status))
    return text


def _levels_that_differ(branch: Branch) -> list[int]:
    """Two figures are before and after; the second only where it differs."""
    return branch.replicas if len(set(branch.replicas)) > 1 else branch.replicas[:1]


def _bar(count: int, most: int, width: int) -> str:
    """The bar with a blank behind it, nothing for nothing."""
    return "█" * max(round(width * count / most), 1) + " " if count and width else ""


def _style(status: str) -> str:
    return _STATUS_STYLES.get(status, "yellow")
