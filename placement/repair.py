"""Repair: from shards that lack replicas to the moves that give them back.

What to do is derived from the state alone, so that a missed or repeated event cannot lose or
double a repair. A shard has one open move at a time; shards with the fewest live replicas go first.
A shard that cannot be helped waits in `stuck` until the fleet changes, and blocks no other.
"""

from collections.abc import Iterable
from dataclasses import replace

from placement.assignments import EMPTY
from placement.choice import stable_id
from placement.diagnose import (
    broken_filter,
    broken_rules,
    colocated_unit,
    live_slots,
    missing_replicas,
    needy_slots,
    split_unit,
    stray_slots,
    why_needy,
)
from placement.model import Move, MoveKind, MoveState, Violation, ViolationClass
from placement.moves import OpenMove
from placement.reasons import Band, Code, Reason
from placement.rules import STREAM_RULES, Rule, Standing
from placement.rules_roles import Elsewhere
from placement.state import State, Stream
from placement.strategies import STRATEGIES
from placement.strategies.base import Need, View, candidates


class Repair:
    """The wanted repairs and how they are issued."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._wanted: set[int] = set()
        self._stuck: set[int] = set()
        self._recheck: set[int] = set()
        self._units: dict[int, dict[int, int]] = {}
        self._ended: dict[int, Move] = {}

    def look_at(self, shards: Iterable[int]) -> None:
        """These shards may have become needy or healthy."""
        self._recheck.update(shards)

    def retry_stuck(self) -> None:
        """The set of usable nodes grew: what could not be helped may be now."""
        self._recheck.update(self._stuck)
        self._stuck.clear()

    def ended_early(self, shard: int, move: Move) -> None:
        """A move was cancelled in this batch: a new one for its shard supersedes it."""
        self._ended[shard] = move
        self._recheck.add(shard)

    def resume(self) -> None:
        """Go on where the published violations of a restored state say that things stand."""
        for stream in self._state.streams.values():
            for shard in filter(self._in_need, stream.shards):
                said = self._state.violations.get(shard, ())
                stuck = any(v.violation_class is ViolationClass.UNFIXABLE for v in said)
                (self._stuck if stuck else self._wanted).add(shard)
        self._units.clear()

    def run(self, caught_up: bool) -> None:
        """Promote live leaders, issue the moves that the limits allow, and publish violations."""
        state = self._state
        self._units.clear()
        streams = {state.table.stream_of(shard): shard for shard in self._recheck}
        for shard in streams.values():
            self._recheck.update(self._apart(state.stream_of(shard)))
        self._stuck -= self._recheck
        for shard in self._recheck:
            (self._wanted.add if self._in_need(shard) else self._wanted.discard)(shard)
        touched = self._recheck | self._wanted
        if caught_up:
            for shard in sorted(self._wanted, key=state.key):
                self._promote(shard)
        findings = self._issue_all(caught_up) if self._wanted else {}
        for shard in sorted(touched, key=state.key):
            state.set_violations(shard, self.violations(shard, findings.get(shard)))
        self._recheck.clear()
        self._units.clear()
        self._ended.clear()

    def _in_need(self, shard: int) -> bool:
        """Whether there is a slot to fill, or a dead leader to follow."""
        return bool(self._needy(shard)) or self._next_leader(shard) is not None

    def _needy(self, shard: int) -> list[int]:
        state, stream = self._state, self._state.stream_of(shard)
        unit = self._unit(stream) if state.is_colocated(stream) else None
        factor = stream.copies
        return needy_slots(state.table.nodes(shard), state.topology, factor, unit)

    def _unit(self, stream: Stream) -> dict[int, int]:
        """The nodes of a colocated stream; what this run chooses is added to it."""
        if stream.index not in self._units:
            shards = map(self._state.table.nodes, stream.shards)
            self._units[stream.index] = colocated_unit(shards, self._state.topology)
        return self._units[stream.index]

    def _apart(self, stream: Stream) -> list[int]:
        """Shards of a colocated stream that stand apart from the others, or did."""
        state, known = self._state, self._wanted | self._stuck
        if not state.is_colocated(stream):
            return []
        nodes, unit = state.table.nodes, self._unit(stream)
        return [
            shard
            for shard in stream.shards
            if shard in known or stray_slots(nodes(shard), state.topology, unit)
        ]

    def _issue_all(self, caught_up: bool) -> dict[int, Reason]:
        """Plan each wanted shard in order; returns why those without a move have none."""
        state, found = self._state, {}
        limits = state.configuration.limits
        view = View(state.topology, state.table, state.policy_of, state.spec_of)
        hopeless: dict[tuple[int, int], Reason] = {}
        issued = 0
        for shard in sorted(self._wanted, key=self._urgency):
            if shard in state.ledger.by_shard:
                continue
            if not caught_up:
                found[shard] = Reason(Code.NOT_CAUGHT_UP, "the source of events is behind")
                continue
            if len(state.ledger.by_shard) >= limits.max_open or issued >= limits.max_per_batch:
                found[shard] = Reason(Code.LIMIT_REACHED, "the limit of open moves is reached")
                continue
            if not self._needy(shard):
                # Of a surplus as many live as are asked for; a dead leader was followed.
                self._wanted.discard(shard)
                continue
            outcome = self._issue(shard, view, hopeless)
            issued += outcome is None
            if outcome is not None:
                found[shard] = outcome
                if outcome.band is not Band.THROTTLED:
                    self._wanted.discard(shard)
                    self._stuck.add(shard)
            elif not self._in_need(shard):
                self._wanted.discard(shard)
        return found

    def _urgency(self, shard: int) -> tuple[int, str, int]:
        live = len(live_slots(self._state.table.nodes(shard), self._state.topology))
        return (live, *self._state.key(shard))

    def _issue(
        self, shard: int, view: View, hopeless: dict[tuple[int, int], Reason]
    ) -> Reason | None:
        """Issue the shard's next move, or say why there is none."""
        state = self._state
        nodes = state.table.nodes(shard)
        slot = self._needy(shard)[0]
        target = self._target(shard, nodes, slot, view, hopeless)
        if isinstance(target, Reason):
            return target
        source = self._source(nodes, target)
        limit = self._limit(target, source)
        if limit:
            return limit
        move = self._move(shard, nodes, slot, target, source)
        if nodes[slot] != EMPTY:
            view.remove(nodes[slot])
        view.add(target)
        state.table.set(shard, slot, target)
        state.touch(shard)
        opened = OpenMove(move, shard, nodes[slot], target, source)
        state.ledger.open(opened)
        if not state.configuration.acked:
            move = state.ledger.close(shard, MoveState.COMPLETED, state.now).move
        state.publish_move(move)
        return None

    def _target(
        self,
        shard: int,
        nodes: list[int],
        slot: int,
        view: View,
        hopeless: dict[tuple[int, int], Reason],
    ) -> int | Reason:
        """Where the replica goes."""
        state = self._state
        stream = state.stream_of(shard)
        assert stream.policy is not None
        strategy = STRATEGIES[stream.policy.strategy]
        name, number = state.key(shard)
        factor = stream.copies
        held = frozenset(node for node in nodes if node != EMPTY)
        mask = candidates(stream.policy, view)
        if not state.is_colocated(stream):
            kept = [nodes[s] for s in live_slots(nodes, state.topology)]
            others = self._others(state.rules(stream), shard, stream.shards)
            need = Need(
                name, number, slot, factor, kept, others, stream.policy.nodes, nodes[slot], held
            )
            slots = live_slots(nodes, state.topology)
            shards = stream.spec.shards
            need = replace(need, token=stream.spec.token(number), slots=slots, shards=shards)
            return strategy.extend(need, stream.policy, mask, view)
        unit = self._unit(stream)
        missing = [node for node in unit if node not in held]
        if missing:
            follow = min(missing, key=lambda node: unit[node] != slot)
            return follow if mask[follow] else self._blocked(shard, slot, follow)
        key = (stream.index, nodes[slot])
        if key in hopeless:
            return hopeless[key]
        admitted = stream.policy.nodes
        need = Need(name, 0, slot, factor, list(unit), (), admitted, nodes[slot], held)
        need = replace(need, token=stream.spec.token(0))
        roomy = mask & view.has_room(len(stream.shards))
        target = strategy.extend(need, stream.policy, roomy, view)
        if isinstance(target, Reason):
            hopeless[key] = target
        else:
            unit[target] = slot
        return target

    def _blocked(self, shard: int, slot: int, node: int) -> Reason:
        """A colocated stream is never split: the shard waits for the node of the others."""
        (name, number), node_id = self._state.key(shard), self._state.topology.ids[node]
        what = f"replica {slot} of {name}/{number} belongs on {node_id} with the other shards"
        return Reason(Code.NO_CANDIDATE, f"{what}, which may not hold it now", 1, 0)

    def _others(self, rules: tuple[Rule, ...], shard: int, shards: range) -> list[int]:
        """Live nodes of the stream's other shards, where a rule asks for them."""
        if not any(isinstance(rule, STREAM_RULES) for rule in rules):
            return []
        replicas, dead = self._state.table.replicas, self._state.topology.is_dead
        return [n for other in shards if other != shard for n in replicas(other) if not dead(n)]

    def _source(self, nodes: list[int], target: int) -> int:
        """The live replica to copy from: nearest to the target, then least busy; EMPTY if none."""
        topology = self._state.topology
        live = [nodes[slot] for slot in live_slots(nodes, topology)]
        if not live:
            return EMPTY
        place, outgoing, rank = topology.locations, self._state.ledger.outgoing, topology.order()
        return min(
            live,
            key=lambda n: (
                -place[n].common_depth(place[target]),
                outgoing[n],
                int(rank[n]),
            ),
        )

    def _limit(self, target: int, source: int) -> Reason | None:
        state = self._state
        limits, ids = state.configuration.limits, state.topology.ids
        incoming, outgoing = state.ledger.incoming[target], state.ledger.outgoing[source]
        if incoming >= limits.max_in_per_node:
            message = f"{ids[target]} already receives {incoming} replicas"
            return Reason(Code.LIMIT_REACHED, message, 1, limits.max_in_per_node - incoming)
        if source != EMPTY and outgoing >= limits.max_out_per_node:
            message = f"{ids[source]} already sends {outgoing} replicas"
            return Reason(Code.LIMIT_REACHED, message, 1, limits.max_out_per_node - outgoing)
        return None

    def _move(self, shard: int, nodes: list[int], slot: int, target: int, source: int) -> Move:
        state = self._state
        ids, (name, number) = state.topology.ids, state.key(shard)
        remove = ids[nodes[slot]] if nodes[slot] != EMPTY else None
        epoch = state.next_epoch(shard)
        cell = state.configuration.cell
        reason = why_needy(nodes, slot, state.topology)
        before = self._ended.get(shard)
        if before is not None:
            before = replace(before, state=MoveState.SUPERSEDED)
            state.ledger.known[before.move_id] = before
            state.publish_move(before)
        return Move(
            move_id=stable_id(cell, name, number, slot, remove or "", ids[target], epoch),
            kind=MoveKind.REPLACE if remove else MoveKind.ADD,
            stream=name,
            shard=number,
            slot=slot,
            remove=remove,
            add=ids[target],
            expected_epoch=epoch,
            state=MoveState.ISSUED,
            cause="repair",
            reason=reason,
            deadline=state.now + state.configuration.deadline_ms,
            issued_at=state.now,
            source=ids[source] if source != EMPTY else None,
            supersedes=before.move_id if before else None,
        )

    def _next_leader(self, shard: int) -> int | None:
        """Slot of the live replica that has to lead instead of a dead one, if there is one. A copy
        under way never leads."""
        nodes, topology = self._state.complete(shard), self._state.topology
        live = live_slots(nodes, topology)
        if not live or live[0] == 0:
            return None
        rules = self._state.rules(self._state.stream_of(shard))
        aside = sum(rule.count for rule in rules if isinstance(rule, Elsewhere))
        plain = [slot for slot in live if slot < len(nodes) - aside] or live
        able = [slot for slot in plain if topology.can_lead[nodes[slot]]] or plain
        up = [slot for slot in able if topology.eligible[nodes[slot]]] or able
        return up[0]

    def _promote(self, shard: int) -> None:
        """Put a live replica in front of a dead leader. An open move is valid at its own epoch
        only, so that one of the same nodes supersedes it."""
        state, leader = self._state, self._next_leader(shard)
        if leader is None:
            return
        opened = state.ledger.by_shard.get(shard)
        source = self._source(state.complete(shard), opened.added) if opened else EMPTY
        state.table.swap(shard, 0, leader)
        state.touch(shard)
        if opened is None:
            return
        before = state.ledger.close(shard, MoveState.SUPERSEDED, state.now).move
        state.publish_move(before)
        slot = {0: leader, leader: 0}.get(before.slot, before.slot)
        epoch, cell = state.next_epoch(shard), state.configuration.cell
        parts = (before.stream, before.shard, slot, before.remove or "", before.add, epoch)
        move = replace(
            before,
            move_id=stable_id(cell, *parts),
            slot=slot,
            expected_epoch=epoch,
            state=MoveState.ISSUED,
            deadline=state.now + state.configuration.deadline_ms,
            issued_at=state.now,
            ended_at=None,
            source=state.topology.ids[source] if source != EMPTY else None,
            supersedes=before.move_id,
        )
        state.ledger.open(replace(opened, move=move, source=source))
        state.publish_move(move)

    def violations(self, shard: int, why: Reason | None) -> tuple[Violation, ...]:
        """What the shard breaks; `why` says why it got no move, if it was planned."""
        state = self._state
        topology, stream = state.topology, state.stream_of(shard)
        nodes, (name, number) = state.table.nodes(shard), state.key(shard)
        live = live_slots(nodes, topology)
        complete = len(live_slots(state.complete(shard), topology))
        found: list[Violation] = []
        factor = stream.copies
        if complete < factor:
            kind, reason = self._prospect(shard, why)
            found.append(missing_replicas(name, number, factor, complete, reason, kind, state.now))
        if state.is_colocated(stream):
            strays = len(stray_slots(nodes, topology, self._unit(stream)))
            if strays:
                kind, reason = self._prospect(shard, why)
                found.append(split_unit(name, number, strays, reason, kind, state.now))
        assert stream.policy is not None
        held = [nodes[slot] for slot in live]
        found.extend(broken_filter(name, number, stream.policy.nodes, held, topology, state.now))
        rules = state.rules(stream)
        others = self._others(rules, shard, stream.shards)
        spec, admitted = stream.spec, stream.policy.nodes
        load = state.table.load(topology.size)
        standing = Standing(topology, factor, held, others, admitted, spec.shards, live, load=load)
        found.extend(broken_rules(name, number, rules, standing, state.now))
        return tuple(found)

    def _prospect(self, shard: int, why: Reason | None) -> tuple[ViolationClass, Reason]:
        """What is being done about a need, or why nothing is."""
        state = self._state
        opened = state.ledger.by_shard.get(shard)
        if opened:
            return ViolationClass.FIXABLE, opened.move.reason
        if why is None:
            nodes = state.table.nodes(shard)
            slot = self._needy(shard)[0]
            return ViolationClass.FIXABLE, why_needy(nodes, slot, state.topology)
        throttled = why.band is Band.THROTTLED
        return ViolationClass.DEFERRED if throttled else ViolationClass.UNFIXABLE, why
