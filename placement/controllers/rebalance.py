"""Rebalancing in the stream: when it is wanted, what is left of it, and what gives way to it.

That it is wanted and the moves that are left are remembered (`rebalance` in `state.v1`), so that a
restart goes on. A plan is made once, when nothing that can be repaired is waiting, and issued as
limits allow; it is dropped and made anew when the nodes that may receive replicas change. Moves
that belong together (a colocated stream's, a swap) go together or, where limits never allow so
many at once, not at all: half of them would be for repair to take back.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypedDict, cast

import numpy as np

from placement.allocator import View
from placement.model import Cause, Code, MoveKind, MoveState, Reason, Rebalance, natural_key
from placement.moves import Ledger
from placement.rebalance import RebalanceMove, RebalancePlan, plan_rebalance
from placement.repair import Copy, RepairAction, RepairPlanner, Throttle
from placement.state import ClusterState

KIND = "rebalance"
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


@dataclass(frozen=True, slots=True)
class Proposal:
    """Holds a plan, and the streams whose moves it leaves out.

    Those moves belong together and are more than limits ever allow at once. `dwells`: replicas that
    were moved a short while ago stay for now.
    """

    plan: RebalancePlan
    too_large: tuple[str, ...] = ()
    dwells: bool = False

    @property
    def why_nothing(self) -> str:
        """Return the reason why the plan has no moves."""
        found = []
        if self.too_large:
            streams = ", ".join(self.too_large)
            found.append(f"the moves of {streams} have to go together, and limits allow fewer")
        if self.dwells:
            found.append("replicas that were moved for balance within the dwell time stay")
        return "; ".join(found) or "no move would make the loads more even"


class RebalanceController:
    """Plans a rebalance when one is wanted, and issues its moves."""

    def __init__(self, state: ClusterState, repair: RepairPlanner) -> None:
        self._state, self._repair = state, repair
        self._left: dict[str, QueuedMove] = {}
        self._eligible = np.zeros(0, bool)

    def resume(self) -> None:
        """Continue the plan that a restored state remembers."""
        found = self._state.memory.of_kind(KIND)
        queued = {name: body for name, body in found.items() if name != WANTED}
        self._left = cast("dict[str, QueuedMove]", queued)
        self._eligible = self._state.topology.eligible.copy()

    def want(self, why: str, after: int = 0) -> None:
        """Request a rebalance of the fleet, not before the given time."""
        self._state.memory.remember(KIND, WANTED, {"why": why, "after": after})

    def plan(self) -> Proposal:
        """Plan the rebalance as if it were made now."""
        dwelling = self._dwelling_shards()
        found = self._make_proposal(frozenset())
        again = (m for m in found.plan.moves if m.kind is not MoveKind.LEADER)
        if not any(move.shard in dwelling for move in again):
            return found
        return replace(self._make_proposal(dwelling), dwells=True)

    def _make_proposal(self, fixed: Collection[int]) -> Proposal:
        """Plan a rebalance that leaves the shards `fixed` alone, and those of steps above the
        limits."""
        state = self._state
        view = state.view()
        # What something is wrong with is repair's, even where that cannot help.
        moving = {*state.ledger.by_shard, *state.publisher.violations, *fixed}
        stays: set[int] = set()
        idle = Throttle(state, Ledger())
        while True:
            found = plan_rebalance(
                view, moving=moving, max_moves=PLAN_MOVES_MAX, one_per_shard=True
            )
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
            self._begin(str(wanted.body["why"]))
        if self._left:
            self._issue()

    @property
    def _retry_at(self) -> int:
        """Return the time, in ms, from which to try again."""
        return self._state.now + self._state.configuration.dwell_ms

    def _notice(self) -> None:
        """Drop the plan where other nodes may receive replicas, and want one where the mode says
        so."""
        state = self._state
        before, now = self._eligible, state.topology.eligible.copy()
        known = np.zeros(len(now), bool)
        known[: len(before)] = before
        self._eligible = now
        mode = state.configuration.rebalance
        changed = bool((known != now).any())
        fresh = now & ~known
        if changed and self._left:
            self._drop(self._left)
            self.want("the nodes have changed")
        load = state.table.load(len(now)) if len(now) else np.zeros(0, np.int64)
        if mode is not Rebalance.OFF and fresh.any() and not load[fresh].all() and load.any():
            self.want("a node has joined")
        elif mode is Rebalance.CONTINUOUS and (changed or state.publisher.ready.decisions):
            self.want("the load has changed")

    def _begin(self, why: str) -> None:
        """Plan, and remember the moves; a rebalance stays wanted until nothing is found."""
        if self._state.ledger.by_shard or self._repair.has_dirty:
            return  # what is under way may be what keeps something from being found
        found = self.plan()
        if not found.plan.moves:
            self._state.memory.remember(KIND, WANTED, None)
            if found.dwells:
                self.want(why, self._retry_at)
        for number, move in enumerate(found.plan.moves):
            name, body = f"{number:08d}", self._queued_move(move)
            self._left[name] = body
            self._state.memory.remember(KIND, name, body)

    def _queued_move(self, move: RebalanceMove) -> QueuedMove:
        """Make the body that is remembered of a move."""
        (stream, number), ids = self._state.streams.key(move.shard), self._state.topology.ids
        return {
            "stream": stream,
            "shard": number,
            "kind": str(move.kind),
            "slot": move.slot,
            "remove": ids[move.remove],
            "add": ids[move.add],
            "step": move.step,
            "message": move.reason.message,
        }

    def _issue(self) -> None:
        """Issue what limits allow, in the order of the plan.

        Moves that do not fit any more are left out.
        """
        state, done = self._state, []
        view = state.view()
        most = state.configuration.limits.max_per_batch
        room, waits, idle = most, False, Throttle(state, Ledger())
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
        if shard in state.ledger.by_shard or shard in state.publisher.violations:
            return False
        if body["kind"] == MoveKind.LEADER:
            return nodes[0] == remove and nodes[body["slot"]] == add
        backed_off_targets = add in state.backed_off_targets(shard)
        return nodes[body["slot"]] == remove and add not in nodes and not backed_off_targets

    def _overfills(self, moves: Sequence[QueuedMove], view: View) -> bool:
        """Return whether a node would exceed its capacity when the turn of one of these moves
        comes."""
        index, capacity, load = self._state.topology.index, view.topology.capacity, view.load.copy()
        for body in moves:
            if body["kind"] != MoveKind.LEADER:
                add = index[body["add"]]
                load[add] += 1
                load[index[body["remove"]]] -= 1
                if 0 <= capacity[add] < load[add]:
                    return True
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
            if body["kind"] == MoveKind.LEADER:
                state.change_leader(shard, body["slot"])
                continue
            reason = Reason(Code.LOAD_UNEVEN, body["message"])
            ends = index[body["add"]], index[body["remove"]]
            action = RepairAction(Cause.BALANCE, MoveKind.REPLACE, body["slot"], reason, *ends)
            copies.append((shard, action))
        if self._repair.issue(copies, view):
            self.want("a limit was reached", self._retry_at)

    def _drop(self, names: Iterable[str]) -> None:
        for name in [*names]:
            del self._left[name]
            self._state.memory.remember(KIND, name, None)

    def _dwelling_shards(self) -> set[int]:
        """Find the shards of which a replica was moved for balance less than `dwell_ms` ago."""
        state = self._state
        since = state.now - state.configuration.dwell_ms
        moves = (
            each
            for each in state.ledger.known.values()
            if each.cause == Cause.BALANCE and (each.ended_at or 0) > since
        )
        streams = ((state.streams.get(each.stream), each.shard) for each in moves)
        return {
            stream.shards[number]
            for stream, number in streams
            if stream is not None and number < len(stream.shards)
        }
