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
    from rich.text import Text
    from rich.tree import Tree

    domains = _domains(nodes, loads)
    most: dict[int, int] = defaultdict(lambda: 1)
    for path, domain in domains.items():
        most[path.count("/")] = max(most[path.count("/")], domain.replicas)
    fullest = max([1, *(loads.get(node.id, 0) for node in nodes)])
    root = Tree(Text("/" + "/".join(levels), "dim" if levels else ""), guide_style="dim")
    branches: dict[str, Tree] = {"": root}
    for path in sorted(filter(None, domains), key=natural_key):
        parent, _, name = path.rpartition("/")
        label = _label(name, domains[path], most[path.count("/")])
        branches[path] = branches[parent].add(label, guide_style="dim")
    if len(nodes) > NODES_SHOWN_MAX:
        return root
    if any(not node.location for node in nodes) and len(branches) > 1:
        branches[""] = root.add(Text("(unlocated)", "bold"), guide_style="dim")
    for node in sorted(nodes, key=lambda node: natural_key(node.id)):
        held = loads.get(node.id, 0)
        line = Text.assemble(f"{node.id} ", (_bar(held, fullest), "cyan"), str(held))
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


def _label(name: str, domain: _Domain, most: int) -> Any:
    from rich.text import Text

    counted = "1 node" if domain.nodes == 1 else f"{domain.nodes} nodes"
    each = f" on {counted}, {domain.replicas / domain.weight:.1f} per weight"
    bar = _bar(domain.replicas, most)
    return Text.assemble((name, "bold"), " ", (bar, "blue"), str(domain.replicas), (each, "dim"))


def _bar(count: int, most: int) -> str:
    """The bar with a blank behind it, nothing for nothing."""
    return "█" * max(round(_BAR_WIDTH * count / most), 1) + " " if count else ""
