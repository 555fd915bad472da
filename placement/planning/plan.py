"""Plans the moves that repair and rebalancing would make for a fleet as it stands.

The moves come from the reconciler's own `RepairPlanner`, run once over every shard without its
limits. A shard gets at most one move; the rest comes with the next plan (`planning.waves`).

A copy is taken from the nearest live replica, as the reconciler suggests to the executor. The plan
counts the copies that leave their top-level domain, where traffic costs money.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from placement.assignments import EMPTY, NodeIdLists, first_occurrences, stack_lists
from placement.diagnosis import is_stuck, why_barred_leader
from placement.model import (
    UNLIMITED,
    Band,
    Cause,
    Code,
    Configuration,
    Decision,
    Limits,
    Move,
    MoveKind,
    MoveState,
    Outcome,
    Reason,
    Resource,
    ShardLoad,
    StreamSpec,
    Violation,
)
from placement.moves import OpenMove
from placement.planning.balance import plan_balance
from placement.policy import Policy
from placement.rebalance import RebalancePlan, Skew
from placement.repair import RepairPlanner, copy_source
from placement.state import ClusterState
from placement.topology import Scope, Topology
from placement.wording import format_count

TOP = Scope(depth=1)


def top_level(topology: Topology) -> str:
    """Name the top level of the topology."""
    return topology.levels[0] if topology.levels else topology.tiers()[0].level


def crosses(topology: Topology, holders: Sequence[int], target: int) -> bool:
    """Return whether a copy has to come from another top-level domain than the target's.

    `holders`: nodes with a complete copy, by index, EMPTY for none. True where some live and none
    of those stands in the target's domain. Without a live holder there is nothing to copy.
    """
    domain = topology.domain_of(TOP)
    live = [node for node in holders if node != EMPTY and not topology.is_dead(node)]
    return bool(live) and all(domain[node] != domain[target] for node in live)


WITHOUT_LIMITS = Limits(UNLIMITED, UNLIMITED, UNLIMITED, UNLIMITED, UNLIMITED)


class PlanPhase(StrEnum):
    """Names what to plan; `all` is repair, or rebalancing if nothing is left to repair."""

    REPAIR = "repair"
    REBALANCE = "rebalance"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class InFlight:
    """Holds a move under way, or, for a `replace` without `add`, a requested one."""

    kind: MoveKind
    remove: str | None = None
    add: str | None = None
    leader: str | None = None


@dataclass(frozen=True, slots=True)
class StreamSnapshot:
    """Holds a stream with its replicas and open moves.

    `shards`: node indexes by shard, leader first; an EMPTY slot is filled before others. `moves`:
    the moves under way, by shard number. `loads`: what is known of its shards.
    """

    spec: StreamSpec
    policy: Policy
    shards: Sequence[Sequence[int]]
    moves: Mapping[int, InFlight] = field(default_factory=dict)
    unobserved: frozenset[int] = frozenset()
    loads: Sequence[ShardLoad] = ()


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """Holds one move of a plan; nodes by id.

    `leader`: the node that leads after the move where that changes, because the leader is dead, may
    not lead, or leads more than its share; None where it does not change. `bytes`: what the copy
    transfers, from the node `source`; None where bytes are not counted or nothing is copied.
    """

    stream: str
    shard: int
    kind: MoveKind
    remove: str | None
    add: str | None
    leader: str | None
    cause: Cause
    reason: Reason
    bytes: int | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Holds the moves in their order, and what they amount to.

    - `lower_bound`: the fewest copies that reach the same arrangement.
    - `final`: node ids by stream and shard when all moves are done.
    - `left`: violations for which no move was found.
    - `throttled`: shards that wait for a limit.
    - `crossing`: copies whose nearest source stands in another top-level domain than the target.
    - `limited`: rebalancing found moves that the bounds of this plan leave to the next.
    - `before`, `after`: how uneven the loads are, for rebalancing.
    - `bytes_lower_bound`: the fewest bytes by which rebalancing could do as much, where it counts
      them.
    """

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
    bytes_lower_bound: int | None = None


def plan(
    topology: Topology,
    streams: Sequence[StreamSnapshot],
    phase: PlanPhase = PlanPhase.ALL,
    max_moves: int | None = None,
    max_moves_per_node: int | None = None,
    resources: Sequence[Resource] = (),
) -> Plan:
    """Plan one phase; the topology stays unchanged.

    `streams`: their nodes are indexes of `topology`. `max_moves`: of the whole plan.
    `max_moves_per_node`: moves that touch one node. None stands for no limit. `resources`: what is
    counted beside replicas.
    """
    most = UNLIMITED if max_moves is None else max_moves
    limits = replace(WITHOUT_LIMITS, max_per_batch=most, max_touching_per_node=max_moves_per_node)
    if phase is PlanPhase.REBALANCE:
        limits = WITHOUT_LIMITS
    draft = _Draft(topology, streams, limits, resources)
    draft.repair()
    if phase is PlanPhase.REBALANCE and draft.moves:
        count = len(draft.moves)
        repairs = format_count(count, "repair")
        message = f"{repairs} must be made first: plan and carry out the phase 'repair'"
        untouched = _Draft(topology, streams, limits, resources)
        return untouched.plan((Reason(Code.REPAIR_FIRST, message, 0, count),))
    repaired = draft.plan()
    if phase is PlanPhase.REPAIR or (
        phase is PlanPhase.ALL and (repaired.moves or repaired.throttled)
    ):
        return repaired
    return draft.rebalance(max_moves, max_moves_per_node)


class _Draft:
    """Holds the streams in a state of its own, on which moves are planned."""

    def __init__(
        self,
        topology: Topology,
        streams: Sequence[StreamSnapshot],
        limits: Limits,
        resources: Sequence[Resource],
    ) -> None:
        counted = Configuration(levels=topology.levels, limits=limits, resources=tuple(resources))
        self._state = ClusterState(counted, topology)
        self._state.begin(0)
        self._repair = RepairPlanner(self._state)
        # The first node of each shard's list as it was given.
        self._first = np.zeros(0, np.int64)
        self._twice: dict[tuple[int, int], str] = {}
        self._marks: list[tuple[int, str]] = []
        for stream in streams:
            self._enter(stream)
        self._state.loads.learn([load for stream in streams for load in stream.loads])
        self._moving = frozenset(self._state.ledger.by_shard)
        self.moves: list[PlannedMove] = []
        self._crossing = 0
        self._leaders_left: set[tuple[str, int]] = set()

    def _enter(self, given: StreamSnapshot) -> None:
        """Record a stream as it is after its open moves."""
        state, spec = self._state, given.spec
        decision = Decision(spec.stream, 0, 1, Outcome.PLACED, spec, "", "", 0, 0, (), (), 0)
        stream = state.upsert_stream(decision, given.policy)
        shards = np.asarray(state.allocate_slots(stream, given.shards), np.int64)
        state.await_replicas(shards[[*given.unobserved]].tolist() if given.unobserved else ())
        rows, _ = stack_lists(given.shards)
        first = rows[:, 0] if rows.shape[1] else np.full(len(rows), EMPTY)
        self._first = np.concatenate([self._first, first])
        filled = rows != EMPTY
        odd = (filled & ~first_occurrences(rows)).any(axis=1)
        odd |= (filled[:, 1:] & ~filled[:, :-1]).any(axis=1)
        whole = rows[~odd]
        state.load_replicas(shards[~odd], filled[~odd].sum(axis=1), whole[whole != EMPTY])
        for number in np.flatnonzero(odd).tolist():
            self._enter_odd(int(shards[number]), rows[number].tolist())
        for number, move in sorted(given.moves.items(), key=lambda each: each[0]):
            self._begin(int(shards[number]), move)

    def _enter_odd(self, shard: int, nodes: list[int]) -> None:
        """Record a list with gaps; a node that occurs twice holds one copy."""
        for slot, node in enumerate(nodes):
            if node == EMPTY or node not in nodes[:slot]:
                self._state.table.set(shard, slot, node)
            else:
                self._twice[shard, slot] = self._state.topology.ids[node]

    def _begin(self, shard: int, move: InFlight) -> None:
        """Record an open move as done, as far as it fits the shard's list."""
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
            state.clear_slot(shard, at)
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
        """Record the open move in the ledger."""
        name, number = self._state.streams.key(shard)
        reason = Reason(Code.REPLICA_MISSING, "a move is under way")
        # The most urgent cause: nothing supersedes what the document says is under way.
        opened = Move(
            f"{name}/{number}", move.kind, name, number, slot, move.remove, move.add, 0,
            MoveState.ACCEPTED, Cause.UNDER_REPLICATED, reason, UNLIMITED, 0,
        )  # fmt: skip
        self._state.ledger.open(OpenMove(opened, shard, removed, added, EMPTY))

    def repair(self) -> None:
        """Run repair on every shard that may need it, and note its moves."""
        state = self._state
        for shard, node_id in self._marks:
            self._repair.mark(shard, node_id)
        self._enqueue_shards()
        self._repair.run(caught_up=True)
        issued = [
            move
            for move, _ in state.publisher.ready.moves.values()
            if move.state is MoveState.ISSUED
        ]
        moved = set(self._moving)
        for move in issued:
            shard = state.streams[move.stream].shards[move.shard]
            if shard not in moved:
                moved.add(shard)
                self.moves.append(self._planned_move(shard, move))
                self._count_crossing(state.current_replicas(shard), move.add)
        follow = self._shards_changing_leader(moved)
        room = max(state.configuration.limits.max_per_batch - len(self.moves), 0)
        self.moves[:0] = [self._leader_move(shard) for shard in follow[:room]]
        for shard in follow[room:]:
            self._keep_leader(shard)
        self._leaders_left = {state.streams.key(shard) for shard in follow[room:]}

    def _count_crossing(self, holders: list[int], target: str | None) -> None:
        """Count the copy for the target if it comes from another top-level domain."""
        topology = self._state.topology
        if target is not None:
            self._crossing += crosses(topology, holders, topology.index[target])

    def _enqueue_shards(self) -> None:
        """Queue the shards that may need something.

        All of them while nodes are away for a while, as their domains count and take no replicas.
        """
        state, topology = self._state, self._state.topology
        if (topology.counts_for_rules & ~topology.eligible).any():
            self._repair.enqueue(range(state.table.shards))
            return
        for node in np.flatnonzero(~(topology.eligible & topology.can_lead)).tolist():
            self._repair.enqueue(state.table.shards_on(node))
        for stream in state.streams.values():
            assert stream.policy is not None
            if state.streams.is_colocated(stream) or not stream.policy.nodes.everything:
                self._repair.enqueue(stream.shards)
        for index, rows in state.table.streams():
            stream = state.streams.at(index)
            odd = np.flatnonzero((rows != EMPTY).sum(axis=1) != stream.copies)
            self._repair.enqueue(np.asarray(stream.shards)[odd].tolist())
        self._repair.enqueue_rule_breakers()

    def _planned_move(self, shard: int, move: Move) -> PlannedMove:
        """Make the planned move of an issued one."""
        kind, remove = move.kind, move.remove
        again, reason = self._twice.get((shard, move.slot)), move.reason
        if kind is MoveKind.ADD and again is not None:
            kind, remove = MoveKind.REPLACE, again
            reason = Reason(Code.REPLICA_TWICE, f"node {again} is listed twice, which is one copy")
        before, now = int(self._first[shard]), self._state.table.nodes(shard)[0]
        leader = self._state.topology.ids[now] if now != EMPTY else None
        if before in (now, EMPTY) or leader == move.add:
            leader = None
        cause = Cause(move.cause)
        copied = (None, None) if move.bytes is None else (move.bytes, move.source)
        ends = (remove, move.add, leader)
        return PlannedMove(move.stream, move.shard, kind, *ends, cause, reason, *copied)

    def _shards_changing_leader(self, moved: set[int]) -> list[int]:
        """List the shards of which only the leader changes."""
        state, found = self._state, []
        for index, rows in state.table.streams():
            shards = np.asarray(state.streams.at(index).shards)
            leads = rows[np.arange(len(rows)), np.argmax(rows != EMPTY, axis=1)]
            found += shards[(leads != EMPTY) & (leads != self._first[shards])].tolist()
        return sorted(set(found) - moved)

    def _keep_leader(self, shard: int) -> None:
        """Undo the change of a shard's leader that exceeds the plan's limits."""
        table = self._state.table
        table.swap(shard, 0, table.nodes(shard).index(int(self._first[shard])))

    def _leader_move(self, shard: int) -> PlannedMove:
        """Make the planned move that changes a shard's leader."""
        topology, (name, number) = self._state.topology, self._state.streams.key(shard)
        old = int(self._first[shard])
        leader = topology.ids[self._state.table.nodes(shard)[0]]
        if topology.is_dead(old):
            why = Reason(Code.NODE_DEAD, f"node {topology.ids[old]} is {topology.liveness[old]}")
        elif not topology.can_lead[old]:
            why = why_barred_leader(old, topology)
        else:
            why = Reason(Code.RULE_NOT_MET, f"node {leader} is where the policy puts leaders")
        return PlannedMove(name, number, MoveKind.LEADER, None, None, leader, Cause.LEADER, why)

    def rebalance(self, max_moves: int | None, max_moves_per_node: int | None) -> Plan:
        """Carry out a rebalance on the draft and return its plan."""
        state = self._state
        balance = plan_balance(state.view(), self._moving, max_moves, max_moves_per_node)
        found = balance.plan
        ids = state.topology.ids
        copied: dict[int, int] = {}  # the move of each shard that moves a replica
        led: dict[int, tuple[int, Reason]] = {}  # who led each shard that gets another leader
        for step in found.moves:
            if step.kind is MoveKind.LEADER:
                led.setdefault(step.shard, (state.table.nodes(step.shard)[0], step.reason))
                state.table.swap(step.shard, 0, step.slot)
                continue
            nodes = state.table.nodes(step.shard)
            self._count_crossing(nodes, ids[step.add])
            size = state.bytes_of(step.shard)
            source = EMPTY if size is None else copy_source(state, step.shard, nodes, step.add)
            copy = (size, None if source == EMPTY else ids[source])
            state.table.set(step.shard, step.slot, step.add)
            copied[step.shard] = len(self.moves)
            key, ends = state.streams.key(step.shard), (ids[step.remove], ids[step.add], None)
            moved = PlannedMove(*key, step.kind, *ends, Cause.BALANCE, step.reason, *copy)
            self.moves.append(moved)
        for shard, (before, reason) in led.items():
            leader = state.table.nodes(shard)[0]
            if shard in copied:
                along = self.moves[copied[shard]]
                self.moves[copied[shard]] = replace(along, leader=ids[leader])
            elif leader != before:
                key, new = state.streams.key(shard), ids[leader]
                handed = PlannedMove(*key, MoveKind.LEADER, None, None, new, Cause.BALANCE, reason)
                self.moves.append(handed)
        return replace(self.plan((), found), bytes_lower_bound=balance.bytes_lower_bound)

    def plan(self, warnings: tuple[Reason, ...] = (), balance: RebalancePlan | None = None) -> Plan:
        """Make the plan of what was done to the draft."""
        state = self._state
        ids, table = state.topology.ids, state.table
        rows = {state.streams.at(index).name: rows.copy() for index, rows in table.streams()}
        violations = [
            each
            for shard in sorted(state.publisher.violations)
            for each in state.publisher.violations[shard]
        ]
        waiting = [v for v in violations if v.reason.band is Band.THROTTLED]
        copies = sum(move.add is not None for move in self.moves)
        kept = () if balance is None else balance.kept
        return Plan(
            moves=tuple(self.moves),
            lower_bound=copies if balance is None else balance.lower_bound,
            final=NodeIdLists({name: rows[name] for name in state.streams}, ids),
            left=tuple(filter(is_stuck, violations)),
            throttled=len({(v.stream, v.shard) for v in waiting} | self._leaders_left),
            crossing=self._crossing,
            limited=balance is not None and balance.limited,
            warnings=(*warnings, *(reason for _, reason in kept)),
            before=() if balance is None else balance.before,
            after=() if balance is None else balance.after,
        )
