"""Base of strategies that plan the nodes of a shard as a set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from placement.allocator.choose import candidates, distance, find_unmet
from placement.allocator.leader_election import elect_leaders, put_in_front
from placement.allocator.node_sets import load_costs
from placement.allocator.slot_filling import fill_slots
from placement.allocator.strategy import ByRules
from placement.allocator.view import Placement, ReplicaRequest, View
from placement.assignments import EMPTY
from placement.model import Reason, StreamSpec
from placement.policy import Policy
from placement.rules import Mask, Rule, RuleSet
from placement.topology import Topology

# Costs that outrank load are counted in units above any sum of it.
_NEARNESS_UNIT = 1 << 90


class SetPlanner(Protocol):
    """Members that a strategy of this kind has to bring."""

    def rules(self, policy: Policy, topology: Topology, /) -> tuple[Rule, ...]:
        """List the rules of the strategy under this policy."""
        ...

    def plan(
        self, need: ReplicaRequest, policy: Policy, mask: Mask, view: View, /
    ) -> list[int] | Reason:
        """Plan all nodes that complete the shard, best first, or say why there is none."""
        ...


@dataclass(frozen=True, slots=True)
class SetStrategy(ByRules):
    """`place` and `extend` of a strategy that plans whole sets."""

    def place(self: SetPlanner, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        """Plan shard by shard; slots beyond the planned set stay empty with the reason."""
        planned: list[int] = []
        by_slot = bool(RuleSet(policy.rules).roles)

        def pick(need: ReplicaRequest, mask: Mask) -> int | Reason:
            if not (need.kept and planned and mask[planned[0]]):
                found = self.plan(need, policy, mask, view)
                if isinstance(found, Reason):
                    return found
                planned[:] = found if need.kept or by_slot else put_least_leading_first(found, view)
            return planned.pop(0)

        shards, reasons = fill_slots(spec, policy, view, pick)
        _lead_evenly(shards, policy, view)
        rules = self.rules(policy, view.topology)
        return Placement(shards, reasons, find_unmet(rules, shards, spec, policy, view.topology))

    def resume(
        self: SetPlanner, spec: StreamSpec, policy: Policy, shards: list[list[int]], view: View
    ) -> tuple[Reason, ...]:
        """Complete the shards around the replicas they have.

        Under rules of the user, which may look at other shards, `extend` adds each replica.
        """
        if policy.rules:
            return ()
        fresh = []
        for shard, nodes in enumerate(shards):
            kept = [node for node in nodes if node != EMPTY]
            if len(kept) == len(nodes):
                continue
            view.turn_to(shard)
            need = ReplicaRequest(
                spec.stream, shard, len(kept), len(nodes), kept, nodes=policy.nodes
            )
            found = self.plan(need, policy, candidates(policy, view), view)
            if isinstance(found, Reason):
                continue
            if not kept:
                found = put_least_leading_first(found, view)
                fresh.append(nodes)
            nodes[len(kept) : len(kept) + len(found)] = found
            for node in found:
                view.add(node, leader=node == nodes[0])
        _lead_evenly(fresh, policy, view)
        return ()

    def extend(
        self: SetPlanner, need: ReplicaRequest, policy: Policy, mask: Mask, view: View
    ) -> int | Reason:
        """Choose the first node of the set that completes the shard best."""
        found = self.plan(need, policy, mask, view)
        return found if isinstance(found, Reason) else found[0]


def _lead_evenly(shards: Sequence[list[int]], policy: Policy, view: View) -> None:
    """Pass the lead of these shards to those of their nodes that lead less.

    Not if the user has rules, which may be about leaders.
    """
    able = view.topology.can_lead & view.topology.eligible
    led = [nodes for nodes in shards if nodes[0] != EMPTY and able[nodes[0]]]
    if policy.rules or not led:
        return
    for nodes in led:
        view.leaders[nodes[0]] -= 1
    members = [[node for node in nodes if node != EMPTY and able[node]] for nodes in led]
    for nodes, leader in zip(led, elect_leaders(members, view, levels=False), strict=True):
        nodes[:] = put_in_front(leader, nodes)


def placing_costs(need: ReplicaRequest, view: View) -> list[int]:
    """Price one more replica on each node: nearness to the replaced one, then load."""
    costs = load_costs(view)
    if need.replaces == EMPTY:
        return costs
    climbs = distance(view.topology, need.replaces).tolist()
    return [climb * _NEARNESS_UNIT + cost for climb, cost in zip(climbs, costs, strict=True)]


def put_least_leading_first(nodes: list[int], view: View) -> list[int]:
    """Put the node that may lead and leads least for its weight in front."""
    able = [node for node in nodes if view.topology.can_lead[node]]
    if not able:
        return nodes
    leads, weight = view.leaders, view.topology.weight
    leader = min(able, key=lambda node: (leads[node] / weight[node], nodes.index(node)))
    return put_in_front(leader, nodes)
