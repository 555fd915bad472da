"""Repair: from shards that lack replicas to the moves that give them back.

What to do is derived from the state alone, so that a missed or repeated event cannot lose or
double a repair. A shard has one open move at a time; shards with the fewest live replicas go first.
A shard that cannot be helped waits in `stuck` until the fleet changes, and blocks no other.
"""

from collections.abc import Iterable
from dataclasses import replace

from placement.assignments import EMPTY
from placement.choice import stable_id
from placement.diagnose import broken_rules, live_slots, missing_replicas, needy_slots, why_needy
from placement.model import Move, MoveKind, MoveState, Violation, ViolationClass
from placement.moves import OpenMove
from placement.reasons import Band, Code, Reason
from placement.rules import ColocateSlots, ExclusiveNodes, Rule, SameDomain, Standing
from placement.state import State
from placement.strategies.base import Need, View, candidates, choose


class Repair:
    """The wanted repairs and how they are issued."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._wanted: set[int] = set()
        self._stuck: set[int] = set()
        self._recheck: set[int] = set()
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

    def run(self, caught_up: bool) -> None:
        """Promote live leaders, issue the moves that the limits allow, and publish violations."""
        state = self._state
        for shard in self._recheck:
            self._promote(shard)
            needy = needy_slots(state.table.nodes(shard), state.topology)
            (self._wanted.add if needy else self._wanted.discard)(shard)
        touched = self._recheck | self._wanted
        findings = self._issue_all(caught_up) if self._wanted else {}
        for shard in sorted(touched, key=state.key):
            self._publish_violations(shard, findings.get(shard))
        self._recheck.clear()
        self._ended.clear()

    def _issue_all(self, caught_up: bool) -> dict[int, Reason]:
        """Plan each wanted shard in order; returns why those without a move have none."""
        state, found = self._state, {}
        limits = state.configuration.limits
        view = View(state.topology, state.table)
        slots: dict[tuple[int, int], int | Reason] = {}
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
            outcome = self._issue(shard, view, slots)
            issued += outcome is None
            if outcome is not None:
                found[shard] = outcome
                if outcome.band is not Band.THROTTLED:
                    self._wanted.discard(shard)
                    self._stuck.add(shard)
        return found

    def _urgency(self, shard: int) -> tuple[int, str, int]:
        live = len(live_slots(self._state.table.nodes(shard), self._state.topology))
        return (live, *self._state.key(shard))

    def _issue(
        self, shard: int, view: View, slots: dict[tuple[int, int], int | Reason]
    ) -> Reason | None:
        """Issue the shard's next move, or say why there is none."""
        state = self._state
        nodes = state.table.nodes(shard)
        slot = needy_slots(nodes, state.topology)[0]
        target = self._target(shard, nodes, slot, view, slots)
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
            self._settle(shard)
        state.publish_move(move)
        return None

    def _settle(self, shard: int) -> None:
        """An immediate move is done: the shard may need another, in the next batch."""
        nodes = self._state.table.nodes(shard)
        if not needy_slots(nodes, self._state.topology):
            self._wanted.discard(shard)

    def _target(
        self,
        shard: int,
        nodes: list[int],
        slot: int,
        view: View,
        slots: dict[tuple[int, int], int | Reason],
    ) -> int | Reason:
        """Where the replica goes. In a colocated stream the answer holds for all its shards."""
        state = self._state
        stream = state.stream_of(shard)
        rules = state.rules(stream)
        colocated = any(isinstance(rule, ColocateSlots) for rule in rules)
        key = (stream.index, nodes[slot])
        if colocated and key in slots:
            return slots[key]
        target: int | Reason | None = None
        if colocated:
            target = self._follow(shard, nodes, stream.shards)
        if target is None:
            live = live_slots(nodes, state.topology)
            kept = [nodes[s] for s in live if s != slot]
            name, number = state.key(shard)
            others = self._others(rules, shard, stream.shards)
            factor = state.table.factor(shard)
            whole = 0 if colocated else number
            dead = frozenset(node for node in nodes if node != EMPTY)
            need = Need(name, whole, slot, factor, kept, others, nodes[slot], dead)
            assert stream.policy is not None
            target = choose(rules, candidates(stream.policy, view), need, view)
        if colocated:
            slots[key] = target
        return target

    def _follow(self, shard: int, nodes: list[int], shards: range) -> int | None:
        """The node that other shards of a colocated stream moved to before this one."""
        eligible = self._state.topology.eligible
        for other in shards:
            for node in self._state.table.replicas(other) if other != shard else ():
                if node not in nodes and eligible[node]:
                    return node
        return None

    def _others(self, rules: tuple[Rule, ...], shard: int, shards: range) -> list[int]:
        """Nodes of the stream's other shards, where a rule asks for them."""
        if not any(isinstance(rule, ExclusiveNodes | SameDomain) for rule in rules):
            return []
        replicas = self._state.table.replicas
        return [node for other in shards if other != shard for node in replicas(other)]

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

    def _promote(self, shard: int) -> None:
        """Put a live replica in front of a dead leader; a copy under way never leads."""
        state = self._state
        nodes, topology = state.table.nodes(shard), state.topology
        opened = state.ledger.by_shard.get(shard)
        under_way = opened.move.slot if opened else None
        if under_way != 0 and nodes[0] != EMPTY and not topology.is_dead(nodes[0]):
            return
        live = [slot for slot in live_slots(nodes, topology) if slot not in (0, under_way)]
        able = [slot for slot in live if topology.can_lead[nodes[slot]]] or live
        if able and under_way != 0:
            up = [slot for slot in able if topology.eligible[nodes[slot]]] or able
            state.table.swap(shard, 0, up[0])
            state.touch(shard)

    def _publish_violations(self, shard: int, why: Reason | None) -> None:
        state = self._state
        nodes, (name, number) = state.table.nodes(shard), state.key(shard)
        stream = state.stream_of(shard)
        live = live_slots(nodes, state.topology)
        opened = state.ledger.by_shard.get(shard)
        complete = [slot for slot in live if not opened or slot != opened.move.slot]
        found: list[Violation] = []
        if len(complete) < len(nodes):
            if opened:
                kind, reason = ViolationClass.FIXABLE, opened.move.reason
            elif why is not None:
                throttled = why.band is Band.THROTTLED
                kind = ViolationClass.DEFERRED if throttled else ViolationClass.UNFIXABLE
                reason = why
            else:
                kind, reason = (
                    ViolationClass.FIXABLE,
                    why_needy(nodes, needy_slots(nodes, state.topology)[0], state.topology),
                )
            found.append(
                missing_replicas(name, number, nodes, len(complete), reason, kind, state.now)
            )
        rules = state.rules(stream)
        others = self._others(rules, shard, stream.shards)
        standing = Standing(state.topology, len(nodes), [nodes[slot] for slot in live], others)
        found.extend(broken_rules(name, number, rules, standing, state.now))
        state.set_violations(shard, tuple(found))
