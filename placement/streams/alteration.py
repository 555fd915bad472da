"""Plans another spec for a stream that has replicas, and revises decisions after moves.

The replicas stay. New shards are placed at once, behind the existing ones (KIP-879). Repair carries
out the rest of the new spec, one move of a shard at a time: it adds missing replicas, removes
surplus ones and moves those that the new policy does not admit. A request that could not be placed
as a new stream is refused, and leaves the stream as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from placement.allocator import View
from placement.assignments import EMPTY, SlotLayout
from placement.diagnosis import live_slots
from placement.model import (
    Cause,
    Code,
    Decision,
    MoveKind,
    Outcome,
    Reason,
    StreamAltered,
    StreamSpec,
)
from placement.moves import OpenMove
from placement.policy import Policy
from placement.state import ClusterState, Stream
from placement.strategies import STRATEGIES
from placement.streams.adoption import place_missing, rule_warnings
from placement.streams.decision import (
    Answer,
    compile_request,
    outcome_of,
    place_in,
    spec_of,
    why_awaited,
)


def count_whole_shards(state: ClusterState, stream: Stream, decision: Decision) -> Decision:
    """Return the decision with the replicas that are complete now; copies under way are missing.

    Shards that have not been observed yet are neither whole nor do they lack any.
    """
    known = [shard for shard in stream.shards if shard not in state.awaited]
    counts = (state.table.padded_rows(np.asarray(known, np.int64)) != EMPTY).sum(axis=1)
    for row, shard in enumerate(known):
        if shard in state.ledger.by_shard:
            counts[row] = sum(node != EMPTY for node in state.current_replicas(shard))
    lacks = np.maximum(stream.copies - counts, 0)
    return replace(
        decision, replicas_missing=int(lacks.sum()), shards_placed=int((lacks == 0).sum())
    )


def reassess(
    state: ClusterState, stream: Stream, decision: Decision, lacking: tuple[Reason, ...] = ()
) -> Decision:
    """Return the decision with the outcome of the stream as it stands in the table.

    `lacking`: why some replicas find no node, if that is known. Outcome is `partial` while replicas
    are missing or have not been observed, `degraded` where rules are broken, else `placed`.
    """
    decision = count_whole_shards(state, stream, decision)
    awaited = awaited_reasons(state, stream)
    if awaited:
        # Its rules are judged when all of it is known.
        why = (*awaited, *lacking)
        return replace(decision, outcome=Outcome.PARTIAL, reasons=why, warnings=())
    warnings = current_rule_warnings(state, stream)
    if decision.replicas_missing:
        missing = decision.replicas_missing
        message = f"{missing} {'replica is' if missing == 1 else 'replicas are'} to be added"
        why = lacking or (Reason(Code.REPLICA_MISSING, message),)
        return replace(decision, outcome=Outcome.PARTIAL, reasons=why, warnings=warnings)
    outcome = Outcome.DEGRADED if warnings else Outcome.PLACED
    return replace(decision, outcome=outcome, reasons=(), warnings=warnings)


def awaited_reasons(state: ClusterState, stream: Stream) -> tuple[Reason, ...]:
    """Say how many shards of a stream have not been observed yet; nothing where all have."""
    awaited = sum(shard in state.awaited for shard in stream.shards) if state.awaited else 0
    return (why_awaited(stream.spec, awaited),) if awaited else ()


def is_resolved(state: ClusterState, stream: Stream) -> bool:
    """Return whether a stream that was degraded for its rules alone keeps them again.

    A warning that names no rule tells of a limit that the strategy kept to when it placed (racks of
    `hdfs`). No violation would ever show it, so the stream stays degraded.
    """
    decision, shards = stream.decision, stream.shards
    if decision.outcome is not Outcome.DEGRADED:
        return False
    rules = {str(rule) for rule in state.streams.rules(stream)}
    if not all(warning.rule in rules for warning in decision.warnings):
        return False
    return not any(s in state.publisher.violations or s in state.ledger.by_shard for s in shards)


def current_rule_warnings(state: ClusterState, stream: Stream) -> tuple[Reason, ...]:
    """Make one warning for every rule that the stream's live replicas break now."""
    assert stream.policy is not None
    view = state.view()
    shards = []
    for shard in stream.shards:
        nodes, copies = state.table.nodes(shard), stream.copies
        # Slots that are asked for no more say nothing.
        shards.append([*nodes[:copies], *(n for n in nodes[copies:] if n != EMPTY)])
    return rule_warnings(shards, stream.spec, stream.policy, view, "the replicas")


_BY_RULE = (Cause.REQUIRED_RULE, Cause.PREFERRED_RULE, Cause.BALANCE)


@dataclass(frozen=True, slots=True)
class Alteration:
    """Holds the result of an alteration.

    `added`: node indexes of the new shards. `lacking`: why some of their replicas find no node.
    """

    spec: StreamSpec
    policy: Policy
    added: Sequence[Sequence[int]] = ()
    lacking: tuple[Reason, ...] = ()


def plan_alteration(
    state: ClusterState, stream: Stream, event: StreamAltered
) -> Alteration | tuple[Reason, ...]:
    """Plan an event for a stream that has replicas, or return the reasons of its refusal."""
    have = stream.spec.shards
    if event.shards < have:
        message = f"the stream has {have} shards, and {event.shards} are fewer: none can be removed"
        return (Reason(Code.SHARDS_OUT_OF_RANGE, message, have, event.shards),)
    policy, spec = compile_request(state, event), spec_of(state, event)
    if isinstance(policy, Reason):
        return (policy,)
    wrong = STRATEGIES[policy.strategy].find_fault(spec, policy, state.topology)
    if wrong:
        return (wrong,)
    same = policy == stream.policy
    if same and spec.shards == have and policy.copies(spec.replication_factor) <= stream.copies:
        return Alteration(spec, policy)
    given = _requested_nodes(state, event, have)
    if isinstance(given, Reason):
        return (given,)
    view = state.view()
    view.bear(state.loads.of_new_shard(spec))
    answer = _try_extending(state, stream, spec, policy, given, view)
    if answer.outcome is Outcome.REJECTED:
        return answer.reasons
    if not same and not _may_keep_replicas(state, stream, policy, answer):
        afresh = place_in(_view_without(state, stream), spec, policy)
        if afresh.outcome is Outcome.REJECTED:
            return afresh.reasons
    return Alteration(spec, policy, answer.shards[have:], answer.reasons)


def _requested_nodes(
    state: ClusterState, event: StreamAltered, have: int
) -> list[list[int]] | Reason:
    """Resolve the nodes that the request names for new shards, or return why it cannot be."""
    topology, given = state.topology, []
    for shard, nodes in enumerate(event.replicas or ()):
        if shard < have:
            continue
        unknown = [node_id for node_id in nodes if node_id not in topology.index]
        if unknown:
            message = f"shard {shard} lists node '{unknown[0]}', which is not registered"
            return Reason(Code.NODE_UNKNOWN, message)
        if shard >= event.shards or len(set(nodes)) < len(nodes):
            message = f"replicas: shard {shard} does not exist or lists a node twice"
            return Reason(Code.POLICY_MALFORMED, message)
        given.append([topology.index[node_id] for node_id in nodes])
    return given


def _try_extending(
    state: ClusterState,
    stream: Stream,
    spec: StreamSpec,
    policy: Policy,
    given: Sequence[Sequence[int]],
    view: View,
) -> Answer:
    """Place all that the new spec asks for beside the existing replicas, as a trial.

    Only the new shards are taken from the answer; repair makes the rest.
    """
    copies = policy.copies(spec.replication_factor)
    new = [*given, *[()] * (spec.shards - stream.spec.shards - len(given))]
    for nodes in given:
        for node in nodes:
            view.add(node, leader=node == nodes[0])
    rows = [[*nodes, *[EMPTY] * (copies - len(nodes))] for nodes in new]
    kept = [slots_for_spec(state, shard, stream, policy, spec) for shard in stream.shards]
    shards = [[*nodes, *[EMPTY] * (copies - len(nodes))] for nodes in kept]
    placed = place_missing(spec, policy, [*shards, *rows], view, "the replicas")
    return outcome_of(placed, policy, state.topology, True)


def slots_for_spec(
    state: ClusterState, shard: int, stream: Stream, policy: Policy, spec: StreamSpec
) -> list[int]:
    """Lay out a shard's planned nodes in the slots that another spec gives them."""
    wanted = SlotLayout(policy.copies(spec.replication_factor), state.streams.role_copies(policy))
    return wanted.lay_out(*state.streams.slot_layout(stream).split(state.table.nodes(shard)))


def _may_keep_replicas(state: ClusterState, stream: Stream, policy: Policy, answer: Answer) -> bool:
    """Return whether the existing replicas may stay as they are."""
    passes, topology = policy.nodes.passes, state.topology
    nodes = (node for shard in stream.shards for node in state.table.replicas(shard))
    admitted = policy.nodes.everything or all(passes(topology, node) for node in {*nodes})
    return admitted and answer.outcome is Outcome.PLACED


def _view_without(state: ClusterState, stream: Stream) -> View:
    """Make a view in which the stream has no replicas."""
    view = state.view()
    rows = state.table.rows(np.asarray(stream.shards, np.int64))
    view.load -= np.bincount(rows[rows != EMPTY], minlength=state.topology.size)
    leaders = rows[:, 0]
    view.leaders -= np.bincount(leaders[leaders != EMPTY], minlength=state.topology.size)
    if view.loads is not None and state.table.loads is not None:
        shards = np.asarray(stream.shards, np.int64)
        view.loads.remove_all(state.table.loads.of_shards(shards), rows)
        view.bear(state.loads.of_new_shard(stream.spec))
    return view


def is_obsolete(state: ClusterState, opened: OpenMove, stream: Stream, same: bool) -> bool:
    """Return whether the spec in force no longer asks for an open move.

    `same`: the policy is unchanged. A move is obsolete where
    - it would make a surplus;
    - a rule of an earlier policy was its cause;
    - only an earlier policy admits its target.
    """
    if opened.move.kind is MoveKind.REMOVE:
        return False
    if opened.is_hand_over:
        return not same
    assert stream.policy is not None
    topology = state.topology
    fenced = not (topology.eligible[opened.added] or same)
    too_many = len(live_slots(state.table.nodes(opened.shard), topology)) > stream.copies
    by_rule = not same and opened.move.cause in _BY_RULE
    admitted = stream.policy.nodes.passes(topology, opened.added)
    return too_many or by_rule or fenced or not admitted
