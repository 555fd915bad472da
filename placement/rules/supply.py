"""Counts, filter by filter, how many nodes may take one more replica: the supply of nodes.

Reasons of decisions and violations, `explain` and diagnosis count with the same masks and describe
the supply in the same words: how many nodes are known, up, admitted by each filter of the policy,
have room, do not hold the shard yet, keep each required rule. A step that excludes no node is left
out, and the first step that leaves no node is the last, so that a sentence stays short for any
fleet.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placement.model import Code, Liveness, natural_key
from placement.rules.fits import Lack
from placement.rules.rule import Mask, Rule
from placement.topology import NodeFilter, Topology
from placement.wording import format_amount, format_share

# Of several domains, tags or ids in a sentence so many are named, the others are counted.
_NAMED_MAX = 3
# A reason is at most 8,192 characters long in a record; a policy of 64 tags would fill it.
_CLAUSE_MAX = 2_000


@dataclass(frozen=True, slots=True)
class SupplyStep:
    """One filter of the supply: the number of nodes that pass it, and the words for it.

    `some` follows the number of nodes that pass; `none` follows "none of which", or with `each`
    "each of which", if no node passes.
    """

    left: int
    some: str
    none: str
    each: bool = False


@dataclass(frozen=True, slots=True)
class Supply:
    """The nodes that a policy admits, before anything is placed.

    - `known`: the number of registered nodes.
    - `parts`: the steps that exclude nodes.
    - `mask`: the nodes that are left.
    - `deserted`: whether no node stands in a domain of `within`.
    """

    known: int
    parts: tuple[SupplyStep, ...]
    mask: Mask
    deserted: bool = False

    @property
    def code(self) -> Code:
        """The reason code of a shortage."""
        return Code.DOMAIN_UNKNOWN if self.deserted else Code.NODES_TOO_FEW

    def describe(self, *more: SupplyStep) -> str:
        """Describe all steps and `more` ones in a clause, as "of 6 nodes, 4 up ..."."""
        clause = self._describe_all(*more)
        return clause if len(clause) <= _CLAUSE_MAX else f"{clause[:_CLAUSE_MAX]}…"

    def _describe_all(self, *more: SupplyStep) -> str:
        if not self.known:
            return "no node is registered"
        head = f"of {self.known} nodes" if self.known > 1 else "of one node"
        said, before = [head], self.known
        for part in (*self.parts, *more):
            if part.left == before:
                continue
            if not part.left:
                word = "each" if part.each else "none"
                if not said[1:] and self.known > 1:
                    return f"{word} of the {self.known} nodes {part.none}"
                which = f", {word} of which" if said[1:] else f" {word}"
                if part.each and before == 1:
                    which = ", which"
                return f"{', '.join(said)}{which} {part.none}"
            said.append(part.some)
            before = part.left
        if said[1:]:
            return ", ".join(said)
        return f"there are {before}" if before > 1 else "there is one"

    def excludes_nodes(self, *more: SupplyStep) -> bool:
        """Return whether any step excludes a node."""
        return any(part.left < self.known for part in (*self.parts, *more))


def supply(topology: Topology, nodes: NodeFilter, fenced: bool = False) -> Supply:
    """Return the supply of a policy's filter; cached until a node's condition changes.

    With `fenced`, suspect nodes count as up.
    """

    def make() -> Supply:
        up = topology.eligible | topology.fenced if fenced else topology.eligible
        return _supply(topology, nodes, up)

    return topology.derive(("supply", nodes, fenced), make, by_condition=True)


def supply_of(topology: Topology, nodes: NodeFilter, usable: Mask) -> Supply:
    """Compute the supply with the nodes `usable` besides those that are up.

    For instance suspect nodes that keep their replicas; whether the topology has them eligible does
    not matter.
    """
    up = [topology.status(node) == Liveness.UP for node in range(topology.size)]
    return _supply(topology, nodes, usable | np.array(up, bool))


def _supply(topology: Topology, nodes: NodeFilter, up: Mask) -> Supply:
    everyone = np.zeros(topology.size, bool)
    everyone[list(topology.index.values())] = True
    mask = everyone & up
    away = np.flatnonzero(everyone & ~mask).tolist()
    parts = [_up_step(int(mask.sum()), Counter(map(topology.status, away)))]
    for each, some, none in _filters(nodes, topology, everyone):
        mask = mask & each.mask(topology)
        left = int(mask.sum())
        parts.append(SupplyStep(left, f"{left} {some}", none))
    inside = everyone & NodeFilter(nodes.within).mask(topology)
    count = int(everyone.sum())
    return Supply(count, tuple(parts), mask, bool(count and not inside.any()))


def _up_step(left: int, away: Counter[str]) -> SupplyStep:
    """Make the step of nodes that may receive replicas, with the condition of the others."""
    told = ", ".join(f"{count} {word}" for word, count in sorted(away.items(), key=_most_first))
    why = f" ({told})" if told else ""
    words = "up and accepting replicas"
    return SupplyStep(left, f"{left} {words}{why}", f"is {words}{why}")


def _most_first(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _filters(
    nodes: NodeFilter, topology: Topology, everyone: Mask
) -> list[tuple[NodeFilter, str, str]]:
    """List each filter of the policy by itself, with its words for nodes that pass and for none."""
    found = []
    if nodes.within:
        each = NodeFilter(within=nodes.within)
        lost = "" if (everyone & each.mask(topology)).any() else ": no node stands there"
        said = f"within {format_names(nodes.within)}"
        found.append((each, said, f"is {said}{lost}"))
    if nodes.avoid:
        said = f"outside {format_names(nodes.avoid)}"
        found.append((NodeFilter(avoid=nodes.avoid), said, f"is {said}"))
    if nodes.nodes:
        known = any(each in topology.index for each in nodes.nodes)
        lost = "" if known else ": no such node is registered"
        said = f"listed in nodes {format_names(nodes.nodes)}"
        found.append((NodeFilter(nodes=nodes.nodes), said, f"is {said}{lost}"))
    for key, value in nodes.with_tags:
        said = f"with {key}={value}"
        each = NodeFilter(with_tags=((key, value),))
        lost = "" if (everyone & each.mask(topology)).any() else _values(key, topology, everyone)
        found.append((each, said, f"has {key}={value}{lost}"))
    return found


def _values(key: str, topology: Topology, everyone: Mask) -> str:
    """List the values that nodes have instead of a missing value of a tag."""
    tags = (dict(topology.attributes[node].tags) for node in np.flatnonzero(everyone).tolist())
    values = sorted({each[key] for each in tags if key in each}, key=natural_key)
    if not values:
        return f": no node has a tag {key}"
    return f": the nodes have {key}={format_names(values)}"


def format_names(values: Sequence[object]) -> str:
    """Format a list in brackets, cut to the first few."""
    shown = ", ".join(map(str, values[:_NAMED_MAX]))
    left = len(values) - _NAMED_MAX
    return f"[{shown}, and {left} more]" if left > 0 else f"[{shown}]"


def room_step(left: int, lacks: Sequence[Lack] = (), full: bool = True) -> SupplyStep:
    """Make the step of nodes with room for one more replica.

    `lacks`: the resources of which other nodes have too little; `full`: whether others hold as many
    replicas as they may.
    """
    if not lacks:
        return SupplyStep(left, f"{left} with free capacity", "has free capacity")
    needs = " and ".join(format_share(each.needed, each.resource) for each in lacks)
    said = f"free capacity and {needs} free" if full else f"{needs} free"
    tell = format_amount if len(lacks) == 1 else format_share
    most = [tell(each.free, each.resource) for each in lacks if each.free < each.needed]
    least = f", at most {' and '.join(most)}" if most else ""
    return SupplyStep(left, f"{left} with {said}", f"has {said}{least}")


def allowed_step(left: int) -> SupplyStep:
    """Make the step of nodes that nothing else keeps from this replica.

    Limits, a failed move a moment ago, or conditions of the strategy.
    """
    said = "allowed by limits, backoff and strategy"
    return SupplyStep(left, f"{left} {said}", f"is {said}")


def distinct_node_step(left: int) -> SupplyStep:
    """Make the step of nodes that hold no replica of the shard."""
    held = "another replica of the shard"
    return SupplyStep(left, f"{left} without {held}", f"holds {held}", each=True)


def rule_step(rule: Rule, left: int) -> SupplyStep:
    """Make the step of nodes on which a replica keeps a required rule."""
    keep = "keeps" if left == 1 else "keep"
    return SupplyStep(left, f"{left} that {keep} '{rule}'", f"keeps the required rule '{rule}'")


def location_step(left: int) -> SupplyStep:
    """Make the step of nodes with a location, where these come first."""
    return SupplyStep(left, f"{left} with a location", "has a location")


def why_not_admitted(nodes: NodeFilter, topology: Topology, node: int) -> str | None:
    """Explain which filter does not admit a node; None if all do."""
    name, here = topology.ids[node], topology.locations[node]
    place = f"it is at {here}" if here.depth else "it has no location"
    if nodes.within and not any(here.is_within(domain) for domain in nodes.within):
        return f"within {format_names(nodes.within)} does not admit {name}: {place}"
    if any(here.is_within(domain) for domain in nodes.avoid):
        return f"avoid {format_names(nodes.avoid)} keeps replicas off {name}: {place}"
    if nodes.nodes and name not in nodes.nodes:
        return f"nodes {format_names(nodes.nodes)} does not list {name}"
    tags = dict(topology.attributes[node].tags)
    for key, value in nodes.with_tags:
        if tags.get(key) != value:
            return f"with_tags {key}={value} does not admit {name}: {describe_tag(key, tags)}"
    return None


def describe_tag(key: str, tags: dict[str, str]) -> str:
    """Describe the value that a node has of a tag."""
    return f"it has {key}={tags[key]}" if key in tags else f"it has no tag {key}"
