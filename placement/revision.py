"""Revision: what a decision says of a stream whose replicas have changed since it was made."""

from dataclasses import replace

from placement.adopt import unmet_by
from placement.allocator import View
from placement.assignments import EMPTY
from placement.model import Code, Decision, Outcome, Reason
from placement.state import State, Stream


def counted(state: State, stream: Stream, decision: Decision) -> Decision:
    """The decision with what is placed now and what is missing; copies under way are missing."""
    held = (sum(node != EMPTY for node in state.complete(shard)) for shard in stream.shards)
    lacks = [max(stream.copies - count, 0) for count in held]
    return replace(decision, replicas_missing=sum(lacks), shards_placed=lacks.count(0))


def judged(
    state: State, stream: Stream, decision: Decision, lacking: tuple[Reason, ...] = ()
) -> Decision:
    """The decision with its outcome, for a stream that stands as it stands in the table; `lacking`
    says why some replicas find no node, if it is known."""
    decision = counted(state, stream, decision)
    warnings = unmet_now(state, stream)
    if decision.replicas_missing:
        missing = decision.replicas_missing
        message = f"{missing} {'replica is' if missing == 1 else 'replicas are'} to be added"
        why = lacking or (Reason(Code.REPLICA_MISSING, message),)
        return replace(decision, outcome=Outcome.PARTIAL, reasons=why, warnings=warnings)
    outcome = Outcome.DEGRADED if warnings else Outcome.PLACED
    return replace(decision, outcome=outcome, reasons=(), warnings=warnings)


def is_mended(state: State, stream: Stream) -> bool:
    """Whether a stream was degraded for its rules alone, and nothing is said of it any more. What
    its strategy kept to when it placed (racks of `hdfs`) is no rule: nobody would say that it is
    broken."""
    decision, shards = stream.decision, stream.shards
    if decision.outcome is not Outcome.DEGRADED:
        return False
    rules = [f"'{rule}'" for rule in state.rules(stream)]
    told = all(
        warning.code is Code.RULE_NOT_MET and any(rule in warning.message for rule in rules)
        for warning in decision.warnings
    )
    return told and not any(s in state.violations or s in state.ledger.by_shard for s in shards)


def unmet_now(state: State, stream: Stream) -> tuple[Reason, ...]:
    """One warning for every rule that the stream's live replicas break."""
    assert stream.policy is not None
    view = View(state.topology, state.table, state.policy_of, state.spec_of)
    shards = []
    for shard in stream.shards:
        nodes, copies = state.table.nodes(shard), stream.copies
        # Slots that are asked for no more say nothing.
        shards.append([*nodes[:copies], *(n for n in nodes[copies:] if n != EMPTY)])
    return unmet_by(shards, stream.spec, stream.policy, view, "the replicas")
