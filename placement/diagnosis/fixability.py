"""Proves that a violation is unfixable, or finds that some arrangement avoids it.

Diagnosis asks for every violation; equal questions are answered once.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from placement.allocator import View
from placement.assignments import EMPTY, AssignmentTable
from placement.model import Code, Reason, StreamSpec
from placement.policy import Policy
from placement.rules import (
    NEVER,
    FeasibilityQuery,
    Mask,
    Rule,
    RuleContext,
    RuleSet,
    Strength,
    find_breaches,
    why_not,
)
from placement.strategies import STRATEGIES
from placement.topology import Topology


def is_wide(rule: Rule) -> bool:
    """Return whether the rule is about a stream as a whole."""
    return rule.spans_stream or rule.colocates_slots


class FixabilityChecker:
    """Answers for streams of one policy and replication factor.

    `topology`: the fleet. `judging`: the same as rules see it (`Topology.for_diagnosis`). `rules`:
    those of the streams' strategy. `load`: replicas by node index, of the whole cluster.
    `rule_set`: all rules together.
    """

    def __init__(
        self,
        topology: Topology,
        judging: Topology,
        policy: Policy,
        replication_factor: int,
        rules: Sequence[Rule],
        load: NDArray[np.int64],
    ) -> None:
        self._topology, self._judging, self._policy = topology, judging, policy
        self._factor = policy.copies(replication_factor)
        self.rule_set = RuleSet(rules)
        # Repair puts a lost copy where the cluster's balance suffers rather than nowhere, so that
        # this rule makes nothing but itself unfixable.
        self._required = [
            rule
            for rule in rules
            if rule.strength is Strength.REQUIRED and not rule.balances_cluster
        ]
        self._wide = any(map(is_wide, self._required))
        self._free = _free_nodes(topology, policy, load)
        # Replicas that may stay where no new one may come: on a suspect node, or on a full one.
        stays = judging.eligible & policy.nodes.mask(topology) & ~self._free
        self._stays = frozenset(np.flatnonzero(stays).tolist())
        self._answers: dict[object, Reason | None] = {}

    def why_not(
        self, spec: StreamSpec, rule: Rule | None, live: Sequence[int] | None
    ) -> Reason | None:
        """Prove that no arrangement keeps `rule` and every required rule, or return None.

        `rule`: known by its identity; None asks for the full number of copies. `live`: the nodes of
        the shard's live replicas, which may stay; None asks about the stream as a whole. The answer
        is None where such an arrangement exists, else the reason of the proof.
        """
        if live is None or self._wide or (rule is not None and is_wide(rule)):
            answers = self._answers_of(spec)
            about = None if rule is None else (str(rule), rule.strength)
            if about not in answers:
                answers[about] = self._why_not_at_all(spec, rule)
            return answers[about]
        stays = self._stays.intersection(live)
        key: object = id(rule), stays
        if key not in self._answers:
            allowed = self._candidates(rule)
            allowed[list(stays)] = True
            rules = tuple(each for each in self._required if each.repairable)
            question = FeasibilityQuery(
                self._judging, self._factor, self._policy.nodes, rules, allowed
            )
            self._answers[key] = why_not(question, rule)
        return self._answers[key]

    def _candidates(self, rule: Rule | None) -> Mask:
        """Mask the nodes that may receive a replica under the rules.

        Some nodes never may, such as those without the tag that a rule counts by.
        """
        empty = RuleContext(self._judging, self._factor, (), (), self._policy.nodes)
        allowed = self._free.copy()
        for each in (*self._required, *([rule] if rule else ())):
            allowed &= each.penalty(empty) < NEVER
        return allowed

    def _answers_of(self, spec: StreamSpec) -> dict[object, Reason | None]:
        """Return the known answers about a stream as a whole, by rule.

        Each took a placement of the whole stream and depends on the nodes alone: the topology keeps
        them until a node changes.
        """

        def make() -> tuple[StreamSpec, Policy, dict[object, Reason | None]]:
            # Spec and policy are kept, so that nothing else can have their identities.
            return spec, self._policy, {}

        key = "fixability", spec.stream, id(spec), id(self._policy)
        return self._topology.derive(key, make, by_condition=True)[2]

    def _why_not_at_all(self, spec: StreamSpec, rule: Rule | None) -> Reason | None:
        """Return why the strategy keeps not all rules even if it places the stream alone in the
        fleet."""
        view = View(self._topology, AssignmentTable())
        placed = STRATEGIES[self._policy.strategy].place(spec, self._policy, view)
        if isinstance(placed, Reason):
            return placed
        if any(EMPTY in nodes for nodes in placed.shards):
            return placed.reasons[0] if placed.reasons else _why_impossible(rule)
        wishes = [rule] if rule and rule.strength is Strength.PREFERRED else []
        everywhere = self._policy.rule_context(spec, self._judging)
        for strength, rules in ((Strength.REQUIRED, self._required), (Strength.PREFERRED, wishes)):
            if next(find_breaches(rules, strength, placed.shards, everywhere), None):
                return _why_impossible(rule)
        return None


def _free_nodes(topology: Topology, policy: Policy, load: NDArray[np.int64]) -> Mask:
    """Mask the nodes that may receive a replica of a stream of this policy."""
    room = (topology.capacity < 0) | (load < topology.capacity)
    usable = topology.eligible
    if STRATEGIES[policy.strategy].followers_on_suspect:
        usable = usable | topology.fenced
    free: Mask = usable & policy.nodes.mask(topology) & room
    return free


def _why_impossible(rule: Rule | None) -> Reason:
    what = f"rule '{rule}'" if rule else "all rules"
    message = f"the strategy finds no placement of the stream on the usable nodes that keeps {what}"
    return Reason(Code.NO_CANDIDATE, message, 1, 0)
