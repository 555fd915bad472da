"""The fleet as a tree for people: every domain and node with a bar for what it holds."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placement.location import natural_key

if TYPE_CHECKING:
    from schemas.cluster import ClusterNode

_BAR_WIDTH = 24
# More nodes than this do not fit a few screens: then each lowest domain stands for its nodes.
NODES_SHOWN_MAX = 60
_STATUS_STYLES = {"dead": "red", "down": "red", "unregistered": "red"}


@dataclass(slots=True)
class _Domain:
    """What stands below one path."""

    replicas: int = 0
    nodes: int = 0
    weight: float = 0.0


def topology_tree(
    nodes: Sequence["ClusterNode"], loads: Mapping[str, int], levels: Sequence[str] = ()
) -> Any:
    """A rich tree of all locations. Bars compare domains of one depth, and nodes, with the fullest
    of their kind. `loads`: replicas by node id; `levels`: names of the tiers."""
    return _tree(nodes, (loads,), levels)


def change_tree(
    nodes: Sequence["ClusterNode"],
    before: Mapping[str, int],
    after: Mapping[str, int],
    levels: Sequence[str] = (),
) -> Any:
    """The same tree with two bars: what each domain and node holds now, and what it will hold."""
    return _tree(nodes, (before, after), levels)


def _tree(
    nodes: Sequence["ClusterNode"], loads: Sequence[Mapping[str, int]], levels: Sequence[str]
) -> Any:
    from rich.text import Text
    from rich.tree import Tree

    domains = [_domains(nodes, each) for each in loads]
    most: dict[int, int] = defaultdict(lambda: 1)
    for path, domain in (pair for each in domains for pair in each.items()):
        most[path.count("/")] = max(most[path.count("/")], domain.replicas)
    fullest = max([1, *(each.get(node.id, 0) for each in loads for node in nodes)])
    root = Tree(Text("/" + "/".join(levels), "dim" if levels else ""), guide_style="dim")
    branches: dict[str, Tree] = {"": root}
    for path in sorted(filter(None, domains[0]), key=natural_key):
        parent, _, name = path.rpartition("/")
        label = _label(name, [each[path] for each in domains], most[path.count("/")])
        branches[path] = branches[parent].add(label, guide_style="dim")
    if len(nodes) > NODES_SHOWN_MAX:
        return root
    if any(not node.location for node in nodes) and len(branches) > 1:
        branches[""] = root.add(Text("(unlocated)", "bold"), guide_style="dim")
    for node in sorted(nodes, key=lambda node: natural_key(node.id)):
        held = [each.get(node.id, 0) for each in loads]
        line = Text.assemble(f"{node.id} ", *_bars(held, fullest, "cyan"))
        if node.status != "up":
            line.append(f" {node.status}", _STATUS_STYLES.get(node.status, "yellow"))
        branches[node.location or ""].add(line)
    return root


def _domains(nodes: Sequence["ClusterNode"], loads: Mapping[str, int]) -> dict[str, _Domain]:
    """Every path that has a node below it, parents before their children."""
    domains: dict[str, _Domain] = {}
    for node in nodes:
        parts = (node.location or "").split("/")
        for depth in range(1, len(parts) + 1):
            domain = domains.setdefault("/".join(parts[:depth]), _Domain())
            domain.replicas += loads.get(node.id, 0)
            domain.nodes += 1
            domain.weight += node.weight
    return domains


def _label(name: str, domain: Sequence[_Domain], most: int) -> Any:
    from rich.text import Text

    last = domain[-1]
    counted = "1 node" if last.nodes == 1 else f"{last.nodes} nodes"
    each = f" on {counted}, {last.replicas / last.weight:.1f} per weight"
    bars = _bars([one.replicas for one in domain], most, "blue")
    return Text.assemble((name, "bold"), " ", *bars, (each, "dim"))


def _bars(counts: Sequence[int], most: int, style: str) -> list[str | tuple[str, str]]:
    """A bar with its count; two are before and after, the second only where it differs."""
    counts = counts if len(set(counts)) > 1 else counts[:1]
    parts: list[str | tuple[str, str]] = []
    for count in counts:
        parts += [*([" → "] if parts else []), (_bar(count, most), style), str(count)]
    return parts


def _bar(count: int, most: int) -> str:
    """The bar with a blank behind it, nothing for nothing."""
    return "█" * max(round(_BAR_WIDTH * count / most), 1) + " " if count else ""
