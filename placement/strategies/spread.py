"""The default strategy: even at every level, by weight, within the user's rules."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement.assignments import EMPTY
from placement.model import StreamSpec
from placement.policy import OnInfeasible, Policy
from placement.reasons import Code, Reason
from placement.rules import Even, Rule, Strength
from placement.strategies.base import ByRules, Need, Placement, View, candidates, choose, unmet
from placement.topology import Topology


@dataclass(frozen=True, slots=True)
class SpreadStrategy(ByRules):
    """Spread replicas over all failure domains, and load over all nodes.

    Goals, in this order:
        1. A shard's replicas are even over the domains of every level, top level first.
        2. Load per weight is even over domains, then over nodes.
        3. Leaders are even over nodes.

    Constraints:
        Distinct nodes; the user's required rules and node filters; capacity. They are never
        broken: a replica that finds no node under them stays unplaced and is retried.

    Algorithm:
        One replica after the other is placed on the node that `choose` ranks first: preferred
        evenness level by level, then the least loaded domain level by level, then the least
        loaded node, then a hash of the shard and the node. The member with the fewest leaders
        per weight leads.

    Example:
        Three replicas over /eu/az1, /eu/az2 and /us/az1 with two nodes each: one replica in /eu
        and one in /us first, then the third in whichever region carries less load, in an
        availability zone not used yet.
    """

    name: str = "spread"
    aliases: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    on_infeasible: OnInfeasible = OnInfeasible.DEGRADE

    def compile(
        self, _policy: Mapping[str, Any], _topology: Topology
    ) -> Mapping[str, Any] | Reason:
        """It has no parameters of its own."""
        return {}

    def rules(self, policy: Policy, topology: Topology) -> tuple[Rule, ...]:
        """Evenness at every level, preferred, after the user's rules."""
        return (*policy.rules, *(Even(tier, Strength.PREFERRED) for tier in topology.tiers()))

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        """Place shard by shard; slots that find no node stay empty with a reason."""
        rules = self.rules(policy, view.topology)
        shards: list[list[int]] = []
        used: list[int] = []
        reasons: dict[Code, Reason] = {}
        for shard in range(spec.shards):
            kept: list[int] = []
            for slot in range(spec.replication_factor):
                mask = candidates(policy, view)
                if slot == spec.replication_factor - 1 and not view.topology.can_lead[kept].any():
                    mask &= view.topology.can_lead
                need = Need(
                    spec.stream, shard, slot, spec.replication_factor, kept, used, policy.nodes
                )
                node = choose(rules, mask, need, view)
                if isinstance(node, Reason):
                    reasons.setdefault(node.code, node)
                    break
                view.add(node)
                kept.append(node)
            used.extend(kept)
            ordered = _leader_first(kept, view)
            shards.append(ordered + [EMPTY] * (spec.replication_factor - len(ordered)))
        warnings = unmet(rules, shards, spec, policy, view.topology)
        return Placement(shards, tuple(reasons.values()), warnings)


def _leader_first(kept: list[int], view: View) -> list[int]:
    """The chosen nodes with the least loaded possible leader in front."""
    able = [node for node in kept if view.topology.can_lead[node]] or kept
    if not able:
        return kept
    rank = view.topology.order()
    leader = min(
        able,
        key=lambda n: (
            view.leaders[n] / view.topology.weight[n],
            kept.index(n) if view.leaders[n] == 0 else 0,
            int(rank[n]),
        ),
    )
    view.leaders[leader] += 1
    return [leader, *(node for node in kept if node != leader)]
