"""Issues the moves of many shards that lack a replica and need nothing else, one stage for all.

After the death of a node the limits let hundreds of such moves begin at once. What `MoveIssuer`
does for one shard after the other is done here in three stages: what shards that have lost the same
ask for; where the replica of each goes, which depends on the moves before it; and the writing of
all moves. Whatever takes more than the choice among classes of equal nodes is left to `MoveIssuer`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placement.allocator import ReplicaRequest, View, choose_by_class
from placement.assignments import EMPTY
from placement.diagnosis import live_slots
from placement.model import Cause, Reason
from placement.moves import OpenMove
from placement.repair.actions import ActionFinder, NoMoveReasons, RepairAction
from placement.repair.issuer import BatchMoves, MoveIssuer, make_move
from placement.repair.needs import RepairScope, ShardNeeds
from placement.repair.shard_case import ShardCase
from placement.repair.targets import ask_alike, ask_classes
from placement.repair.throttle import nearest_source
from placement.state import ClusterState

# Stands for a live node in what tells the needs of shards of one policy apart.
_ALIVE = EMPTY - 1


class _Vacancy(NamedTuple):
    """What shards of one policy lack that have lost the same: where the others live does not count.

    - `action`: fills their first empty slot.
    - `live`: slots of live replicas.
    - `case`, `request`: those of one of the shards; `request` is None where `MoveIssuer` has to
      find out who may take the replica.
    """

    action: RepairAction
    live: list[int]
    case: ShardCase
    request: ReplicaRequest | None


class _Filled(NamedTuple):
    """A shard whose move is counted, with what it lacked, its target, and the copy's source."""

    needs: ShardNeeds
    action: RepairAction
    target: int
    source: int


class BulkIssuer:
    """Issues moves during one pass, for shards that triage has found to be under-replicated."""

    def __init__(
        self, state: ClusterState, scope: RepairScope, batch: BatchMoves, issuer: MoveIssuer
    ) -> None:
        self._state, self._scope, self._batch, self._issuer = state, scope, batch, issuer
        self._actions = ActionFinder(scope)
        self._vacancies: dict[tuple[int, ...], _Vacancy] = {}
        self._gone = frozenset([EMPTY, *np.flatnonzero(state.topology.dead).tolist()])

    def issue(self, shards: Sequence[int], view: View) -> list[tuple[int, NoMoveReasons | None]]:
        """Issue a move for each of the shards, in their order, until the limits have no more room.

        Returns those that had their turn: None with a move, else why there is none.
        """
        done: list[tuple[int, NoMoveReasons | None]] = []
        filled: list[_Filled] = []
        throttle = self._issuer.throttle
        room = throttle.room(self._batch.count)
        for needs in self._scope.needs_of_all(shards):
            if not room or throttle.all_receive_enough(view):
                break
            reasons: NoMoveReasons | None = None
            found = self._fill(needs, view)
            if isinstance(found, _Filled):
                filled.append(found)
            elif found is not None:
                reasons = {Cause.UNDER_REPLICATED: found}
            else:
                self._write(filled)
                filled = []
                reasons = self._issuer.issue(needs.shard, view)
            room -= reasons is None
            done.append((needs.shard, reasons))
        self._write(filled)
        return done

    def _vacancy_of(self, needs: ShardNeeds) -> _Vacancy:
        """Find what a shard lacks, once for all that lack the same."""
        stream, gone = needs.stream, self._gone
        key = (
            id(stream.policy),
            stream.spec.replication_factor,
            *[node if node in gone else _ALIVE for node in needs.nodes],
        )
        found = self._vacancies.get(key)
        if found is None:
            action, case = self._actions.fill_first(needs), needs.case
            # A target that one shard avoids for a while is its own affair.
            case = case._replace(backed_off_targets=frozenset())
            request = ask_classes(case, action.slot, self._state.topology)
            live = live_slots(needs.nodes, self._state.topology)
            found = self._vacancies[key] = _Vacancy(action, live, case, request)
        return found

    def _fill(self, needs: ShardNeeds, view: View) -> _Filled | Reason | None:
        """Choose target and source, and count the move; a Reason if a limit forbids it now.

        None if nodes are not told apart by class, or none of them can take the replica.
        """
        state, throttle, shard, nodes = self._state, self._issuer.throttle, needs.shard, needs.nodes
        action, live, case, request = self._vacancy_of(needs)
        apart = shard in self._batch.superseded or not state.configuration.acked
        if request is None or apart or state.backed_off_targets(shard):
            return None
        number = state.table.number_of(shard)
        request = ask_alike(request, needs.stream.spec, number, nodes)
        target = choose_by_class(case.rules, case.policy, request, view)
        if target is None:
            return None
        removed, size = nodes[action.slot], state.bytes_of(shard) or 0
        source = nearest_source(state, shard, [nodes[slot] for slot in live], target)
        limit = throttle.limit_exceeded(removed, target, source, size)
        if limit is not None:
            return limit
        if removed != EMPTY:
            view.remove(removed)
        view.add(target)
        state.ledger.count(removed, target, source, 1)
        throttle.count(source, target, 1, size)
        if throttle.receives_enough(target, size):
            view.set_busy(target, True)
        return _Filled(needs, action, target, source)

    def _write(self, filled: Sequence[_Filled]) -> None:
        """Record the moves, which are counted already, in plan, ledger and records."""
        state = self._state
        for needs, action, target, source in filled:
            move = make_move(state, needs, action, target, source, None)
            removed = needs.nodes[action.slot]
            state.table.set(needs.shard, action.slot, target)
            state.moves.open_counted(OpenMove(move, needs.shard, removed, target, source))
            state.moves.publish(move)
