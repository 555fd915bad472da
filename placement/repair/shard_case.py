"""A shard to be repaired as its rules see it, and how far it is from keeping them.

A score measures the distance of an arrangement from each of its rules. No move is made that does
not lower it, so that moves cannot go round in circles.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from placement.assignments import EMPTY
from placement.model import StreamSpec
from placement.policy import Policy
from placement.rules import NEVER, Rule, RuleContext, RuleSet, Strength
from placement.topology import Topology


class ShardCase(NamedTuple):
    """A shard to be repaired, or the shared nodes of a colocated stream as one shard.

    - `nodes`: by slot, EMPTY where none is.
    - `others`: live nodes of the stream's other shards, if a rule needs them.
    - `room`: replicas that a node has to take at once.
    - `backed_off_targets`: nodes on which moves of the shard have failed just now.
    - `held`: by node, the number of shards of a colocated stream with a replica there.
    """

    spec: StreamSpec
    policy: Policy
    rules: tuple[Rule, ...]
    shard: int
    nodes: Sequence[int]
    others: Sequence[int] = ()
    room: int = 1
    backed_off_targets: frozenset[int] = frozenset()
    held: Mapping[int, int] = MappingProxyType({})

    @property
    def factor(self) -> int:
        """Number of replicas that the shard should have, extra copies included."""
        return self.policy.copies(self.spec.replication_factor)

    def live(self, topology: Topology) -> list[int]:
        """List the slots whose replica is not lost."""
        is_lost = topology.lost.item
        return [s for s, n in enumerate(self.nodes) if n != EMPTY and not is_lost(n)]

    def rule_context(
        self, topology: Topology, slots: Sequence[int], slot: int | None
    ) -> RuleContext:
        """Make the context of rules for the replicas in `slots`; `slot` is the next to fill."""
        kept = [self.nodes[each] for each in slots]
        parts = (self.factor, kept, self.others, self.policy.nodes, self.spec.shards, slots, slot)
        return RuleContext(topology, *parts)

    def with_node(self, slot: int, node: int) -> "ShardCase":
        """Copy the case with another node in a slot."""
        nodes = [*self.nodes]
        nodes[slot] = node
        return self._replace(nodes=nodes)

    def exchanging(self, slot: int, other: int) -> "ShardCase":
        """Copy the case with the nodes of two slots exchanged."""
        return self.with_node(slot, self.nodes[other]).with_node(other, self.nodes[slot])


@dataclass(frozen=True, slots=True)
class RuleScore:
    """Distance of an arrangement from each rule, in their order; 0 if the rule is kept.

    The first entry of `required` counts replicas on nodes that the policy does not admit, if it
    filters nodes. `can_be_led`: one of the replicas may lead; no rule is mended at its expense.
    """

    required: tuple[int, ...]
    preferred: tuple[int, ...]
    can_be_led: bool = True

    def is_better_than(self, other: "RuleScore", strength: Strength) -> bool:
        """Return whether the score is better at this strength and no worse for required rules."""
        if other.can_be_led and not self.can_be_led:
            return False
        if any(mine > theirs for mine, theirs in zip(self.required, other.required, strict=True)):
            return False
        if strength is Strength.REQUIRED:
            return self.required != other.required
        return self.preferred < other.preferred

    @property
    def key(self) -> tuple[int, tuple[int, ...]]:
        """Sort key among arrangements of a shard: required rules together, then preferred ones."""
        return sum(self.required) + (not self.can_be_led), self.preferred


def score(case: ShardCase, topology: Topology) -> RuleScore:
    """Score the live replicas of a case, each one against the others.

    Replicas on draining nodes are left out.
    """
    live = [slot for slot in case.live(topology) if not topology.is_draining(case.nodes[slot])]
    sums: dict[Strength, list[int]] = {Strength.REQUIRED: [], Strength.PREFERRED: []}
    admits = case.policy.nodes
    if not admits.everything:
        outside = [s for s in live if not admits.passes(topology, case.nodes[s])]
        sums[Strength.REQUIRED].append(len(outside))
    asked = [(s, case.rule_context(topology, [o for o in live if o != s], s)) for s in live]
    for rule in case.rules:
        if not rule.repairable:
            continue
        # What a shard gains must not be another one's loss.
        together = case.rule_context(topology, live, None) if rule.spans_stream else None
        excess = None if together is None else rule.stream_excess(together)
        if excess is not None:
            sums[rule.strength].append(excess)
            continue
        each = (min(int(rule.penalty(context)[case.nodes[s]]), NEVER) for s, context in asked)
        sums[rule.strength].append(sum(each))
    led = topology.can_lead.all() or _can_be_led(case, live, topology)
    return RuleScore(tuple(sums[Strength.REQUIRED]), tuple(sums[Strength.PREFERRED]), bool(led))


def _can_be_led(case: ShardCase, slots: Sequence[int], topology: Topology) -> bool:
    """Return whether a replica in one of the slots may lead.

    Copies with a role of their own, in the last slots, never do. A list may be longer than asked
    for, until its surplus is removed.
    """
    most = RuleSet(case.rules).count_possible_leaders(max(case.factor, len(case.nodes)))
    return any(topology.can_lead[case.nodes[slot]] for slot in slots if slot < most)
