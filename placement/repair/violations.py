"""Makes the violations of a shard as they are published: its breaches, and what comes of each."""

from dataclasses import replace

from placement.assignments import EMPTY
from placement.diagnosis import (
    REPLICAS_RULE,
    WAITS_FOR_NODES,
    broken_filter,
    broken_rules,
    kept_slots,
    live_slots,
    missing_replicas,
    why_kept,
    why_needy,
)
from placement.model import Band, Cause, Code, Reason, Violation, ViolationClass
from placement.repair.actions import NoMoveReasons, why_leaving
from placement.repair.needs import ShardNeeds
from placement.repair.triage import ShardTriage
from placement.rules import ColocateSlots, Strength
from placement.state import ClusterState
from placement.wording import are, counted

SURPLUS_RULE = "surplus"
DRAIN_RULE = "drain"
_REQUIRED = str(Strength.REQUIRED)


class ViolationReporter:
    """Judges shards for publication, by the same rules and wants that repair goes by."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def violations_of(self, needs: ShardNeeds, failed: NoMoveReasons) -> tuple[Violation, ...]:
        """What the shard breaks; `failed` says why it got no move, if it was planned."""
        state, found = self._state, [*self._copies(needs), *self._places(needs)]
        case, shard = needs.case, needs.shard
        live = case.live(state.topology)
        standing = case.standing(needs.scope.judging, live, None)
        loaded = replace(standing, load=state.table.load(state.topology.size))
        name, number = state.streams.key(shard)
        broken_now = needs.broken_rules
        for rule in case.rules:
            left_alone = not rule.repairable
            if rule not in broken_now and not left_alone:
                continue
            required = rule.strength is Strength.REQUIRED
            cause = Cause.REQUIRED_RULE if required else Cause.PREFERRED_RULE
            seen_to = None if left_alone else cause
            # What is full may have room again: nothing but the cluster's balance goes by loads.
            judged = loaded if left_alone else standing
            broken = broken_rules(name, number, [rule], judged, state.now)
            found.extend((seen_to, violation) for violation in broken)
        return tuple(self._classed(needs, cause, each, failed) for cause, each in found)

    def under_replication_of(
        self, shard: int, key: tuple[str, int], seen: ShardTriage, failed: NoMoveReasons
    ) -> tuple[Violation, ...] | None:
        """The same for a shard that breaks no rule, as `seen` where it is planned to stand; None
        where it has to be asked why it lacks replicas."""
        state = self._state
        live, factor = seen.under_replicated.get(shard) or seen.healthy[shard]
        opened = state.ledger.by_shard.get(shard)
        if opened is not None and (opened.removed == EMPTY or state.topology.dead[opened.removed]):
            live -= 1
        if live >= factor:
            return ()
        why = None
        if opened is not None:
            why, kind = opened.move.reason, ViolationClass.FIXABLE
        else:
            if shard in seen.healthy:
                why = why_kept(state.table.nodes(shard), state.topology)
            why = why or failed.get(Cause.UNDER_REPLICATED) or failed.get(None)
            if why is None:
                return None
            kind = _class_of(why)
        return (missing_replicas(*key, factor, live, why, kind, state.now),)

    def missing(self, live: int, factor: int, why: Reason) -> Violation:
        """How any shard is violated that breaks no rule, has so many replicas of those that are
        asked for, and got no move."""
        return missing_replicas("", 0, factor, live, why, _class_of(why), self._state.now)

    def _copies(self, needs: ShardNeeds) -> list[tuple[Cause | None, Violation]]:
        """Too few replicas, too many, or some apart from those of the other shards."""
        state, topology = self._state, self._state.topology
        shard, stream, nodes = needs.shard, needs.stream, needs.nodes
        found: list[tuple[Cause | None, Violation]] = []
        whole, factor = len(live_slots(state.current_replicas(shard), topology)), stream.copies
        if whole < factor:
            needy = needs.missing_slots
            said = why_needy(nodes, needy[0], topology) if needy else why_kept(nodes, topology)
            lost = said or Reason(Code.REPLICA_MISSING, "a copy is on its way")
            found.append(
                (Cause.UNDER_REPLICATED, self._of(shard, REPLICAS_RULE, whole, factor, lost))
            )
        held = len(state.table.replicas(shard))
        if held > factor:
            message = (
                f"{counted(held, 'replica')} {are(held)} there, {factor} {are(factor)} asked for"
            )
            many = Reason(Code.REPLICA_SURPLUS, message, factor, held)
            waits = why_kept(nodes, topology)
            surplus = self._of(shard, SURPLUS_RULE, held, factor, waits or many)
            found.append((None if waits else Cause.SURPLUS, surplus))
        apart, strays = needs.kept_stray_slots, needs.stray_slots
        if apart:
            why = why_needy(nodes, strays[0], topology) if strays else why_kept(nodes, topology)
            assert why is not None
            broken = self._of(shard, str(ColocateSlots()), len(apart), 0, why)
            # A want of its own takes the cause of what drains it.
            drains = bool(strays) and strays[0] in needs.draining_slots
            found.append((Cause.DRAIN if drains else Cause.REQUIRED_RULE, broken))
        return found

    def _places(self, needs: ShardNeeds) -> list[tuple[Cause | None, Violation]]:
        """Replicas on nodes that are not admitted, or that are being emptied."""
        state, topology = self._state, self._state.topology
        (name, number), nodes = state.streams.key(needs.shard), needs.nodes
        outside = [nodes[slot] for slot in needs.inadmissible_slots]
        policy = needs.stream.policy
        assert policy is not None
        broken = broken_filter(name, number, policy.nodes, outside, topology, state.now)
        found: list[tuple[Cause | None, Violation]]
        found = [(Cause.REQUIRED_RULE, violation) for violation in broken]
        stays = why_kept(nodes, topology)
        if stays is not None:
            away = [nodes[s] for s in kept_slots(nodes, topology) if topology.is_dead(nodes[s])]
            held = broken_filter(name, number, policy.nodes, away, topology, state.now)
            found += [(None, violation._replace(reason=stays)) for violation in held]
        for node_id in sorted(topology.ids[nodes[slot]] for slot in needs.draining_slots):
            drains = why_leaving(topology.index[node_id], topology)
            violation = self._of(needs.shard, DRAIN_RULE, 1, 0, drains)
            found.append((Cause.DRAIN, violation._replace(level="node", domain=node_id)))
        return found

    def _of(self, shard: int, rule: str, count: int, limit: int, reason: Reason) -> Violation:
        name, number = self._state.streams.key(shard)
        deferred, now = ViolationClass.DEFERRED, self._state.now
        return Violation(name, number, rule, _REQUIRED, count, limit, deferred, reason, now)

    def _classed(
        self, needs: ShardNeeds, cause: Cause | None, violation: Violation, failed: NoMoveReasons
    ) -> Violation:
        """The violation with what is being done about it, or why nothing is."""
        state = self._state
        opened = state.ledger.by_shard.get(needs.shard)
        missing = cause is Cause.UNDER_REPLICATED
        off = not missing and needs.repairs_dead_only
        if cause is None or (off and opened is None):
            return violation
        if not (missing and opened) and violation.reason.code in WAITS_FOR_NODES:
            return violation
        fixable = violation._replace(violation_class=ViolationClass.FIXABLE)
        if opened is not None:
            return fixable._replace(reason=opened.move.reason) if missing else fixable
        why = failed.get(cause) or failed.get(None)
        if why is None:
            return fixable
        return violation._replace(violation_class=_class_of(why), reason=why)


def _class_of(why: Reason) -> ViolationClass:
    """What becomes of a violation that no move was issued for."""
    waits = why.band is Band.THROTTLED or why.code in WAITS_FOR_NODES
    return ViolationClass.DEFERRED if waits else ViolationClass.UNFIXABLE
