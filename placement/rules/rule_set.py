"""Answers for all rules of one policy together, from the traits of each."""

from collections.abc import Sequence
from dataclasses import dataclass

from placement.rules.roles import LeaderPreference, RoleApart
from placement.rules.rule import Mask, Rule, Strength
from placement.topology import Topology


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of a policy, or of a policy and its strategy, in their order."""

    rules: Sequence[Rule]

    @property
    def is_colocated(self) -> bool:
        """True if replica r of every shard is on one node, so that a slot moves as a unit."""
        return any(rule.colocates_slots for rule in self.rules)

    @property
    def spans_stream(self) -> bool:
        """True if a shard's rules depend on replicas of the stream's other shards."""
        return any(rule.spans_stream for rule in self.rules)

    @property
    def divides_by_weight(self) -> bool:
        """Return whether the weights of a domain's nodes decide how many replicas it may hold."""
        return any(rule.divides_by_weight for rule in self.rules)

    @property
    def roles(self) -> tuple[RoleApart, ...]:
        """The rules that keep copies of each shard for a role of their own."""
        return tuple(rule for rule in self.rules if isinstance(rule, RoleApart))

    @property
    def role_copies(self) -> int:
        """Copies of each shard that have a role of their own, and never lead."""
        return max((rule.count for rule in self.roles), default=0)

    @property
    def leader_preferences(self) -> tuple[LeaderPreference, ...]:
        """The rules that say where leaders stand, the most important first."""
        return tuple(rule for rule in self.rules if isinstance(rule, LeaderPreference))

    def count_possible_leaders(self, factor: int) -> int:
        """Count the slots, from the first, whose replicas may lead a shard of `factor` copies.

        Copies in the last slots, which have a role, never lead.
        """
        return max(factor - self.role_copies, 1)

    def possible_leaders(
        self, nodes: Sequence[int], factor: int, able: Mask, topology: Topology
    ) -> list[int]:
        """Select the nodes of a shard out of which one leads, in their order.

        Copies with a role are left out; the others are chosen from by `best_leaders`.
        """
        return self.best_leaders(nodes[: self.count_possible_leaders(factor)], able, topology)

    def best_leaders(self, nodes: Sequence[int], able: Mask, topology: Topology) -> list[int]:
        """Select the nodes that lead better than the others, in their order.

        - Those in `able`; all where none is.
        - Of these those that come first by each leader preference in turn.
        """
        found = [node for node in nodes if able[node]] or list(nodes)
        for rule in self.leader_preferences if found else ():
            rank = rule.leader_rank(topology)
            best = min(int(rank[node]) for node in found)
            found = [node for node in found if rank[node] == best]
        return found

    @property
    def names_leaders(self) -> bool:
        """True if a rule restricts which replica leads."""
        return bool(self.roles or self.leader_preferences)

    @property
    def orders_slots(self) -> bool:
        """True if the order of a shard's replicas can break a rule."""
        return any(rule.slot_order_matters for rule in self.rules)

    @property
    def sees_domains_only(self) -> bool:
        """True if all rules treat nodes of the same domains alike."""
        return all(rule.sees_domains_only for rule in self.rules)

    @property
    def domains_interchangeable(self) -> bool:
        """True if every rule treats domains with equally many replicas alike."""
        return all(rule.domains_interchangeable for rule in self.rules)

    @property
    def keeps_one_domain(self) -> bool:
        """True if the whole stream must be in one domain."""
        return any(rule.keeps_one_domain for rule in self.rules)

    @property
    def prefers_located(self) -> bool:
        """True if nodes with a location come first."""
        return any(rule.prefers_located for rule in self.rules)

    @property
    def counts_domains(self) -> bool:
        """True if all rules depend only on the number of replicas in each domain."""
        return all(rule.counts_domains for rule in self.rules)

    @property
    def required(self) -> tuple[Rule, ...]:
        """Those that are never broken."""
        return tuple(rule for rule in self.rules if rule.strength is Strength.REQUIRED)

    @property
    def repairable(self) -> tuple[Rule, ...]:
        """Those that repair moves replicas for."""
        return tuple(rule for rule in self.rules if rule.repairable)
