"""The hold: when so much is gone at once that the cause is hardly the nodes themselves.

Many nodes together, or a whole domain, mean a switch, a power feed or a mistake; copying everything
elsewhere would make it worse (CC#1137, `mon_osd_down_out_subtree_limit`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.model import Liveness, natural_key
from placement.topology import Scope, Topology

# Cruise Control's figures: `fixable.failed.broker.count.threshold` and `...percentage.threshold`.
HOLD_NODES = 10
HOLD_SHARE = 0.4
# A domain of fewer nodes is not told apart from a few nodes that fail.
HOLD_DOMAIN_NODES = 3
# Where an operator names the levels, two nodes of a domain that go together are enough, as in a
# small Kafka cluster with two brokers to an availability zone; one alone is a node that fails.
HOLD_NAMED_DOMAIN_NODES = 2


@dataclass(frozen=True, slots=True)
class HoldTrigger:
    """Reason to suspend repair; `domain` is the lost one, None if nodes are lost here and there.

    `nodes`: how many are gone.
    """

    domain: str | None
    reason: str
    nodes: int


def find_hold(topology: Topology) -> HoldTrigger | None:
    """Find what would make the running reconciler hold, had all dead nodes died at once.

    Nodes that left on purpose do not count. A domain counts at a level that has another beneath.
    """
    left = [liveness is Liveness.UNREGISTERED for liveness in topology.liveness]
    dead = np.asarray([liveness is Liveness.DEAD for liveness in topology.liveness], bool)
    there = ~np.asarray(left, bool)
    return next(lost_domains(topology, there, dead, "dead"), None) or lost_share(
        there, dead, "dead"
    )


def lost_domains(
    topology: Topology,
    there: NDArray[np.bool_],
    gone: NDArray[np.bool_],
    word: str,
    levels: tuple[str, ...] | None = None,
) -> Iterator[HoldTrigger]:
    """List the domains of which every node that was `there` is `gone` (masks by node).

    Top level first and by name; `word` says how nodes go. `levels`: only domains of these levels,
    None for every level that has another beneath.
    """
    if not gone.any():
        return
    tiers, fewest = topology.tiers()[:-1], HOLD_DOMAIN_NODES
    if levels is not None:
        fewest = HOLD_NAMED_DOMAIN_NODES
        depths = enumerate(topology.levels, start=1)
        tiers = tuple(Scope(depth=depth, name=name) for depth, name in depths if name in levels)
    for scope in tiers:
        for name, count in _find_lost_domains(topology, scope, there, gone, fewest):
            yield HoldTrigger(name, f"all {count} nodes of {name} are {word}", count)


def lost_share(there: NDArray[np.bool_], gone: NDArray[np.bool_], word: str) -> HoldTrigger | None:
    """Return a trigger if more nodes are gone than a few, wherever they stand."""
    total, lost = int(there.sum()), int((there & gone).sum())
    most = max(HOLD_NODES, HOLD_SHARE * total)
    if lost <= most:
        return None
    return HoldTrigger(None, f"{lost} of {total} nodes are {word}, the limit is {most:g}", lost)


def _find_lost_domains(
    topology: Topology,
    scope: Scope,
    there: NDArray[np.bool_],
    gone: NDArray[np.bool_],
    fewest: int,
) -> list[tuple[str, int]]:
    """Find the domains of at least `fewest` nodes of which every node is gone.

    They are of one level, by name, with their sizes.
    """
    domains = topology.domain_of(scope)
    found = []
    for domain in np.unique(domains[there & gone]).tolist():
        inside = there & (domains == domain)
        if not topology.domains[domain].components:
            continue  # nodes without a location have nothing in common
        if inside.sum() >= fewest and gone[inside].all():
            found.append((topology.domain_name(scope, domain), int(inside.sum())))
    return sorted(found, key=lambda each: natural_key(each[0]))
