"""What can be done about a stream's violations: fixable, or the reason why not.

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
    Strength,
    find_breaches,
    why_not,
)
from placement.strategies import STRATEGIES
from placement.topology import Topology


def is_wide(rule: Rule) -> bool:
    """Whether the rule is one on the whole stream."""
    return rule.spans_stream or rule.colocates_slots


class FixabilityChecker:
    """Answers for streams of one policy and replication factor. `load`: replicas by node in the
    whole cluster."""

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
        # Repair puts a lost copy where the cluster's balance suffers rather than nowhere, so that
        # this rule makes nothing but itself unfixable.
        self._required = [
            rule
            for rule in rules
            if rule.strength is Strength.REQUIRED and not rule.balances_cluster
        ]
        self._wide = any(map(is_wide, self._required))
        self._free = _free(topology, policy, load)
        # Replicas that may stay where no new one may come: on a suspect node, or on a full one.
        stays = judging.eligible & policy.nodes.mask(topology) & ~self._free
        self._stays = frozenset(np.flatnonzero(stays).tolist())
        self._answers: dict[object, Reason | None] = {}

    def why_not(
        self, spec: StreamSpec, rule: Rule | None, held: Sequence[int] | None
    ) -> Reason | None:
        """Why no arrangement obeys `rule` (None: has all copies) and every required rule, or None
        where one does. `held`: the shard's living replicas, which may stay; None asks for the
        stream as a whole. A rule is known by its identity.
        """
        if held is None or self._wide or (rule is not None and is_wide(rule)):
            answers = self._answers_of(spec)
            asked = None if rule is None else (str(rule), rule.strength)
            if asked not in answers:
                answers[asked] = self._why_not_at_all(spec, rule)
            return answers[asked]
        stays = self._stays.intersection(held)
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
        """Nodes that may receive a replica under the rules; some never do, such as those without
        the tag that a rule counts by."""
        empty = RuleContext(self._judging, self._factor, (), (), self._policy.nodes)
        allowed = self._free.copy()
        for each in (*self._required, *([rule] if rule else ())):
            allowed &= each.penalty(empty) < NEVER
        return allowed

    def _answers_of(self, spec: StreamSpec) -> dict[object, Reason | None]:
        """Return the answers that are known of a stream, by rule.

        They need a placement of the whole stream, and rest on the nodes alone: they are kept until
        a node changes.
        """

        def make() -> tuple[StreamSpec, Policy, dict[object, Reason | None]]:
            # Spec and policy are kept, so that nothing else can have their identities.
            return spec, self._policy, {}

        key = "fixability", spec.stream, id(spec), id(self._policy)
        return self._topology.derive(key, make, by_condition=True)[2]

    def _why_not_at_all(self, spec: StreamSpec, rule: Rule | None) -> Reason | None:
        """Return why the stream's strategy, with the fleet to itself, finds no arrangement."""
        view = View(self._topology, AssignmentTable())
        placed = STRATEGIES[self._policy.strategy].place(spec, self._policy, view)
        if isinstance(placed, Reason):
            return placed
        if any(EMPTY in nodes for nodes in placed.shards):
            return placed.reasons[0] if placed.reasons else _impossible(rule)
        wishes = [rule] if rule and rule.strength is Strength.PREFERRED else []
        everywhere = self._policy.standing(spec, self._judging)
        for strength, rules in ((Strength.REQUIRED, self._required), (Strength.PREFERRED, wishes)):
            if next(find_breaches(rules, strength, placed.shards, everywhere), None):
                return _impossible(rule)
        return None


def _free(topology: Topology, policy: Policy, load: NDArray[np.int64]) -> Mask:
    """Nodes that may receive a replica of the stream."""
    room = (topology.capacity < 0) | (load < topology.capacity)
    usable = topology.eligible
    if STRATEGIES[policy.strategy].followers_on_suspect:
        usable = usable | topology.fenced
    free: Mask = usable & policy.nodes.mask(topology) & room
    return free


def _impossible(rule: Rule | None) -> Reason:
    what = f"rule '{rule}'" if rule else "all rules"
    message = f"the strategy finds no placement of the stream on the usable nodes that keeps {what}"
    return Reason(Code.NO_CANDIDATE, message, 1, 0)
