"""Plans: what repair and rebalancing would do to a fleet as it stands, with nothing withheld.

The moves are those of the running reconciler's own `Repair`, let loose once on every shard without
its rates; a shard gets at most one move, and the rest in the next plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from placement.assignments import EMPTY
from placement.limits import Limits
from placement.model import (
    Cause,
    Decision,
    Move,
    MoveKind,
    MoveState,
    Outcome,
    StreamSpec,
    Violation,
)
from placement.moves import OpenMove
from placement.policy import Policy
from placement.reasons import Band, Code, Reason
from placement.rebalance import RebalancePlan, Skew, plan_rebalance
from placement.repair import Repair
from placement.state import Configuration, State
from placement.strategies.base import View
from placement.topology import Topology
from placement.traffic import crosses

UNLIMITED = 1 << 40


class Phase(StrEnum):
    """What to plan; `all` is repair, or rebalancing where nothing is left to repair."""

    REPAIR = "repair"
    REBALANCE = "rebalance"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class InFlight:
    """A move under way, or, for a `replace` without `add`, one that is wanted."""

    kind: MoveKind
    remove: str | None = None
    add: str | None = None
    leader: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """A stream as it stands: node indexes by shard, leader first, EMPTY where a slot is to be
    filled before others, and its moves by shard."""

    spec: StreamSpec
    policy: Policy
    shards: Sequence[Sequence[int]]
    moves: Mapping[int, InFlight] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """One move. `leader` names the node that leads instead of a dead one, or, where that is all,
    instead of one that should not."""

    stream: str
    shard: int
    kind: MoveKind
    remove: str | None
    add: str | None
    leader: str | None
    cause: Cause
    reason: Reason


@dataclass(frozen=True, slots=True)
class Plan:
    """The moves in their order. `lower_bound` is the fewest copies that reach the same; `final`
    has the replicas of every stream when all is done; `left` what no move was found for;
    `throttled` counts shards that a limit keeps waiting, `crossing` copies whose nearest source
    stands in another domain of the top level than their target (need N26); `limited`: rebalancing
    has found moves that the bounds of this plan leave to the next."""

    moves: tuple[PlannedMove, ...]
    lower_bound: int
    final: Mapping[str, tuple[tuple[str, ...], ...]]
    left: tuple[Violation, ...]
    throttled: int
    crossing: int = 0
    limited: bool = False
    warnings: tuple[Reason, ...] = ()
    before: tuple[Skew, ...] = ()
    after: tuple[Skew, ...] = ()


def plan(
    topology: Topology,
    streams: Sequence[Standing],
    phase: Phase = Phase.ALL,
    max_moves: int | None = None,
    max_moves_per_node: int | None = None,
) -> Plan:
    """Plan one phase. The topology is not changed; the streams' nodes are its indexes."""
    most = UNLIMITED if max_moves is None else max_moves
    limits = Limits(UNLIMITED, UNLIMITED, UNLIMITED, most, max_moves_per_node)
    if phase is Phase.REBALANCE:
        limits = Limits(UNLIMITED, UNLIMITED, UNLIMITED, UNLIMITED)
    draft = _Draft(topology, streams, limits)
    draft.repair()
    if phase is Phase.REBALANCE and draft.moves:
        count = len(draft.moves)
        message = f"{count} repairs come first: plan and carry out the phase 'repair'"
        untouched = _Draft(topology, streams, limits)
        return untouched.plan((Reason(Code.REPAIR_FIRST, message, 0, count),))
    repaired = draft.plan()
    if phase is Phase.REPAIR or (phase is Phase.ALL and (repaired.moves or repaired.throttled)):
        return repaired
    return draft.rebalanced(max_moves, max_moves_per_node)


class _Draft:
    """The streams in a state of their own, and what is done to them."""

    def __init__(self, topology: Topology, streams: Sequence[Standing], limits: Limits) -> None:
        self._state = State(Configuration(levels=topology.levels, limits=limits))
        self._state.topology = topology
        self._state.begin(0)
        self._repair = Repair(self._state)
        self._leaders: dict[int, str] = {}
        self._twice: dict[tuple[int, int], str] = {}
        self._marks: list[tuple[int, str]] = []
        for stream in streams:
            self._enter(stream)
        self._moving = frozenset(self._state.ledger.by_shard)
        self.moves: list[PlannedMove] = []
        self._crossing = 0
        self._leaders_left: set[tuple[str, int]] = set()

    def _enter(self, given: Standing) -> None:
        """Take a stream into the state as it will be when its moves are done."""
        state, spec = self._state, given.spec
        decision = Decision(spec.stream, 0, 1, Outcome.PLACED, spec, "", "", 0, 0, (), (), 0)
        stream = state.publish_decision(decision, given.policy)
        lists = [[*nodes] for nodes in given.shards]
        for shard, nodes in zip(state.allot(stream, lists), lists, strict=True):
            number = state.table.number_of(shard)
            if nodes and nodes[0] != EMPTY:
                self._leaders[shard] = state.topology.ids[nodes[0]]
            seen: set[int] = set()
            for slot, node in enumerate(nodes):
                if node in seen and node != EMPTY:
                    self._twice[shard, slot] = state.topology.ids[node]
                else:
                    state.table.set(shard, slot, node)
                seen.add(node)
            if number in given.moves:
                self._begin(shard, given.moves[number])

    def _begin(self, shard: int, move: InFlight) -> None:
        """Count a move under way as done, as far as it fits what is there."""
        state = self._state
        index = state.topology.index
        nodes = state.table.nodes(shard)
        removed = index.get(move.remove or "", EMPTY)
        added = index.get(move.add or "", EMPTY)
        if move.kind is MoveKind.LEADER:
            leads = index.get(move.leader or move.add or "", EMPTY)
            if leads in nodes and leads != EMPTY:
                state.table.swap(shard, 0, nodes.index(leads))
                self._open(shard, move, 0, EMPTY, EMPTY)
            return
        if added in nodes and added != EMPTY:
            # The list shows the copy that is on its way.
            at = nodes.index(added)
            state.table.set(shard, at, EMPTY)
            state.table.close_gap(shard, at)
            nodes = state.table.nodes(shard)
        if move.remove is not None and removed not in nodes:
            return
        if move.kind is MoveKind.REPLACE and move.add is None and move.remove is not None:
            self._marks.append((shard, move.remove))
            return
        if move.kind is not MoveKind.REMOVE and (added == EMPTY or state.topology.is_dead(added)):
            return
        if removed == EMPTY and EMPTY not in nodes:
            return
        slot = nodes.index(removed)
        state.table.set(shard, slot, added)
        self._open(shard, move, slot, removed, added)

    def _open(self, shard: int, move: InFlight, slot: int, removed: int, added: int) -> None:
        name, number = self._state.key(shard)
        reason = Reason(Code.REPLICA_MISSING, "a move is under way")
        # The most urgent cause: nothing supersedes what the document says is under way.
        opened = Move(
            f"{name}/{number}", move.kind, name, number, slot, move.remove, move.add, 0,
            MoveState.ACCEPTED, Cause.UNDER_REPLICATED, reason, UNLIMITED, 0,
        )  # fmt: skip
        self._state.ledger.open(OpenMove(opened, shard, removed, added, EMPTY))

    def repair(self) -> None:
        """Let repair loose on every shard."""
        state = self._state
        for shard, node_id in self._marks:
            self._repair.mark(shard, node_id)
        self._look()
        self._repair.run(caught_up=True)
        issued = [move for move, _ in state.ready.moves.values() if move.state is MoveState.ISSUED]
        moved = set(self._moving)
        for move in issued:
            shard = state.streams[move.stream].shards[move.shard]
            if shard not in moved:
                moved.add(shard)
                self.moves.append(self._told(shard, move))
                self._copy(state.complete(shard), move.add)
        follow = [shard for shard in range(state.table.shards) if self._follows(shard, moved)]
        room = max(state.configuration.limits.max_per_batch - len(self.moves), 0)
        self.moves[:0] = [self._led(shard) for shard in follow[:room]]
        for shard in follow[room:]:
            self._leave_leader(shard)
        self._leaders_left = {state.key(shard) for shard in follow[room:]}

    def _copy(self, holders: list[int], target: str | None) -> None:
        """Count where a copy for the target comes from."""
        topology = self._state.topology
        if target is not None:
            self._crossing += crosses(topology, holders, topology.index[target])

    def _look(self) -> None:
        """Let repair look at whatever may want something; at all there is while nodes are away for
        the moment, whose domains count and take nothing."""
        state, topology = self._state, self._state.topology
        if (topology.accounted & ~topology.eligible).any():
            self._repair.look_at(range(state.table.shards))
            return
        for node in np.flatnonzero(~(topology.eligible & topology.can_lead)).tolist():
            self._repair.look_at(state.table.shards_on(node))
        for stream in state.streams.values():
            assert stream.policy is not None
            if state.is_colocated(stream) or not stream.policy.nodes.everything:
                self._repair.look_at(stream.shards)
            odd = [s for s in stream.shards if len(state.table.replicas(s)) != stream.copies]
            self._repair.look_at(odd)
        self._repair.look_over()

    def _told(self, shard: int, move: Move) -> PlannedMove:
        kind, remove = move.kind, move.remove
        again, reason = self._twice.get((shard, move.slot)), move.reason
        if kind is MoveKind.ADD and again is not None:
            kind, remove = MoveKind.REPLACE, again
            reason = Reason(Code.REPLICA_TWICE, f"{again} is listed twice: that is one copy")
        before, now = self._leaders.get(shard), self._state.table.nodes(shard)[0]
        leader = self._state.topology.ids[now] if now != EMPTY else None
        if leader in (before, move.add) or before is None:
            leader = None
        cause = Cause(move.cause)
        return PlannedMove(move.stream, move.shard, kind, remove, move.add, leader, cause, reason)

    def _follows(self, shard: int, moved: set[int]) -> bool:
        """Whether all that changes is who leads."""
        nodes = self._state.table.replicas(shard)
        before = self._leaders.get(shard)
        return shard not in moved and bool(nodes) and self._state.topology.ids[nodes[0]] != before

    def _leave_leader(self, shard: int) -> None:
        """The plan has no room to let another replica lead."""
        table = self._state.table
        old = self._state.topology.index[self._leaders[shard]]
        table.swap(shard, 0, table.nodes(shard).index(old))

    def _led(self, shard: int) -> PlannedMove:
        topology, (name, number) = self._state.topology, self._state.key(shard)
        old = topology.index[self._leaders[shard]]
        leader = topology.ids[self._state.table.nodes(shard)[0]]
        if topology.is_dead(old):
            why = Reason(Code.NODE_DEAD, f"node {topology.ids[old]} is {topology.liveness[old]}")
        elif not topology.can_lead[old]:
            message = f"{topology.ids[old]} may hold copies but not lead"
            why = Reason(Code.LEADER_NOT_ALLOWED, message)
        else:
            why = Reason(Code.RULE_NOT_MET, f"{leader} stands where leaders are wanted")
        return PlannedMove(name, number, MoveKind.LEADER, None, None, leader, Cause.LEADER, why)

    def rebalanced(self, max_moves: int | None, max_moves_per_node: int | None) -> Plan:
        """The plan of rebalancing, carried out on the draft."""
        state = self._state
        view = View(state.topology, state.table, state.policy_of, state.spec_of)
        found = plan_rebalance(
            view,
            moving=self._moving,
            max_moves=max_moves,
            max_moves_per_node=max_moves_per_node,
            one_per_shard=True,
        )
        ids = state.topology.ids
        for step in found.moves:
            name, number = state.key(step.shard)
            if step.kind == MoveKind.LEADER:
                state.table.swap(step.shard, 0, step.slot)
                ways: tuple[str | None, str | None, str | None] = (None, None, ids[step.add])
            else:
                self._copy(state.table.nodes(step.shard), ids[step.add])
                state.table.set(step.shard, step.slot, step.add)
                ways = (ids[step.remove], ids[step.add], None)
            kind = MoveKind(step.kind)
            self.moves.append(PlannedMove(name, number, kind, *ways, Cause.BALANCE, step.reason))
        return self.plan((), found)

    def plan(self, warnings: tuple[Reason, ...] = (), balance: RebalancePlan | None = None) -> Plan:
        """What has been done to the draft."""
        state = self._state
        ids, table = state.topology.ids, state.table
        final = {
            name: tuple(tuple(ids[n] for n in table.replicas(s)) for s in stream.shards)
            for name, stream in state.streams.items()
        }
        said = [each for shard in sorted(state.violations) for each in state.violations[shard]]
        waiting = [v for v in said if v.reason.band is Band.THROTTLED]
        copies = sum(move.add is not None for move in self.moves)
        kept = () if balance is None else balance.kept
        return Plan(
            moves=tuple(self.moves),
            lower_bound=copies if balance is None else balance.lower_bound,
            final=final,
            left=tuple(v for v in said if v.violation_class == "unfixable"),
            throttled=len({(v.stream, v.shard) for v in waiting} | self._leaders_left),
            crossing=self._crossing,
            limited=balance is not None and balance.limited,
            warnings=(*warnings, *(reason for _, reason in kept)),
            before=() if balance is None else balance.before,
            after=() if balance is None else balance.after,
        )
