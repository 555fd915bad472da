"""What can be done about a stream's violations: fixable, or the reason why not.

Diagnosis asks for every violation; equal questions are answered once.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from placement.assignments import EMPTY, AssignmentTable
from placement.feasibility import Question, why_not
from placement.judge import judged
from placement.model import StreamSpec
from placement.policy import Policy
from placement.reasons import Code, Reason
from placement.rules import (
    NEVER,
    STREAM_RULES,
    BalanceNodes,
    ColocateSlots,
    Mask,
    PreferNodes,
    Rule,
    Standing,
    Strength,
)
from placement.strategies import STRATEGIES
from placement.strategies.base import View
from placement.topology import Topology

# Rules that are kept as well as may be and have no violations.
_WISHES = (BalanceNodes, PreferNodes, ColocateSlots)


def is_wide(rule: Rule) -> bool:
    """Whether the rule is one on the whole stream."""
    return isinstance(rule, (*STREAM_RULES, ColocateSlots))


class Prospects:
    """Answers for one stream. `load`: replicas by node in the whole cluster."""

    def __init__(
        self,
        topology: Topology,
        judging: Topology,
        spec: StreamSpec,
        policy: Policy,
        rules: Sequence[Rule],
        load: Mapping[int, int],
    ) -> None:
        self._topology, self._judging = topology, judging
        self._spec, self._policy = spec, policy
        self._required = [rule for rule in rules if rule.strength is Strength.REQUIRED]
        self._free = _free(topology, policy, load)
        # Replicas that may stay where no new one may come: on a suspect node, or on a full one.
        self._stays = judging.eligible & policy.nodes.mask(topology) & ~self._free
        self._answers: dict[object, Reason | None] = {}

    def why_not(self, rule: Rule | None, held: Sequence[int] | None) -> Reason | None:
        """Why no arrangement obeys `rule` (None: has all copies) and every required rule, or None
        where one does. `held`: the shard's living replicas, which may stay; None asks for the
        stream as a whole.
        """
        asked = (*self._required, *([rule] if rule else ()))
        if held is None or any(is_wide(each) for each in asked):
            key: object = str(rule), rule and rule.strength
            if key not in self._answers:
                self._answers[key] = self._why_not_at_all(rule)
            return self._answers[key]
        stays = frozenset(node for node in held if self._stays[node])
        key = str(rule), rule and rule.strength, stays
        if key not in self._answers:
            allowed = self._candidates(rule)
            allowed[list(stays)] = True
            rules = tuple(each for each in self._required if not isinstance(each, _WISHES))
            factor = self._policy.copies(self._spec.replication_factor)
            question = Question(self._judging, factor, self._policy, rules, allowed)
            self._answers[key] = why_not(question, rule)
        return self._answers[key]

    def _candidates(self, rule: Rule | None) -> Mask:
        """Nodes that may receive a replica under the rules; some never do, such as those without
        the tag that a rule counts by."""
        factor = self._policy.copies(self._spec.replication_factor)
        empty = Standing(self._judging, factor, (), (), self._policy.nodes)
        allowed = self._free.copy()
        for each in (*self._required, *([rule] if rule else ())):
            allowed &= each.penalty(empty) < NEVER
        return allowed

    def _why_not_at_all(self, rule: Rule | None) -> Reason | None:
        """Whether the stream's strategy, with the fleet to itself, finds an arrangement."""
        view = View(self._topology, AssignmentTable())
        placed = STRATEGIES[self._policy.strategy].place(self._spec, self._policy, view)
        if isinstance(placed, Reason):
            return placed
        if any(EMPTY in nodes for nodes in placed.shards):
            return placed.reasons[0] if placed.reasons else _impossible(rule)
        wishes = [rule] if rule and rule.strength is Strength.PREFERRED else []
        parts = (placed.shards, self._spec, self._policy, self._judging)
        for strength, rules in ((Strength.REQUIRED, self._required), (Strength.PREFERRED, wishes)):
            if next(judged(rules, strength, *parts), None):
                return _impossible(rule)
        return None


def _free(topology: Topology, policy: Policy, load: Mapping[int, int]) -> Mask:
    """Nodes that may receive a replica of the stream."""
    held = np.zeros(topology.size, np.int64)
    for node, count in load.items():
        if node >= 0:
            held[node] = count
    room = (topology.capacity < 0) | (held < topology.capacity)
    free: Mask = topology.eligible & policy.nodes.mask(topology) & room
    return free


def _impossible(rule: Rule | None) -> Reason:
    what = f"rule '{rule}'" if rule else "all rules"
    message = f"the usable nodes admit no arrangement of the stream that keeps {what}"
    return Reason(Code.NO_CANDIDATE, message, 1, 0)
