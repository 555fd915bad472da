"""Violations of nodes that hold more of a resource than fits, or are far from the fleet's mean.

The stream alerts to the first; `placer check` shows both. What the nodes bear comes from the state
of record or from a cluster file.
"""

from collections.abc import Iterator

import numpy as np

from placement.diagnosis.shard import NODE_LEVEL
from placement.model import Code, Reason, Resource, Violation, ViolationClass
from placement.rules import UNSTATED, NodeLoads, Strength, band_edges
from placement.topology import Topology
from placement.wording import format_amount

OVER_CAPACITY_RULE = "fits"
BALANCE_RULE = "balance of"


def resource_violations(topology: Topology, loads: NodeLoads) -> Iterator[Violation]:
    """Yield a violation for each node and resource, those over capacity first, in natural order."""
    yield from over_capacity(topology, loads)
    yield from unbalanced(topology, loads)


def over_capacity(topology: Topology, loads: NodeLoads) -> Iterator[Violation]:
    """Yield a violation for each node that bears more of a resource than fits into it.

    Unfixable where the fleet as a whole has less room than is needed; the reason says how much.
    """
    ranks = topology.order()
    found = sorted(loads.overloads(), key=lambda each: (int(ranks[each.node]), each.resource.name))
    for each in found:
        name, resource = topology.ids[each.node], each.resource.name
        missing = _missing_room(topology, loads, each.resource)
        load, limit = (format_amount(amount, resource) for amount in (each.load, each.limit))
        message = f"node {name} bears {load} of {resource}, {limit} may be filled"
        if missing:
            message += f"; {format_amount(missing, resource)} more would be needed on other nodes"
        kind = ViolationClass.UNFIXABLE if missing else ViolationClass.FIXABLE
        reason = Reason(Code.OVER_CAPACITY, message, each.limit, each.load)
        rule = f"{OVER_CAPACITY_RULE} {resource}"
        yield _violation(rule, Strength.REQUIRED, each.load, each.limit, kind, reason, name)


def unbalanced(topology: Topology, loads: NodeLoads) -> Iterator[Violation]:
    """Yield a violation for each node outside the band around the mean of a balanced resource."""
    order = np.argsort(topology.order())
    for row, resource in enumerate(loads.resources):
        if resource.balance is None:
            continue
        borne, capacity = loads.borne[row], loads.capacity[row]
        least, most, _ = band_edges(borne, capacity, topology.eligible, resource.balance)
        outside = (borne < least) | (borne > most)
        if not outside.any():
            continue
        counted = topology.eligible & (capacity > 0)
        mean_share = int(borne[counted].sum()) / int(capacity[counted].sum())
        low, high = mean_share * (1 - resource.balance), mean_share * (1 + resource.balance)
        for node in order[outside[order]].tolist():
            share, name = borne[node] / capacity[node], topology.ids[node]
            mean = f"{resource.name} is {low:.1%} to {high:.1%} filled on a balanced node"
            message = f"{mean}, node {name} is filled to {share:.1%}"
            edge = int((high if share > high else low) * capacity[node])
            reason = Reason(Code.UNBALANCED, message, edge, int(borne[node]))
            amounts, kind = (int(borne[node]), edge), ViolationClass.FIXABLE
            rule = f"{BALANCE_RULE} {resource.name}"
            yield _violation(rule, Strength.PREFERRED, *amounts, kind, reason, name)


def _missing_room(topology: Topology, loads: NodeLoads, resource: Resource) -> int:
    """Compute how much room all nodes together lack; 0 if some node takes any amount."""
    row = loads.resources.index(resource)
    limit, borne, usable = loads.limit[row], loads.borne[row], topology.eligible
    if (limit[usable] == UNSTATED).any():
        return 0
    excess = int(np.maximum(borne - limit, 0)[limit != UNSTATED].sum())
    return max(excess - int(np.maximum(limit - borne, 0)[usable].sum()), 0)


def _violation(
    rule: str,
    strength: Strength,
    count: int,
    limit: int,
    kind: ViolationClass,
    reason: Reason,
    node_id: str,
) -> Violation:
    word = str(strength)
    return Violation(None, None, rule, word, count, limit, kind, reason, 0, NODE_LEVEL, node_id)
