"""Violations of nodes that hold more of a resource than fits, or are far from the fleet's mean.

The stream alerts to the first; `placer check` shows both. What the nodes bear comes from the state
of record or from a cluster file.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from placement.diagnosis.shard import NODE_LEVEL
from placement.diagnosis.shortage import Demand, ShortageProver
from placement.model import Code, Reason, Violation, ViolationClass
from placement.rules import NodeLoads, Strength, band_edges
from placement.topology import Topology
from placement.wording import format_amount

OVER_CAPACITY_RULE = "fits"
BALANCE_RULE = "balance of"


def resource_violations(
    topology: Topology, loads: NodeLoads, demands: Sequence[Demand]
) -> Iterator[Violation]:
    """Yield a violation for each node and resource, those over capacity first, in natural order.

    `demands`: all streams.
    """
    yield from over_capacity(topology, loads, demands)
    yield from unbalanced(topology, loads)


def over_capacity(
    topology: Topology, loads: NodeLoads, demands: Sequence[Demand]
) -> Iterator[Violation]:
    """Yield a violation for each node that bears more of a resource than fits into it.

    Unfixable where a place has less room than its shards need; the reason says how much and where.
    """
    prover = ShortageProver(topology, loads, demands)
    ranks = topology.order()
    found = sorted(loads.overloads(), key=lambda each: (int(ranks[each.node]), each.resource.name))
    for each in found:
        name, resource = topology.ids[each.node], each.resource.name
        shortage = prover.find(each)
        load, limit = (format_amount(amount, resource) for amount in (each.load, each.limit))
        message = f"node {name} bears {load} of {resource}, {limit} may be filled"
        if shortage:
            more = format_amount(shortage.amount, resource)
            message += f"; {more} more would be needed {shortage.place}"
        kind = ViolationClass.UNFIXABLE if shortage else ViolationClass.FIXABLE
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
