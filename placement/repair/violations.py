"""Publishes what is wrong with shards: the diagnosis, and what the stream does about it.

`placement.diagnosis.shard` judges a shard as it is planned to stand, for `placer check`, too: the
same arrangement has the same violations with the same class, reason and words. The stream differs
where it knows more than the arrangement, in this order:

1. A dead node that is held or in maintenance keeps its replica: `deferred`, with that reason. The
   replica counts as there for the rules.
2. A move gives back what is missing: `fixable`, with the move's reason.
3. Repair does not act for the rule, as the stream allows `dead_only`, or as rebalancing sees to it:
   `deferred`, with the reason of the diagnosis.
4. A limit, a back-off or the source of events keeps the move waiting: `deferred`, with that reason.
5. A move was made and done in this batch, as executors are not asked: `fixable`, as the next batch
   looks for another one.
6. The search found no move although there is an arrangement: `deferred`, NO_CANDIDATE with what
   the search met. `unfixable` is left to what is proved.

Besides, a record belongs to a shard: a rule on the whole stream is published for each shard that
breaks it, and a node above its capacity (`placer check` names it) is no violation of a shard.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY
from placement.diagnosis import (
    DRAIN_RULE,
    LEADER_RULE,
    REPLICAS_RULE,
    SURPLUS_RULE,
    WAITS_FOR_NODES,
    FixabilityChecker,
    ShardDiagnosis,
    ShardToDiagnose,
    kept_slots,
    why_kept,
    why_stray,
)
from placement.model import Band, Cause, Code, Reason, Violation, ViolationClass
from placement.moves import OpenMove
from placement.repair.actions import NoMoveReasons, why_leaving
from placement.repair.leadership import next_leader
from placement.repair.needs import ShardNeeds
from placement.repair.triage import ShardTriage
from placement.rules import Rule, RuleFinding, RuleSet, Strength
from placement.state import ClusterState

_REQUIRED = str(Strength.REQUIRED)
# Causes of the moves that end what is wrong with places, where it is not a required rule.
_PLACE_CAUSES = {LEADER_RULE: Cause.LEADER, DRAIN_RULE: Cause.DRAIN}

# A violation with the cause of the move that would end it, None where repair makes none, and the
# rule of the policy that is broken, None for those of every stream.
_Found = tuple[Cause | None, Violation, Rule | None]


class ViolationReporter:
    """Judges the shards of one run, by the same rules and actions that repair goes by."""

    def __init__(self, state: ClusterState, moved: Collection[int] = ()) -> None:
        """Take the run's state; `moved` holds the shards that received a move in this batch."""
        self._state, self._moved = state, moved
        self._judges: dict[tuple[int, int], ShardDiagnosis] = {}

    def violations_of(self, needs: ShardNeeds, failed: NoMoveReasons) -> tuple[Violation, ...]:
        """Return the violations of a shard; `failed` says why it got no move, if it was planned."""
        given = self._shard_to_diagnose(needs.shard)
        return tuple(
            self._classify(needs, given, each, failed) for each in self._find(needs, given)
        )

    def breaches_of(self, needs: ShardNeeds) -> Iterator[Violation]:
        """Yield what a shard breaks, without asking whether it can be mended."""
        return (
            violation for _, violation, _ in self._find(needs, self._shard_to_diagnose(needs.shard))
        )

    def _find(self, needs: ShardNeeds, given: ShardToDiagnose) -> Iterator[_Found]:
        kept = why_kept(needs.nodes, self._state.topology)
        yield from self._copies(needs, given, kept)
        yield from self._places(needs, given, kept)
        yield from self._rules(needs, given)

    def under_replication_of(
        self, shard: int, key: tuple[str, int], seen: ShardTriage, failed: NoMoveReasons
    ) -> tuple[Violation, ...] | None:
        """Return the violations of a shard that breaks no rule, as sorted by triage.

        None if only `violations_of` knows what is wrong with it, or why it lacks replicas. `seen`
        is the triage of the shards as planned, `failed` the reasons why no move was issued.
        """
        state = self._state
        counts = seen.counts(shard)
        if counts is None or shard in seen.leader_not_allowed:
            return None
        live, factor = counts
        opened = state.ledger.by_shard.get(shard)
        if (
            opened is not None
            and not opened.is_hand_over
            and (opened.removed == EMPTY or state.topology.is_dead(opened.removed))
        ):
            live -= 1
        if live >= factor:
            return ()
        if opened is not None:
            why, kind = opened.move.reason, ViolationClass.FIXABLE
            return (_missing_replicas(*key, live, factor, why, kind, state.now),)
        held = seen.lacking(shard) is None
        kept = why_kept(state.table.nodes(shard), state.topology) if held else None
        waits = kept or failed.get(Cause.UNDER_REPLICATED) or failed.get(None)
        if waits is None or not _is_waiting(waits):
            return None
        return (_missing_replicas(*key, live, factor, waits, ViolationClass.DEFERRED, state.now),)

    def missing_replicas(self, live: int, factor: int, why: Reason) -> Violation:
        """Return the violation of an under-replicated shard that waits.

        It breaks no rule, has `live` of `factor` replicas, and waits for a limit or for the source.
        """
        return _missing_replicas("", 0, live, factor, why, ViolationClass.DEFERRED, self._state.now)

    def _shard_to_diagnose(self, shard: int) -> ShardToDiagnose:
        state = self._state
        listed, is_dead = state.table.replicas(shard), state.topology.is_dead
        live = [node for node in listed if not is_dead(node)]
        stream, number = state.streams.of_shard(shard), state.table.number_of(shard)
        return ShardToDiagnose(stream.spec, number, listed, state.current_replicas(shard), live)

    def _diagnosis_for(self, needs: ShardNeeds) -> ShardDiagnosis:
        """Return the diagnosis of a stream's shards; streams of one policy and factor share it."""
        stream, state = needs.stream, self._state
        policy = stream.policy
        assert policy is not None
        key = id(policy), stream.spec.replication_factor
        if key not in self._judges:
            topology, judging = state.topology, needs.scope.judging
            rules = needs.scope.rule_set(needs.stream).rules
            fixability = FixabilityChecker(topology, judging, policy, key[1], rules, self._load)
            everywhere = policy.rule_context(stream.spec, judging)
            self._judges[key] = ShardDiagnosis(topology, policy, everywhere, fixability, state.now)
        return self._judges[key]

    def _copies(
        self, needs: ShardNeeds, given: ShardToDiagnose, kept: Reason | None
    ) -> Iterator[_Found]:
        """Yield missing copies, surplus replicas, and those apart from a colocated stream's.

        `kept`: why a dead node keeps its replica, if one does.
        """
        state, nodes = self._state, needs.nodes
        for violation in self._diagnosis_for(needs).copy_violations(given):
            if violation.rule == SURPLUS_RULE:
                cause = Cause.SURPLUS if kept is None else None
                yield cause, violation if kept is None else _defer(violation, kept), None
            elif kept is not None and not needs.missing_slots:
                yield Cause.UNDER_REPLICATED, _defer(violation, kept), None
            else:
                yield Cause.UNDER_REPLICATED, violation, None
        apart, rule = needs.kept_stray_slots, _colocation_rule(needs)
        if apart and rule is not None:
            strays = needs.stray_slots
            violation = self._diagnosis_for(needs).rule_violation(
                given, rule, RuleFinding(None, len(apart), 0)
            )
            why = why_stray(nodes[strays[0]], state.topology) if strays else kept
            # An action of its own takes the cause of what drains the replica.
            drains = bool(strays) and strays[0] in needs.draining_slots
            cause = Cause.DRAIN if drains else Cause.REQUIRED_RULE
            yield cause, violation._replace(reason=why or violation.reason), rule

    def _places(
        self, needs: ShardNeeds, given: ShardToDiagnose, kept: Reason | None
    ) -> Iterator[_Found]:
        """Yield replicas on nodes that are not admitted, are to be emptied, or may not lead."""
        state, topology = self._state, self._state.topology
        stream, nodes = needs.stream, needs.nodes
        judge = self._diagnosis_for(needs)
        for violation in judge.place_violations(given):
            cause: Cause | None = _PLACE_CAUSES.get(violation.rule, Cause.REQUIRED_RULE)
            if cause is Cause.LEADER and next_leader(state, needs.scope, needs.shard) is None:
                cause = None
            yield cause, violation, None
        for slot in needs.draining_slots:
            why = why_leaving(nodes[slot], topology)
            if why.code is Code.REPLACEMENT_WANTED:
                yield Cause.DRAIN, judge.drain_violation(given, nodes[slot], why), None
        if kept is None or stream.policy is None:
            return
        for node in (nodes[slot] for slot in kept_slots(nodes, topology)):
            if topology.is_dead(node) and not stream.policy.nodes.passes(topology, node):
                yield None, _defer(judge.admission_violation(given, node), kept), None

    def _rules(self, needs: ShardNeeds, given: ShardToDiagnose) -> Iterator[_Found]:
        """Yield the breaches of the policy's rules, one for each domain."""
        judge = self._diagnosis_for(needs)
        for rule in needs.case.rules:
            required = rule.strength is Strength.REQUIRED
            cause = Cause.REQUIRED_RULE if required else Cause.PREFERRED_RULE
            found = needs.findings(rule) if rule.repairable else self._judge_by_loads(needs, rule)
            for finding in found:
                yield cause, judge.rule_violation(given, rule, finding), rule

    def _judge_by_loads(self, needs: ShardNeeds, rule: Rule) -> Sequence[RuleFinding]:
        """Find where the shard breaks a rule that repair does not see to, by the loads of nodes.

        Nothing but the cluster's balance goes by them: what is full may have room again.
        """
        return rule.violations(replace(needs.scope.rule_context(needs.case), load=self._load))

    @cached_property
    def _load(self) -> NDArray[np.int64]:
        """Replicas by node in the whole cluster."""
        return self._state.table.load(self._state.topology.size)

    def _classify(
        self, needs: ShardNeeds, given: ShardToDiagnose, found: _Found, failed: NoMoveReasons
    ) -> Violation:
        """Return the violation with what is being done about it, or why nothing is."""
        cause, violation, rule = found
        opened = self._state.ledger.by_shard.get(needs.shard)
        missing = violation.rule == REPLICAS_RULE
        if missing and opened is not None and self._restores_replica(opened):
            going_on = opened.move.reason
            return violation._replace(violation_class=ViolationClass.FIXABLE, reason=going_on)
        about_leader = violation.rule == LEADER_RULE or (rule and RuleSet((rule,)).names_leaders)
        if about_leader and (handed := _hand_over_of(violation, opened, failed)):
            return handed
        if violation.reason.code in WAITS_FOR_NODES or _is_for_rebalancing(rule):
            return violation._replace(violation_class=ViolationClass.DEFERRED)
        if not missing and needs.repairs_dead_only:
            cause = None
        planned = cause not in (None, Cause.LEADER) and opened is None
        why = (failed.get(cause) or failed.get(None)) if planned else None
        if why is not None and _is_waiting(why):
            return _defer(violation, why)
        if planned and why is None and needs.shard in self._moved:
            return violation._replace(violation_class=ViolationClass.FIXABLE)
        judged = self._diagnosis_for(needs).classify(given, violation, rule)
        if judged.violation_class is ViolationClass.UNFIXABLE:
            return judged
        if why is not None:
            return _defer(violation, _why_no_move(why))
        if cause is None:
            return violation._replace(violation_class=ViolationClass.DEFERRED)
        return violation

    def _restores_replica(self, opened: OpenMove) -> bool:
        """Return whether the move brings a replica that is missing, not one that only moves."""
        lost = opened.removed == EMPTY or self._state.topology.is_dead(opened.removed)
        return opened.added != EMPTY and lost


def _hand_over_of(
    violation: Violation, opened: OpenMove | None, failed: NoMoveReasons
) -> Violation | None:
    """Return the violation of a leader with the move that ends it, or what that waits for.

    None where executors are not asked, as the list changes at once.
    """
    if opened is not None and opened.is_hand_over:
        return violation._replace(violation_class=ViolationClass.FIXABLE)
    return _defer(violation, failed[Cause.LEADER]) if Cause.LEADER in failed else None


def _defer(violation: Violation, why: Reason) -> Violation:
    """Return the violation as one that waits, with the reason."""
    return violation._replace(violation_class=ViolationClass.DEFERRED, reason=why)


def _colocation_rule(needs: ShardNeeds) -> Rule | None:
    """Return the rule by which the stream's slots move as one, if it has one."""
    return next(
        (rule for rule in needs.scope.rule_set(needs.stream).rules if rule.colocates_slots), None
    )


def _is_for_rebalancing(rule: Rule | None) -> bool:
    """Return whether rebalancing sees to the rule, and repair leaves it alone."""
    return rule is not None and not (rule.repairable or rule.colocates_slots)


def _is_waiting(why: Reason) -> bool:
    """Return whether time, a limit, or the return of a node ends the wait for a move."""
    return why.band is Band.THROTTLED or why.code in WAITS_FOR_NODES


def _why_no_move(why: Reason) -> Reason:
    """Return the reason of a violation that could be mended, for which the search has no move."""
    message = f"the nodes allow a correct placement, but the search found no move: {why.message}"
    return Reason(Code.NO_CANDIDATE, message, why.need, why.have, why.level, why.seen)


def _missing_replicas(
    stream: str,
    shard: int,
    live: int,
    factor: int,
    reason: Reason,
    violation_class: ViolationClass,
    since: int,
) -> Violation:
    """Return the violation of the replicas rule for a shard with `live` copies."""
    return Violation(
        stream, shard, REPLICAS_RULE, _REQUIRED, live, factor, violation_class, reason, since
    )
