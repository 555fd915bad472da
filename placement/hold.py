"""The hold: when so much is gone at once that the cause is hardly the nodes themselves.

Many nodes together, or a whole domain, mean a switch, a power feed or a mistake; copying everything
elsewhere would make it worse (needs N3, CC#1137, `mon_osd_down_out_subtree_limit`).
"""

from dataclasses import dataclass

import numpy as np

from placement.location import natural_key
from placement.model import Liveness
from placement.topology import Scope, Topology

# Cruise Control's figures: `fixable.failed.broker.count.threshold` and `...percentage.threshold`.
HOLD_NODES = 10
HOLD_SHARE = 0.4
# A domain of fewer nodes is not told apart from a few nodes that fail.
HOLD_DOMAIN_NODES = 3


@dataclass(frozen=True, slots=True)
class Hold:
    """Why repair would be suspended; `domain` is what is gone, None where it is nodes here and
    there."""

    domain: str | None
    reason: str


def find_hold(topology: Topology) -> Hold | None:
    """What would make the running reconciler hold, had all dead nodes died at once.

    Nodes that left on purpose do not count. A domain counts at a level that has another beneath.
    """
    gone = [liveness is Liveness.UNREGISTERED for liveness in topology.liveness]
    known = ~np.asarray(gone, bool)
    dead = np.asarray([liveness is Liveness.DEAD for liveness in topology.liveness], bool)
    if not dead.any():
        return None
    for scope in topology.tiers()[:-1]:
        domain = _lost(topology, scope, known, dead)
        if domain:
            inside = int((dead & (topology.domain_of(scope) == domain[1])).sum())
            return Hold(domain[0], f"all {inside} nodes of {domain[0]} are dead")
    total, lost = int(known.sum()), int(dead.sum())
    most = max(HOLD_NODES, HOLD_SHARE * total)
    if lost > most:
        return Hold(None, f"{lost} of {total} nodes are dead, more than {most:g}")
    return None


def _lost(
    topology: Topology, scope: Scope, known: np.ndarray, dead: np.ndarray
) -> tuple[str, int] | None:
    """The first domain, by name, of which every node is dead."""
    domains = topology.domain_of(scope)
    found = []
    for domain in np.unique(domains[dead]).tolist():
        inside = known & (domains == domain)
        if inside.sum() >= HOLD_DOMAIN_NODES and dead[inside].all():
            found.append((topology.domain_name(scope, domain), domain))
    return min(found, key=lambda each: natural_key(each[0]), default=None)
