"""Faults put into the planner on purpose: each has to be found within `SEEDS_MAX` seeds.

A fault that goes unnoticed means that the oracle does not look, or that histories never come by.
Each is put in by replacing one function or rule, so that the planner itself stays as it is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from placement.allocator import View
from placement.assignments import EMPTY, LoadColumns
from placement.controllers import MoveController, StreamController
from placement.controllers import nodes as node_events
from placement.controllers.load_trigger import LoadTrigger
from placement.liveness.incarnations import Incarnations
from placement.liveness.statements import Statements
from placement.model import AdministrativeState, Liveness, Lives, Reason
from placement.moves import Ledger
from placement.repair import (
    RepairPlanner,
    RepairScope,
    issuer,
    leadership,
    queue,
    targets,
    throttle,
)
from placement.repair.actions import ActionFinder
from placement.repair.issuer import MoveIssuer
from placement.repair.needs import ShardNeeds
from placement.repair.shard_case import RuleScore
from placement.rules import AtMost, Even, ExclusiveNodes, NodeLoads
from placement.state import ClusterState, LoadLog, MoveLog
from placement.topology import Topology
from tests.simulation.history import Failure, History
from tests.stories.records import Records

# What the issue asks for.
SEEDS_MAX = 100

Patch = pytest.MonkeyPatch
Mutation = Callable[[Patch], None]
MUTATIONS: dict[str, Mutation] = {}


def mutation(put_in: Mutation) -> Mutation:
    """Make a fault known by its name."""
    MUTATIONS[put_in.__name__] = put_in
    return put_in


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """The planner with a fault, or as it is."""
    with pytest.MonkeyPatch.context() as patch:
        if name is not None:
            MUTATIONS[name](patch)
        yield


def seeds_to_catch(name: str, first: int = 0, most: int = SEEDS_MAX) -> tuple[int, str] | None:
    """Count the seeds until a fault is found, and name what found it; None if nothing did."""
    with mutated(name):
        for count in range(1, most + 1):
            try:
                History(first + count - 1).play()
            except Failure as failure:
                return count, f"{type(failure.cause).__name__}: {failure.cause}"
    return None


def nothing(*_: Any, **__: Any) -> None:
    """In place of what should be done."""


def no_penalty(_rule: Any, standing: Any) -> Any:
    return np.zeros(standing.topology.size, np.int64)


# Rules and targets


@mutation
def drop_at_most(patch: Patch) -> None:
    """Scoring does not know `at_most`."""
    patch.setattr(AtMost, "penalty", no_penalty)


@mutation
def drop_even(patch: Patch) -> None:
    """Scoring does not know `even`."""
    patch.setattr(Even, "penalty", no_penalty)


@mutation
def drop_exclusive(patch: Patch) -> None:
    """Scoring does not know `exclusive nodes`."""
    patch.setattr(ExclusiveNodes, "penalty", no_penalty)


@mutation
def targets_of_any_condition(patch: Patch) -> None:
    """Repair takes nodes that may not receive replicas."""
    patch.setattr(targets, "candidates", lambda _policy, view: view.has_room())


@mutation
def suspects_are_targets(patch: Patch) -> None:
    """A suspect node is as good as any."""
    upsert = Topology.upsert

    def wrong(self: Topology, node_id: str, attributes: Any, liveness: Liveness, *more: Any) -> int:
        node = upsert(self, node_id, attributes, liveness, *more)
        if liveness is Liveness.SUSPECT:
            self._eligible[node] = True
        return node

    patch.setattr(Topology, "upsert", wrong)


@mutation
def suspects_are_dead(patch: Patch) -> None:
    """Replicas on suspect nodes are replaced."""
    gone = (Liveness.SUSPECT, Liveness.DEAD, Liveness.UNREGISTERED)
    patch.setattr(Topology, "is_dead", lambda self, node: self.liveness[node] in gone)


@mutation
def capacity_is_not_asked(patch: Patch) -> None:
    """Every node has room."""
    patch.setattr(View, "has_room", lambda self, *_: np.ones(self.topology.size, bool))


@mutation
def loads_are_not_asked(patch: Patch) -> None:
    """Any load fits into a node."""
    patch.setattr(NodeLoads, "fits", lambda self, *_: np.ones(self.borne.shape[1], bool))


@mutation
def leaders_bear_nothing_more(patch: Patch) -> None:
    """Who leads a shard does not matter to led resources."""
    patch.setattr(LoadColumns, "count_leaders", nothing)


@mutation
def anybody_reports_loads(patch: Patch) -> None:
    """The last word on a shard's load counts, whoever says it."""
    patch.setattr(LoadLog, "_takes", lambda *_: True)


@mutation
def full_nodes_are_not_relieved(patch: Patch) -> None:
    """A node that holds more than fits keeps it."""
    patch.setattr(LoadTrigger, "find_need", lambda *_: None)


@mutation
def reported_loads_are_forgotten(patch: Patch) -> None:
    """A rebuilt reconciler does not know what shards weigh."""
    patch.setattr(LoadLog, "load", nothing)


@mutation
def draining_domains_count(patch: Patch) -> None:
    """Domains of draining nodes stay in the denominator."""
    upsert = Topology.upsert

    def wrong(self: Topology, node_id: str, attributes: Any, liveness: Any, *more: Any) -> int:
        node = upsert(self, node_id, attributes, liveness, *more)
        if AdministrativeState.DRAINING in more and liveness is Liveness.UP:
            self._counts_for_rules[node] = True
        return node

    patch.setattr(Topology, "upsert", wrong)


@mutation
def any_move_is_an_improvement(patch: Patch) -> None:
    """Moves for a rule need not make anything better."""
    patch.setattr(RuleScore, "is_better_than", lambda *_: True)


@mutation
def rules_are_mended_the_long_way(patch: Patch) -> None:
    """Of the moves that help a rule the one that helps least is made."""
    patch.setattr(targets, "min", max, raising=False)


@mutation
def second_best_targets_are_taken(patch: Patch) -> None:
    """A replica is given back where there is a better place, and then moved once more."""
    find = targets.find_target

    def wrong(case: Any, slot: int, view: Any) -> Any:
        best = find(case, slot, view)
        if isinstance(best, Reason):
            return best
        second = find(
            case._replace(backed_off_targets=case.backed_off_targets | {best}), slot, view
        )
        return best if isinstance(second, Reason) else second

    patch.setattr(issuer, "find_target", wrong)


@mutation
def copies_from_the_dead(patch: Patch) -> None:
    """The source of a copy need not live."""
    all_slots = [EMPTY]

    def wrong(nodes: Any, _topology: Any) -> list[int]:
        return [slot for slot, node in enumerate(nodes) if node not in all_slots]

    patch.setattr(throttle, "live_slots", wrong)


# The life of a move


@mutation
def incoming_is_not_counted(patch: Patch) -> None:
    """Moves under way towards a node do not count."""
    _miscount(patch, "incoming", "added")


@mutation
def outgoing_is_not_counted(patch: Patch) -> None:
    """Moves under way that copy from a node do not count."""
    _miscount(patch, "outgoing", "source")


def _miscount(patch: Patch, counter: str, end: str) -> None:
    opens, closes = Ledger.open, Ledger.close

    def opened(self: Ledger, move: Any) -> None:
        opens(self, move)
        getattr(self, counter)[getattr(move, end)] -= 1

    def closed(self: Ledger, shard: int, *more: Any) -> Any:
        move = closes(self, shard, *more)
        getattr(self, counter)[getattr(move, end)] += 1
        return move

    patch.setattr(Ledger, "open", opened)
    patch.setattr(Ledger, "close", closed)


@mutation
def lost_targets_are_kept(patch: Patch) -> None:
    """A move whose target may not receive replicas any more goes on."""
    patch.setattr(MoveController, "review", nothing)


@mutation
def leases_never_end(patch: Patch) -> None:
    """A move past its deadline stays open."""
    patch.setattr(Ledger, "expired_moves", lambda *_: [])


@mutation
def failed_moves_stay_in_the_plan(patch: Patch) -> None:
    """The planned arrangement does not follow a move that ended without being completed."""
    patch.setattr(MoveLog, "_follow_end", nothing)


@mutation
def epochs_are_not_raised(patch: Patch) -> None:
    """An assignment that changes keeps its epoch."""
    finish = ClusterState.finish

    def wrong(self: ClusterState) -> Any:
        epochs = self.publisher._columns.epochs
        for shard in self.publisher._changed:
            epochs[shard] -= epochs[shard] > 1
        return finish(self)

    patch.setattr(ClusterState, "finish", wrong)


@mutation
def late_words_count(patch: Patch) -> None:
    """An acknowledgement of an ended move is taken for one of the shard's open move."""

    def wrong(self: MoveController, event: Any) -> Any:
        stream = self._state.streams.get(event.stream)
        if stream is None or event.shard >= len(stream.shards):
            return None
        opened = self._state.ledger.by_shard.get(stream.shards[event.shard])
        return opened.move if opened else None

    patch.setattr(MoveController, "_find_move", wrong)


@mutation
def reminders_are_forgotten(patch: Patch) -> None:
    """Executors are told once that a move was called off."""
    patch.setattr(MoveController, "remind", nothing)


@mutation
def confirmations_are_not_heard(patch: Patch) -> None:
    """Executors are reminded of what they have stopped."""
    patch.setattr(MoveController, "_confirmed_moves", lambda *_: [])


# What is looked at, and when


@mutation
def holds_are_forgotten(patch: Patch) -> None:
    """Replace the replicas of nodes lost all at once like any others."""
    patch.setattr(Topology, "set_held", nothing)


@mutation
def repairs_while_behind(patch: Patch) -> None:
    """Repair does not wait until the source has caught up."""
    run = RepairPlanner.run
    patch.setattr(RepairPlanner, "run", lambda self, _caught_up: run(self, True))


@mutation
def copies_under_way_lead(patch: Patch) -> None:
    """A copy that is not complete may be promoted."""
    next_leader = leadership.next_leader

    def wrong(state: ClusterState, scope: RepairScope, shard: int) -> int | None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(
                ClusterState, "current_replicas", lambda state, shard: state.table.nodes(shard)
            )
            return next_leader(state, scope, shard)

    patch.setattr(issuer, "next_leader", wrong)
    patch.setattr(queue, "next_leader", wrong)


@mutation
def needed_copies_are_given_up(patch: Patch) -> None:
    """The removal of a copy that is needed after all is not called off."""
    patch.setattr(MoveIssuer, "cancel_unneeded_removal", nothing)


@mutation
def nobody_is_promoted(patch: Patch) -> None:
    """Dead leaders stay in front."""
    patch.setattr(MoveIssuer, "promote", nothing)


@mutation
def returning_domains_are_not_seen(patch: Patch) -> None:
    """Leave an emergency placement as it is when a domain comes back."""
    patch.setattr(RepairPlanner, "enqueue_rule_breakers", nothing)


@mutation
def relocated_nodes_are_not_looked_at(patch: Patch) -> None:
    """Shards on a node that changed are not looked at."""
    changed = node_events.NodeController.apply_change

    def wrong(self: Any, event: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(RepairPlanner, "enqueue", nothing)
            changed(self, event)

    patch.setattr(node_events.NodeController, "apply_change", wrong)


@mutation
def healthy_copies_are_surplus(patch: Patch) -> None:
    """Of too many replicas the last goes, dead or not."""

    def wrong(_: ActionFinder, needs: ShardNeeds, _view: Any) -> int:
        nodes = needs.nodes
        return max(slot for slot, node in enumerate(nodes) if node != EMPTY)

    patch.setattr(ActionFinder, "_surplus_slot", wrong)


# Memory


@mutation
def waiting_streams_are_forgotten(patch: Patch) -> None:
    """A rebuilt reconciler does not know which streams wait."""
    patch.setattr(StreamController, "resume", nothing)


@mutation
def stuck_shards_are_forgotten(patch: Patch) -> None:
    """A rebuilt reconciler does not know which shards could not be helped."""
    patch.setattr(RepairPlanner, "resume", nothing)


@mutation
def nodes_in_order_of_arrival(patch: Patch) -> None:
    """Ties are broken by the order in which nodes came."""
    patch.setattr(Topology, "order", lambda self: np.arange(self.size))


@mutation
def refuse_restarts(patch: Patch) -> None:
    """A later life of a node's process waits for ever."""
    patch.setattr(Incarnations, "apply_tick", lambda *_: (set(), []))
    patch.setattr(Statements, "_takes_over_at_once", lambda *_: False)


@mutation
def take_any_life(patch: Patch) -> None:
    """Whoever registered last holds the name, beside a life that goes on speaking."""
    patch.setattr(Statements, "_takes_over_at_once", lambda *_: True)


@mutation
def forget_lives(patch: Patch) -> None:
    """A rebuilt reconciler does not know which lives of nodes wait or are refused."""
    restored = Records.rebuild

    def rebuild(records: Records, *known: Any) -> Any:
        nodes = records.nodes
        records.nodes = {name: replace(view, lives=Lives()) for name, view in nodes.items()}
        try:
            return restored(records, *known)
        finally:
            records.nodes = nodes

    patch.setattr(Records, "rebuild", rebuild)
