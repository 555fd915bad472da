"""Rebalancing in the stream: when it is wanted, what is left of it, and what gives way to it.

That it is wanted and the moves that are left are remembered (`rebalance` in `state.v1`), so that a
restart goes on. A plan is made once, when nothing that can be repaired is waiting, and issued as
limits allow; it is dropped and made anew when the nodes that may receive replicas change. Moves
that belong together (a colocated stream's, a swap) go together or, where limits never allow so
many at once, not at all: half of them would be for repair to take back.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NotRequired, TypedDict, cast

import numpy as np

from placement.allocator import View
from placement.controllers.load_trigger import KIND, TRIED, LoadTrigger
from placement.model import Cause, Code, MoveKind, MoveState, Reason, Rebalance, natural_key
from placement.moves import Ledger
from placement.planning import first_wave
from placement.rebalance import (
    RebalanceMove,
    RebalancePlan,
    Replica,
    ResourceRebalance,
    plan_rebalance,
    plan_view_resources,
)
from placement.repair import Copy, RepairAction, RepairPlanner, Throttle
from placement.state import ClusterState

WANTED = "wanted"
# Of a plan so many moves are kept; the rest is found again when these are done.
PLAN_MOVES_MAX = 10_000


class QueuedMove(TypedDict):
    """Holds one move of a plan that is still to be issued, as the state remembers it."""

    stream: str
    shard: int
    kind: str
    slot: int
    remove: str
    add: str
    step: int
    message: str
    code: NotRequired[str]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Holds a plan, and the streams whose moves it leaves out.

    Those moves belong together and are more than limits ever allow at once. `dwells_until`: the
    time, in ms, up to which replicas stay that were moved a short while ago; None where that keeps
    no move back.
    """

    plan: RebalancePlan | ResourceRebalance
    too_large: tuple[str, ...] = ()
    dwells_until: int | None = None

    @property
    def why_nothing(self) -> str:
        """Return the reason why the plan has no moves."""
        found = []
        if self.too_large:
            streams = ", ".join(self.too_large)
            found.append(f"the moves of {streams} have to go together, and limits allow fewer")
        if self.dwells_until is not None:
            found.append("replicas that were moved for balance within the dwell time stay")
        return "; ".join(found) or "no move would make the loads more even"


class RebalanceController:
    """Plans a rebalance when one is wanted, and issues its moves."""

    def __init__(self, state: ClusterState, repair: RepairPlanner) -> None:
        self._state, self._repair = state, repair
        self._left: dict[str, QueuedMove] = {}
        # Streams that this batch has dropped; others may have their names already.
        self._gone: set[str] = set()
        self._eligible = np.zeros(0, bool)
        self._weight, self._capacity = np.zeros(0), np.zeros(0, np.int64)
        self._loads = LoadTrigger(state)

    def resume(self) -> None:
        """Continue the plan that a restored state remembers."""
        found = self._state.memory.of_kind(KIND)
        queued = {name: body for name, body in found.items() if name not in (WANTED, TRIED)}
        self._left = cast("dict[str, QueuedMove]", queued)
        self._note_nodes()

    def want(self, why: str, after: int = 0, relief: bool = False) -> None:
        """Request a rebalance of the fleet, not before the given time.

        `relief`: only of nodes over their capacity.
        """
        body: dict[str, object] = {"why": why, "after": after}
        self._state.memory.remember(KIND, WANTED, body | ({"relief": True} if relief else {}))

    def want_on_join(self, why: str) -> None:
        """Request a rebalance, if the mode makes one when nodes join and there are replicas."""
        state = self._state
        if state.configuration.rebalance is Rebalance.OFF:
            return
        if state.table.load(state.topology.size).any():
            self.want(why)

    def plan(self, relief: bool = False) -> Proposal:
        """Plan the rebalance as if it were made now; `relief`: only of nodes over capacity.

        Resources decide where any is balanced; the counts of replicas do where none is.
        """
        by_loads = self._plan_by_loads(relief)
        if by_loads is not None:
            return by_loads
        dwelling = self._dwelling_replicas()
        found = self._make_proposal(frozenset())
        copies = (move for move in found.plan.moves if move.kind is not MoveKind.LEADER)
        again = dwelling.keys() & {(move.shard, move.remove) for move in copies}
        if not again:
            return found
        until = max(dwelling[replica] for replica in again)
        return replace(self._make_proposal(dwelling.keys()), dwells_until=until)

    def _plan_by_loads(self, relief: bool) -> Proposal | None:
        """Plan what loads call for; None if they call for nothing, and balance none.

        The first wave: the next plan has those that follow.
        """
        state, resources = self._state, self._state.configuration.resources
        if not any(each.capacity is not None or each.balance is not None for each in resources):
            return None
        dwelling, left, view = self._dwelling_replicas(), self._left_replicas(), state.view()
        if view.loads is None:
            return None

        def propose(stays: Collection[Replica], closed: Collection[Replica]) -> Proposal:
            def search(moving: Collection[int]) -> ResourceRebalance:
                found = plan_view_resources(
                    view,
                    moving=moving,
                    dwelling=stays,
                    forbidden=closed,
                    leader_stays=state.sync.shards,
                    relief_only=relief,
                    quick=True,
                )
                return replace(found, moves=tuple(first_wave(found)))

            return self._propose(search)

        proposal = propose(dwelling.keys(), left.keys())
        recent = [*dwelling.values(), *left.values()]
        if not proposal.plan.moves and recent and propose((), ()).plan.moves:
            return replace(proposal, dwells_until=max(recent))
        balances = relief or any(each.balance is not None for each in resources)
        return proposal if proposal.plan.moves or balances else None

    def _make_proposal(self, dwelling: Collection[Replica]) -> Proposal:
        """Plan a rebalance of counts that leaves dwelling replicas where they are."""
        view = self._state.view()

        def search(moving: Collection[int]) -> RebalancePlan:
            return plan_rebalance(
                view,
                moving=moving,
                dwelling=dwelling,
                max_moves=PLAN_MOVES_MAX,
                one_per_shard=True,
                leader_stays=self._state.sync.shards,
            )

        return self._propose(search)

    def _propose(
        self, search: Callable[[Collection[int]], RebalancePlan | ResourceRebalance]
    ) -> Proposal:
        """Search for a plan that leaves shards of steps above the limits where they are."""
        state = self._state
        # What something is wrong with is repair's, even where that cannot help.
        moving = {*state.ledger.by_shard, *state.publisher.violations}
        stays: set[int] = set()
        idle = Throttle(state, Ledger())
        while True:
            found = search(moving)
            copies = (move for move in found.moves if move.kind is not MoveKind.LEADER)
            steps = ([*step] for _, step in groupby(copies, key=lambda move: move.step))
            large = [
                s
                for s in steps
                if not idle.has_room_for([Copy(m.shard, m.remove, m.add) for m in s])
            ]
            if not large:
                streams = sorted({state.streams.key(shard)[0] for shard in stays}, key=natural_key)
                return Proposal(found, tuple(streams))
            stays.update(move.shard for step in large for move in step)
            moving |= stays

    def forget(self, stream: str) -> None:
        """Forget what the plan has for a stream that is dropped."""
        self._gone.add(stream)

    def note_move_end(self, cause: str, end: MoveState) -> None:
        """Plan again later if a move for balance has ended without being completed."""
        if cause == Cause.BALANCE and end is not MoveState.COMPLETED:
            self.want("a move was not completed", self._retry_at)

    def run(self, caught_up: bool) -> None:
        """Detect triggers of a rebalance; plan and issue it while no repair is needed."""
        self._notice()
        wanted = self._state.memory.get((KIND, WANTED))
        if not caught_up or (wanted is None and not self._left) or not self._repair.is_idle():
            return
        if wanted is not None and not self._left and wanted.body["after"] <= self._state.now:
            self._begin(str(wanted.body["why"]), bool(wanted.body.get("relief")))
        if self._left:
            self._issue()

    @property
    def _retry_at(self) -> int:
        """Return the time, in ms, from which to try again."""
        return self._state.now + self._state.configuration.dwell_ms

    def _notice(self) -> None:
        """Drop the plan where other nodes may receive replicas, and want one where the mode or
        loads say so."""
        steps = {body["step"] for body in self._left.values() if body["stream"] in self._gone}
        self._drop([name for name, body in self._left.items() if body["step"] in steps])
        self._gone.clear()
        self._notice_nodes()
        need = None if self._left else self._loads.find_need()
        wanted = self._state.memory.get((KIND, WANTED))
        if need is not None and wanted is None:
            self.want(need.why, relief=need.relief)

    def _notice_nodes(self) -> None:
        """Notice nodes that may receive replicas now or no more, or that may hold more."""
        state = self._state
        known, weight, capacity = self._eligible, self._weight, self._capacity
        self._note_nodes()
        before = np.zeros(len(self._eligible), bool)
        before[: len(known)] = known
        changed = bool((before != self._eligible).any())
        if changed and self._left:
            self._drop(self._left)
            self.want("the nodes have changed")
        fresh = self._eligible & ~before
        if fresh.any() and not state.table.load(len(fresh))[fresh].all():
            self.want_on_join("a node has joined")
        stayed = slice(len(known))
        more = self._weight[stayed] > weight
        more |= (capacity >= 0) & (
            (self._capacity[stayed] < 0) | (self._capacity[stayed] > capacity)
        )
        if (more & known & self._eligible[stayed]).any():
            self.want_on_join("a node may hold more")
        if state.configuration.rebalance is Rebalance.CONTINUOUS and (
            changed or state.publisher.ready.decisions
        ):
            self.want("the load has changed")

    def _note_nodes(self) -> None:
        """Note which nodes may receive replicas, and how many each may hold."""
        topology = self._state.topology
        self._eligible = topology.eligible.copy()
        self._weight, self._capacity = topology.weight.copy(), topology.capacity.copy()

    def _begin(self, why: str, relief: bool) -> None:
        """Plan, and remember the moves; a rebalance stays wanted until nothing is found."""
        if self._state.ledger.by_shard or self._repair.has_dirty:
            return  # what is under way may be what keeps something from being found
        found = self.plan(relief)
        if not found.plan.moves:
            self._state.memory.remember(KIND, WANTED, None)
            if self._state.configuration.resources:
                self._loads.note_nothing_found(relief)
            if found.dwells_until is not None:
                self.want(why, found.dwells_until)
        for number, move in enumerate(found.plan.moves):
            name, body = f"{number:08d}", self._queued_move(move)
            self._left[name] = body
            self._state.memory.remember(KIND, name, body)

    def _queued_move(self, move: RebalanceMove) -> QueuedMove:
        """Make the body that is remembered of a move."""
        (stream, number), ids = self._state.streams.key(move.shard), self._state.topology.ids
        body: QueuedMove = {
            "stream": stream,
            "shard": number,
            "kind": str(move.kind),
            "slot": move.slot,
            "remove": ids[move.remove],
            "add": ids[move.add],
            "step": move.step,
            "message": move.reason.message,
        }
        if move.reason.code is not Code.LOAD_UNEVEN:
            body["code"] = move.reason.code
        return body

    def _issue(self) -> None:
        """Issue what limits allow, in the order of the plan.

        Moves that do not fit any more are left out.
        """
        state, done = self._state, []
        view = state.view()
        most = state.configuration.limits.max_per_batch
        room, idle = most, Throttle(state, Ledger())
        # What nodes bear of resources they bear until it has left.
        waits = view.loads is not None and bool(state.ledger.by_shard)
        for _, group in groupby(self._left.items(), key=lambda each: each[1]["step"]):
            step = [*group]
            moves = [body for _, body in step]
            # A chain of leaders, which copies nothing, may be longer than any batch.
            if room < min(len(step), most):
                break
            fits = all(map(self._fits, moves))
            copies = self._copies(moves) if fits else []
            # What goes earlier in the plan may make room for what comes.
            full = fits and self._overfills(moves, view)
            if not fits or (full and not waits) or not idle.has_room_for(copies):
                done += [name for name, _ in step]
                self.want("a move did not fit any more", self._retry_at)
            elif full or not Throttle(state).has_room_for(copies):
                waits = True
            else:
                self._make(moves, view)
                room -= len(step)
                done += [name for name, _ in step]
        self._drop(done)

    def _fits(self, body: QueuedMove) -> bool:
        """Return whether the shard's list is still as the plan had it."""
        state = self._state
        stream, index = state.streams.get(body["stream"]), state.topology.index
        if stream is None or body["shard"] >= len(stream.shards) or body["add"] not in index:
            return False
        shard = stream.shards[body["shard"]]
        nodes, add = state.table.nodes(shard), index[body["add"]]
        remove = index.get(body["remove"], -1)
        if body["slot"] >= len(nodes):
            return False  # versions up to 0.2 kept the plan of a stream that was dropped
        if shard in state.ledger.by_shard or shard in state.publisher.violations:
            return False
        if add in state.backed_off_targets(shard):
            return False
        if body["kind"] == MoveKind.LEADER:
            in_order = nodes[0] == remove and nodes[body["slot"]] == add
            return in_order and not state.sync.nodes_of(shard)
        return nodes[body["slot"]] == remove and add not in nodes

    def _overfills(self, moves: Sequence[QueuedMove], view: View) -> bool:
        """Return whether a node would exceed its capacity when the turn of one of these moves
        comes."""
        index, capacity, load = self._state.topology.index, view.topology.capacity, view.load.copy()
        trial = view.fork()
        for body in moves:
            add, remove = index[body["add"]], index[body["remove"]]
            trial.bear_shard(self._state.streams[body["stream"]].shards[body["shard"]])
            if body["kind"] == MoveKind.LEADER:
                if trial.loads is not None:
                    if not trial.loads.fits_lead(add, trial.loads.shard):
                        return True
                    trial.loads.count_lead(add, trial.loads.shard, 1)
                    trial.loads.count_lead(remove, trial.loads.shard, -1)
                continue
            load[add] += 1
            load[remove] -= 1
            if 0 <= capacity[add] < load[add]:
                return True
            if trial.loads is not None:
                if not trial.loads.fits()[add]:
                    return True
                trial.add(add)
        return False

    def _copies(self, moves: Sequence[QueuedMove]) -> list[Copy]:
        """List the replicas that the moves copy."""
        streams, index = self._state.streams, self._state.topology.index
        copies = (body for body in moves if body["kind"] != MoveKind.LEADER)
        return [
            Copy(streams[b["stream"]].shards[b["shard"]], index[b["remove"]], index[b["add"]])
            for b in copies
        ]

    def _make(self, moves: Sequence[QueuedMove], view: View) -> None:
        """Carry out one step: change its leaders, and issue its copies together."""
        state, index = self._state, self._state.topology.index
        copies = []
        for body in moves:
            shard = state.streams[body["stream"]].shards[body["shard"]]
            reason = Reason(Code(body.get("code", Code.LOAD_UNEVEN)), body["message"])
            ends = index[body["add"]], index[body["remove"]]
            if body["kind"] == MoveKind.LEADER:
                if self._repair.hand_over(shard, body["slot"], Cause.BALANCE, reason):
                    self.want("a limit was reached", self._retry_at)
                elif view.loads is not None and state.table.loads is not None:
                    amounts = state.table.loads.of_shard(shard)
                    view.loads.count_lead(ends[0], amounts, 1)
                    # Until executors acknowledge a hand-over both nodes bear the shard.
                    if shard not in state.ledger.by_shard:
                        view.loads.count_lead(ends[1], amounts, -1)
                continue
            action = RepairAction(Cause.BALANCE, MoveKind.REPLACE, body["slot"], reason, *ends)
            copies.append((shard, action))
        if self._repair.issue(copies, view):
            self.want("a limit was reached", self._retry_at)

    def _drop(self, names: Iterable[str]) -> None:
        for name in [*names]:
            del self._left[name]
            self._state.memory.remember(KIND, name, None)

    def _left_replicas(self) -> dict[Replica, int]:
        """Find the shards with the nodes that they left for balance within the dwell time, with
        the time from which they may go back."""
        state, found = self._state, dict[Replica, int]()
        for each in state.ledger.known.values():
            node = state.topology.index.get(each.remove or "")
            stream = state.streams.get(each.stream)
            done = each.cause == Cause.BALANCE and each.state is MoveState.COMPLETED
            until = (each.ended_at or 0) + state.configuration.dwell_ms
            if not done or until <= state.now or node is None or stream is None:
                continue
            if each.shard < len(stream.shards):
                replica = stream.shards[each.shard], node
                found[replica] = max(until, found.get(replica, 0))
        return found

    def _dwelling_replicas(self) -> dict[Replica, int]:
        """Find the replicas that were moved for balance less than `dwell_ms` ago, with the time
        from which each may be moved again.

        Where such a move was not completed, the replica that it would have moved.
        """
        state, found = self._state, dict[Replica, int]()
        index, dwell = state.topology.index, state.configuration.dwell_ms
        for each in state.ledger.known.values():
            until = (each.ended_at or 0) + dwell
            stream = state.streams.get(each.stream)
            copies = each.cause == Cause.BALANCE and each.kind is not MoveKind.LEADER
            if not copies or until <= state.now or stream is None:
                continue
            node = index.get(str(each.add if each.state is MoveState.COMPLETED else each.remove))
            if node is not None and each.shard < len(stream.shards):
                replica = stream.shards[each.shard], node
                found[replica] = max(until, found.get(replica, 0))
        return found
