"""The fleet by location, and which of it is shown when there is not room for all.

Whole levels are opened from the top as long as they fit. What room is left opens branches with
nodes that are not up, the worst first, down to those nodes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from placement.model import natural_key

if TYPE_CHECKING:
    from schemas.cluster import ClusterNode

UP = "up"
UNLOCATED = "(unlocated)"
# The worst first. What an operator has ordered comes behind what has happened.
_CONCERN = ("dead", "down", "quarantined", "held_down", "suspect", "fenced", "draining")


@dataclass(slots=True)
class Branch:
    """A domain with what stands below it, or one node. `path` tells it from all others; `replicas`
    are one figure for each moment that is shown."""

    name: str
    path: str
    depth: int
    node: "ClusterNode | None" = None
    below: "dict[str, Branch]" = field(default_factory=dict)
    replicas: list[int] = field(default_factory=list)
    leaders: int = 0
    nodes: int = 0
    weight: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)

    @property
    def children(self) -> "list[Branch]":
        """In the order in which they are shown: domains, then nodes."""
        return sorted(self.below.values(), key=_order)

    @property
    def nodes_not_up(self) -> int:
        """Count the nodes in this branch that are not up."""
        return self.nodes - self.statuses[UP]

    def walk(self) -> "Iterator[Branch]":
        """The branch and all below it, parents first."""
        yield self
        for each in self.children:
            yield from each.walk()


def build_tree(
    nodes: Iterable["ClusterNode"],
    loads: Sequence[Mapping[str, int]],
    leaders: Mapping[str, int],
    path: str = "",
) -> Branch:
    """Build the tree of the nodes in the domain `path`. `loads` has replicas by node id for each
    moment, `leaders` leaders by node id."""
    root = Branch(path.rpartition("/")[2], path, 0, replicas=[0] * len(loads))
    inside = [node for node in nodes if stands_in(node, path)]
    located = any(node.location for node in inside)
    for node in inside:
        place = node.location or (f"/{UNLOCATED}" if located or path else "")
        at, way = root, [root]
        for depth, name in enumerate(place.removeprefix(path).split("/")[1:], 1):
            begun = Branch(name, f"{at.path}/{name}", depth, replicas=[0] * len(loads))
            at = at.below.setdefault(begun.path, begun)
            way.append(at)
        # A node and a domain may have one name; no path of a domain has two strokes.
        leaf = Branch(node.id, f"{at.path}//{node.id}", at.depth + 1, node, {}, [0] * len(loads))
        at.below[leaf.path] = leaf
        for branch in (*way, leaf):
            for moment, load in enumerate(loads):
                branch.replicas[moment] += load.get(node.id, 0)
            branch.leaders += leaders.get(node.id, 0)
            branch.nodes += 1
            branch.weight += node.weight
            branch.statuses[str(node.status)] += 1
    return root


def stands_in(node: "ClusterNode", path: str) -> bool:
    """Return whether the node stands in the domain; all stand in the root, which is empty."""
    return f"{node.location or f'/{UNLOCATED}'}/".startswith(f"{path}/")


class FoldedTree:
    """A tree of which some branches are closed, or open only for some of what is in them."""

    def __init__(self, root: Branch, depth: int) -> None:
        """Open for so many levels below the root."""
        self.root = root
        # By the path of each open branch the paths of those that are shown in it.
        self._shown: dict[str, set[str]] = {
            branch.path: set(branch.below) for branch in root.walk() if branch.depth < depth
        }

    def is_open(self, branch: Branch) -> bool:
        """Return whether anything below it is shown."""
        return branch.path in self._shown

    def shown_children(self, branch: Branch) -> list[Branch]:
        """Return the branches that are shown directly below a branch."""
        shown = self._shown.get(branch.path, set())
        return [each for each in branch.children if each.path in shown]

    def hidden_children(self, branch: Branch) -> list[Branch]:
        """Return the branches of an open branch that are not shown."""
        shown = self._shown.get(branch.path, branch.below)
        return [each for each in branch.children if each.path not in shown]

    @property
    def has_hidden(self) -> bool:
        """Return whether anything of the tree is not shown."""
        return self._has_hidden(self.root)

    def _has_hidden(self, branch: Branch) -> bool:
        shown = self.shown_children(branch)
        return len(shown) < len(branch.below) or any(map(self._has_hidden, shown))

    @property
    def lines(self) -> int:
        """Count the lines of the tree. These are the root, the branches, one for the hidden rest of
        each open branch, and one that says how to see hidden branches."""

        def count(branch: Branch) -> int:
            shown = self.shown_children(branch)
            rest = self.is_open(branch) and len(shown) < len(branch.below)
            return sum(1 + count(each) for each in shown) + rest

        return 1 + count(self.root) + self.has_hidden

    def open_path(self, way: Sequence[Branch], lines_max: int) -> None:
        """Show the last branch of a path from the root, if there is room for it."""
        before = {branch.path: set(self._shown.get(branch.path, ())) for branch in way[:-1]}
        for branch, child in pairwise(way):
            self._shown.setdefault(branch.path, set()).add(child.path)
        if self.lines > lines_max:
            self._shown |= {path: shown for path, shown in before.items() if shown}
            for path, shown in before.items():
                if not shown:
                    del self._shown[path]

    def show_first(self, room: int) -> None:
        """Show only this number of the root's branches: those with most nodes that are not up."""
        worst = sorted(self.root.children, key=lambda each: -each.nodes_not_up)
        self._shown = {self.root.path: {each.path for each in worst[: max(room, 0)]}}


def fold_tree(root: Branch, lines_max: int | None = None, depth: int | None = None) -> FoldedTree:
    """The tree with so many levels, or with all for which there is room (None: any)."""
    deepest = max(branch.depth for branch in root.walk())
    if depth is not None:
        return FoldedTree(root, depth)
    if lines_max is None:
        return FoldedTree(root, deepest)
    trees = (FoldedTree(root, level) for level in range(deepest, 0, -1))
    found = next((tree for tree in trees if tree.lines <= lines_max), None)
    if found is None:
        found = FoldedTree(root, 0)
        # The root, the rest, and how to see it.
        found.show_first(lines_max - 3)
        return found
    # Each takes a line at least, so that of a thousand dead nodes the first say it.
    for way in _paths_to_concerns(root)[:lines_max]:
        found.open_path(way, lines_max)
    return found


def _paths_to_concerns(root: Branch) -> list[list[Branch]]:
    """Return the path from the root to each node that is not up, the worst first."""
    found: list[list[Branch]] = []

    def search(way: list[Branch]) -> None:
        for each in way[-1].children:
            if each.node is None:
                search([*way, each])
            elif each.nodes_not_up:
                found.append([*way, each])

    search([root])
    return sorted(found, key=lambda way: _concern(way[-1]))


def _concern(leaf: Branch) -> int:
    status = "" if leaf.node is None else str(leaf.node.status)
    return _CONCERN.index(status) if status in _CONCERN else len(_CONCERN)


def _order(branch: Branch) -> Any:
    # Domains, those without a location last, then nodes.
    return branch.node is not None, branch.name == UNLOCATED, natural_key(branch.name)
