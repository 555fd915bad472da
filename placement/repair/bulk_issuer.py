"""Issues the moves of many shards that lack a replica and need nothing else, one stage for all.

After the death of a node the limits let hundreds of such moves begin at once. What `MoveIssuer`
does for one shard after the other is done here in three stages: what each shard asks for; where its
replica goes, which depends on the moves before it; and the writing of all moves. Whatever takes
more than the choice among classes of equal nodes is left to `MoveIssuer`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from placement.allocator import ReplicaRequest, View, choose_by_class
from placement.assignments import EMPTY
from placement.model import Cause, Reason
from placement.moves import OpenMove
from placement.repair.actions import ActionFinder, NoMoveReasons, RepairAction
from placement.repair.issuer import BatchMoves, MoveIssuer, make_move
from placement.repair.needs import RepairScope, ShardNeeds
from placement.repair.targets import ask_classes
from placement.repair.throttle import copy_source
from placement.state import ClusterState


class _Vacancy(NamedTuple):
    """What a shard lacks: the action that fills its first empty slot, and who may take it.

    `request` is None where `MoveIssuer` has to find that out.
    """

    needs: ShardNeeds
    action: RepairAction
    removed: int
    size: int
    request: ReplicaRequest | None


# A vacancy with the target of its replica and the node that it is copied from.
_Filled = tuple[_Vacancy, int, int]


class BulkIssuer:
    """Issues moves during one pass, for shards that triage has found to be under-replicated."""

    def __init__(
        self, state: ClusterState, scope: RepairScope, batch: BatchMoves, issuer: MoveIssuer
    ) -> None:
        self._state, self._scope, self._batch, self._issuer = state, scope, batch, issuer
        self._actions = ActionFinder(scope)

    def issue(self, shards: Sequence[int], view: View) -> list[tuple[int, NoMoveReasons | None]]:
        """Issue a move for each of the shards, in their order, until the limits have no more room.

        Returns those that had their turn: None with a move, else why there is none.
        """
        done: list[tuple[int, NoMoveReasons | None]] = []
        filled: list[_Filled] = []
        room = self._issuer.throttle.room(self._batch.count)
        for vacancy in [self._vacancy_of(shard) for shard in shards]:
            if not room or self._issuer.throttle.all_receive_enough(view):
                break
            reasons: NoMoveReasons | None = None
            found = self._fill(vacancy, view)
            if isinstance(found, Reason):
                reasons = {Cause.UNDER_REPLICATED: found}
            elif found is not None:
                filled.append(found)
            else:
                self._write(filled)
                filled = []
                reasons = self._issuer.issue(vacancy.needs.shard, view)
            room -= reasons is None
            done.append((vacancy.needs.shard, reasons))
        self._write(filled)
        return done

    def _vacancy_of(self, shard: int) -> _Vacancy:
        needs = self._scope.needs(shard)
        action = self._actions.fill_first(needs)
        apart = shard in self._batch.superseded or not self._state.configuration.acked
        request = None if apart else ask_classes(needs.case, action.slot, self._state.topology)
        size = self._state.bytes_of(shard) or 0
        return _Vacancy(needs, action, needs.nodes[action.slot], size, request)

    def _fill(self, vacancy: _Vacancy, view: View) -> _Filled | Reason | None:
        """Choose target and source, and count the move; a Reason if a limit forbids it now.

        None if nodes are not told apart by class, or none of them can take the replica.
        """
        needs, _, removed, size, request = vacancy
        case, throttle = needs.case, self._issuer.throttle
        if request is None:
            return None
        target = choose_by_class(case.rules, case.policy, request, view)
        if target is None:
            return None
        source = copy_source(self._state, needs.shard, needs.nodes, target)
        limit = throttle.limit_exceeded(removed, target, source, size)
        if limit is not None:
            return limit
        if removed != EMPTY:
            view.remove(removed)
        view.add(target)
        self._state.ledger.count(removed, target, source, 1)
        throttle.count(source, target, 1, size)
        if throttle.receives_enough(target, size):
            view.set_busy(target, True)
        return vacancy, target, source

    def _write(self, filled: Sequence[_Filled]) -> None:
        """Record the moves, which are counted already, in plan, ledger and records."""
        state = self._state
        for (needs, action, removed, _, _), target, source in filled:
            move = make_move(state, needs, action, target, source, None)
            state.table.set(needs.shard, action.slot, target)
            state.moves.open_counted(OpenMove(move, needs.shard, removed, target, source))
            state.moves.publish(move)
