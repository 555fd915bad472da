"""Kafka Streams' rack-aware standby tasks (KIP-708): no client tag value shared by two holders.

Shards planned one after the other can leave one node too full and another too empty with no single
replica that could move between them. Replicas then change places along chains over nodes in
between, whose load stays as it was, as in a minimum cost flow.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.allocator import (
    Column,
    Placement,
    ReplicaRequest,
    SetStrategy,
    View,
    candidates,
    choose,
    exclude_taken,
    explain_no_node,
    find_best_set,
    placing_costs,
)
from placement.assignments import EMPTY
from placement.model import Code, Reason, StreamSpec, natural_key
from placement.policy import Balance, OnInfeasible, Policy, name_list
from placement.rules import AtMost, Mask, Penalties, Rule, RuleContext, Strength
from placement.topology import NO_DOMAIN, Scope, Topology

# Slots times nodes beyond which what was planned shard by shard is left as it is: about a second.
_WORK_MAX = 400_000

Alternatives = Callable[[int, int], Iterable[int]]
"""Nodes on which the replica of (shard, slot) would be worth as much as where it is."""

_Step = tuple[int, int, int]  # shard, slot, node


def even_out(
    shards: Sequence[list[int]], slots: Sequence[range], alternatives: Alternatives, view: View
) -> None:
    """Move replicas in `slots` of `shards` until no chain lowers the sum of load²/weight."""
    if sum(map(len, slots)) * view.topology.size > _WORK_MAX:
        return
    replicas_on: dict[int, dict[tuple[int, int], None]] = {}
    for shard, free in enumerate(slots):
        for slot in free:
            if shards[shard][slot] != EMPTY:
                replicas_on.setdefault(shards[shard][slot], {})[shard, slot] = None
    while True:
        chain = _find_best_chain(replicas_on, alternatives, view)
        if not chain:
            return
        for shard, slot, node in chain:
            before = shards[shard][slot]
            del replicas_on[before][shard, slot]
            replicas_on.setdefault(node, {})[shard, slot] = None
            shards[shard][slot] = node
            view.remove(before)
            view.add(node)


def _find_best_chain(
    replicas_on: dict[int, dict[tuple[int, int], None]], alternatives: Alternatives, view: View
) -> list[_Step]:
    """Find the chain from the fullest node that has one to the emptiest it reaches."""
    rank = view.topology.order().tolist()
    load, weight = view.load.tolist(), view.topology.weight.tolist()
    relief = {
        node: (2 * load[node] - 1) / weight[node] for node in replicas_on if replicas_on[node]
    }
    for source in sorted(relief, key=lambda node: (-relief[node], rank[node])):
        came: dict[int, tuple[int, _Step] | None] = {source: None}
        queue = deque([source])
        while queue:
            node = queue.popleft()
            on_the_way = {step[0] for step in _trace_chain(came, node)}
            for shard, slot in sorted(replicas_on.get(node, ())):
                if shard in on_the_way:
                    continue
                for other in sorted(alternatives(shard, slot), key=rank.__getitem__):
                    if other not in came:
                        came[other] = node, (shard, slot, other)
                        queue.append(other)
        burden = {node: (2 * load[node] + 1) / weight[node] for node in came if node != source}
        if burden:
            best = min(burden, key=lambda node: (burden[node], rank[node]))
            if burden[best] < relief[source] - 1e-9:
                return _trace_chain(came, best)
    return []


def _trace_chain(came: dict[int, tuple[int, _Step] | None], node: int) -> list[_Step]:
    """List the steps that lead to a node, the last one first, so that each finds room."""
    steps: list[_Step] = []
    before = came[node]
    while before is not None:
        steps.append(before[1])
        before = came[before[0]]
    return steps


# StreamsConfig: MAX_RACK_AWARE_ASSIGNMENT_TAG_LIST_SIZE, ..._TAG_KEY_LENGTH, ..._TAG_VALUE_LENGTH.
_KEYS_MAX = 5
_KEY_LENGTH_MAX = 20
_VALUE_LENGTH_MAX = 30
# Above every other cost: a node of which nothing is known comes after those that carry the tags.
_UNTAGGED = 1 << 120


@dataclass(frozen=True, slots=True)
class DistinctTags(AtMost):
    """At most one holder per value of a key of tags.

    A node without the key shares no value, as in KIP-708; a preferred rule minds it less than a
    shared value.
    """

    def penalty(self, standing: RuleContext) -> Penalties:
        """Count as `AtMost` does; where values may be shared, none for a node without the key."""
        penalties = super(DistinctTags, self).penalty(standing)
        if self.strength is Strength.PREFERRED:
            penalties[standing.topology.domain_of(self.per) == NO_DOMAIN] = 0
        return penalties


@dataclass(frozen=True, slots=True)
class ClientTagsStrategy(SetStrategy):
    """Standby placement of Kafka Streams (KIP-708, `ClientTagAwareStandbyTaskAssignor`).

    Goals, in this order:
        1. Ideal: no two holders of a shard, the active one included, share a value of any key of
           `rack_aware_tags`.
        2. Where there is no ideal set: the most keys kept so; of equally many those named first;
           then the evenest spread over the values of the other keys, in their order.
        3. The load by weight (a client's threads), replicas of all streams counted, is even.

    Constraints:
        The given first replica is the active one and stays; a stream that brings none gets the
        member of the best set that leads least. Distinct nodes, the user's required rules, node
        filters and capacity are never broken. At most five keys of 20 characters with values of
        30; a key that no live node carries is refused. A node without a key shares no value of
        it, and is used after those that have one.

    Algorithm:
        For every subset of the keys, the largest and first-named first, the best set of nodes
        (see `node_sets`) that keeps those keys and is as even as can be in the others. Kafka takes
        one client after the other and may so miss an ideal set, stacks 3/1/1 copies where 2/2/1
        exists, forgets all keys where it cannot keep all, and balances load in some orders of the
        tasks only. Here a shard's answer depends on the loads alone, which whole sets are chosen
        to even out. Rebalancing leaves replicas where they are.

    Example:
        Clusters 1 to 3 with zones a to c, nodes 1 = 1a, 2 = 1b … 9 = 3c, two standbys: for an
        active on 1 they stand on 5 (2b) and 9 (3c), or on 6 (2c) and 8 (3b).
    """

    name: str = "client_tags"
    aliases: tuple[str, ...] = ("kafka_streams",)
    parameters: tuple[str, ...] = ("rack_aware_tags",)
    on_infeasible: OnInfeasible = OnInfeasible.DEGRADE
    balance: ClassVar[Balance] = Balance.NEVER
    on_shortage: ClassVar[OnInfeasible] = OnInfeasible.PARTIAL

    def compile(self, policy: Mapping[str, Any], _topology: Topology) -> Mapping[str, Any] | Reason:
        """Check `rack_aware_tags`: the keys in order of priority. Without keys only load counts, as
        in Kafka."""
        listed = name_list("rack_aware_tags", policy.get("rack_aware_tags", ()))
        if isinstance(listed, Reason):
            return listed
        keys = tuple(dict.fromkeys(key.removeprefix("tag:") for key in listed))
        if len(keys) > _KEYS_MAX:
            message = f"policy: rack_aware_tags lists {len(keys)} keys, at most {_KEYS_MAX}"
            return Reason(Code.POLICY_MALFORMED, f"{message} are allowed", _KEYS_MAX, len(keys))
        for key in keys:
            if len(key) > _KEY_LENGTH_MAX:
                message = f"policy: rack_aware_tags: key '{key}' has {len(key)} characters, "
                message += f"at most {_KEY_LENGTH_MAX} are allowed"
                return Reason(Code.POLICY_MALFORMED, message, _KEY_LENGTH_MAX, len(key))
        return {"rack_aware_tags": keys}

    def find_fault(self, _spec: StreamSpec, policy: Policy, topology: Topology) -> Reason | None:
        """Find a key that no live node carries, or a value that is too long."""
        nodes = (node for node in topology.index.values() if not topology.is_dead(node))
        alive = [topology.attributes[node].tags for node in nodes]
        known = {key for tags in alive for key, _ in tags}
        for key in policy.parameters["rack_aware_tags"]:
            if key not in known:
                seen = tuple(sorted(known, key=natural_key))
                message = f"rack_aware_tags: no live node has the tag '{key}'; "
                message += f"tags are {', '.join(seen) or 'unknown'}"
                return Reason(Code.LEVEL_UNKNOWN, message, level=key, seen=seen)
            values = sorted({dict(tags).get(key, "") for tags in alive}, key=natural_key)
            for value in values:
                if len(value) > _VALUE_LENGTH_MAX:
                    message = f"tag {key}={value} has {len(value)} characters, at most "
                    message += f"{_VALUE_LENGTH_MAX} are allowed in rack_aware_tags"
                    return Reason(
                        Code.POLICY_MALFORMED, message, _VALUE_LENGTH_MAX, len(value), key
                    )
        return None

    def rules(self, policy: Policy, _topology: Topology) -> tuple[Rule, ...]:
        """List the user's rules, then at most one holder per value of every key."""
        return (*policy.rules, *_ideal_rules(policy))

    def plan(
        self, need: ReplicaRequest, policy: Policy, mask: Mask, view: View
    ) -> list[int] | Reason:
        """Plan the nodes that complete the shard best, or explain why there are none."""
        topology = view.topology
        keys = [topology.domain_of(rule.per) for rule in _ideal_rules(policy)]
        untagged = np.zeros(topology.size, np.int64)
        for domains in keys:
            untagged += domains == NO_DOMAIN
        costs = [
            cost + _UNTAGGED * missing
            for cost, missing in zip(placing_costs(need, view), untagged.tolist(), strict=True)
        ]
        ranks = topology.order().tolist()

        def search(kept: Sequence[int], open_nodes: Mask) -> list[int]:
            columns = [Column(d, 1 if i in kept else None) for i, d in enumerate(keys)]
            return find_best_set(need, columns, open_nodes, view, policy.rules, costs, ranks)

        every = range(len(keys))
        if policy.strength is Strength.REQUIRED:
            found = search(every, mask & (untagged == 0))
        else:
            found = _keep_most_keys(search, [i for i in every if _is_distinct(keys[i], need)], mask)
        return found or self._choose_or_explain(need, policy, mask, view)

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        """Plan shard by shard, then even out the standbys."""
        placed = super(ClientTagsStrategy, self).place(spec, policy, view)
        if isinstance(placed, Placement):
            shards = [list(nodes) for nodes in placed.shards]
            self._even_out(shards, [1] * len(shards), policy, view)
            placed = replace(placed, shards=shards)
        return placed

    def resume(
        self, spec: StreamSpec, policy: Policy, shards: list[list[int]], view: View
    ) -> tuple[Reason, ...]:
        """Complete the shards around the replicas they have, then even out the new ones."""
        if policy.rules:
            return ()
        rank = view.topology.order()
        # Tasks are taken in an order of their own, so that theirs in the stream is all the same,
        # unless their numbers say what they bear.
        if view.shards_alike:
            shards = sorted(shards, key=lambda nodes: [int(rank[n]) for n in nodes if n != EMPTY])
        given = [sum(node != EMPTY for node in nodes) for nodes in shards]
        reasons = super(ClientTagsStrategy, self).resume(spec, policy, shards, view)
        self._even_out(shards, [max(count, 1) for count in given], policy, view)
        return reasons

    def _even_out(
        self, shards: list[list[int]], fixed: Sequence[int], policy: Policy, view: View
    ) -> None:
        """Move replicas behind the first `fixed` of each shard between nodes of equal worth.

        Nodes are of equal worth if every key of tags treats them alike. Under rules of the user,
        which may not, everything stays; so it does where shards are not alike in what they bear.
        """
        if policy.rules or not view.shards_alike:
            return
        keys = [view.topology.domain_of(rule.per) for rule in _ideal_rules(policy)]

        def alternatives(shard: int, slot: int) -> list[int]:
            node = shards[shard][slot]
            others = [n for s, n in enumerate(shards[shard]) if s != slot and n != EMPTY]
            same = candidates(policy, view)
            same[shards[shard]] = False
            for domains in keys:
                counts = np.bincount(domains[others] + 1, minlength=int(domains.max(initial=0)) + 2)
                counts[NO_DOMAIN + 1] = -1  # no tag is no worth like any other
                shared = counts[domains + 1]
                same &= shared == shared[node]
            alike: list[int] = np.flatnonzero(same).tolist()
            return alike

        slots = [range(first, len(nodes)) for first, nodes in zip(fixed, shards, strict=True)]
        even_out(shards, slots, alternatives, view)

    def _choose_or_explain(
        self, need: ReplicaRequest, policy: Policy, mask: Mask, view: View
    ) -> list[int] | Reason:
        if not exclude_taken(mask, need).any():
            return explain_no_node(need, mask, view)
        factor = need.replication_factor
        for rule in _ideal_rules(policy):
            key, values = need.rule_context(view.topology).level_and_domains(rule)
            if policy.strength is Strength.REQUIRED and len(values) < factor:
                message = f"{factor} holders need {factor} values of {key}, {len(values)} are there"
                return Reason(Code.DOMAINS_TOO_FEW, message, factor, len(values), key, values)
        found = choose(self.rules(policy, view.topology), mask, need, view)
        return found if isinstance(found, Reason) else [found]


def _ideal_rules(policy: Policy) -> list[DistinctTags]:
    keys = policy.parameters["rack_aware_tags"]
    return [DistinctTags(1, Scope(tag=key), policy.strength) for key in keys]


def _is_distinct(domains: NDArray[np.int32], need: ReplicaRequest) -> bool:
    """Return whether the shard's present holders have different values of the key."""
    used = [domain for domain in domains[list(need.kept)].tolist() if domain != NO_DOMAIN]
    return len(set(used)) == len(used)


def _keep_most_keys(
    search: Callable[[Sequence[int], Mask], list[int]], keys: Sequence[int], mask: Mask
) -> list[int]:
    """Find the set for the largest, first-named subset of keys that costs no replica."""
    most = search((), mask)
    for size in range(len(keys), 0, -1):
        for kept in combinations(keys, size):
            found = search(kept, mask)
            if len(found) == len(most):
                return found
    return most
