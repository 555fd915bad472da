"""`explain`: why the replicas of a cluster stand where they do, what is wrong, what happens next.

The same code explains a cluster file and the live state, which it gets in the form of a cluster
file; `PublishedStream` adds what only the topics know. It places only the streams on which the
wanted shards depend: complete ones are counted as they are, later ones are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.allocator import View
from placement.assignments import EMPTY
from placement.diagnosis import UNKNOWN, Health, StreamToDiagnose, diagnose_cluster, worst_of
from placement.explain import Absence, Advice, Explainer, Outlook, Presence, advise, find_outlooks
from placement.model import Band, Code, Decision, Move, Outcome, Reason, StreamCreated, Violation
from placement.nodes import find_hold
from placement.planning import WITHOUT_LIMITS
from placement.policy import Policy
from placement.state import ClusterState
from placement.streams import spec_of
from schemas.cluster import ClusterMove, RefusedStream
from streaming import codec
from streaming.offline.documents import Document
from streaming.offline.place import (
    UNANSWERED,
    PlaceResult,
    build_state,
    place_streams,
    streams_to_place,
)
from streaming.offline.surrounding_streams import SurroundingStreams


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """Selects the explanations: all streams or one, all shards or one, replicas or a node."""

    stream: str | None = None
    shard: int | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class PublishedStream:
    """Holds the published state of one stream. That is its last decision, and by shard the epoch,
    replicas being added and removed, the open move in JSON, and the open violations."""

    decision: Decision
    epochs: Mapping[int, int]
    adding: Mapping[int, tuple[str, ...]]
    removing: Mapping[int, tuple[str, ...]]
    moves: Mapping[int, dict[str, Any]]
    violations: Mapping[int, tuple[Violation, ...]]


@dataclass(frozen=True, slots=True)
class ShardExplanation:
    """Explains one shard. It has the shard's health, the reason for each replica, why the node has
    none, its violations, and the open or next move (`state` says which)."""

    stream: str
    shard: int
    replicas: tuple[str, ...]
    health: Health | None
    held: tuple[Presence, ...]
    absent: Absence | None
    violations: tuple[Violation, ...] = ()
    move: dict[str, Any] | None = None
    epoch: int | None = None
    adding: tuple[str, ...] = ()
    removing: tuple[str, ...] = ()
    hold: str | None = None

    @property
    def no_move_reason(self) -> str | None:
        """Say why no move is open or planned; None where one is."""
        if self.move is not None:
            return None
        if not self.violations:
            return "no rule is broken, nothing is to be moved"
        first = self.violations[0]
        return f"{first.violation_class}: {first.reason.message}"

    def body(self) -> dict[str, Any]:
        """The shard's part of the answer."""
        return {
            "shard": self.shard,
            "epoch": self.epoch,
            "health": self.health,
            "replicas": list(self.replicas),
            "adding": list(self.adding),
            "removing": list(self.removing),
            "held": [asdict(each) for each in self.held],
            "absent": None if self.absent is None else asdict(self.absent),
            "move": self.move,
            "violations": [
                {
                    "rule": each.rule,
                    "strength": each.strength,
                    "domain": each.domain,
                    "class": each.violation_class,
                    "reason": codec.reason_body(each.reason),
                }
                for each in self.violations
            ],
            "still": self.no_move_reason,
            "hold": self.hold,
        }


@dataclass(frozen=True, slots=True)
class StreamExplanation:
    """Explains one stream. It has its decision, its health where replicas are given, its shards,
    why the node holds none of a stream that is not placed, and advice."""

    decision: Decision | RefusedStream
    health: Health | None = None
    shards: tuple[ShardExplanation, ...] = ()
    unplaced: tuple[Absence, ...] = ()
    advice: tuple[Advice, ...] = ()

    @property
    def held(self) -> tuple[Presence, ...]:
        """Return the reasons for all replicas, of all shards."""
        return tuple(each for shard in self.shards for each in shard.held)

    @property
    def absent(self) -> tuple[Absence, ...]:
        """Return the reasons why the node holds none, of all shards."""
        found = (shard.absent for shard in self.shards)
        return (*self.unplaced, *(each for each in found if each is not None))


@dataclass(frozen=True, slots=True)
class ExplainResult:
    """The explanations of a document, in its order. `missing`: what was asked for and is not."""

    placed: PlaceResult
    streams: tuple[StreamExplanation, ...]
    missing: str | None = None

    @property
    def has_unanswered(self) -> bool:
        """Return whether one of the streams does not have what it asked for."""
        outcomes = (getattr(each.decision, "outcome", None) for each in self.streams)
        return any(outcome in (None, *UNANSWERED) for outcome in outcomes)

    @property
    def has_degraded(self) -> bool:
        """Return whether one of the streams has what it asked for, but breaks a preferred rule."""
        return any(
            getattr(each.decision, "outcome", None) is Outcome.DEGRADED for each in self.streams
        )

    def body(self) -> dict[str, Any]:
        """The answer of `explain`."""
        name = self.placed.cluster.name
        body: dict[str, Any] = {} if name is None else {"name": name}
        if self.missing is not None:
            return body | {"error": {"message": self.missing, "line": None, "field": None}}
        return body | {"explain": [self._stream_body(each) for each in self.streams]}

    def _stream_body(self, each: StreamExplanation) -> dict[str, Any]:
        return stream_body(each, self.placed.answer(each.decision))


def explain_streams(
    document: Document, wanted: ExplainOptions, published: PublishedStream | None = None
) -> ExplainResult:
    """Place the document's streams one by one, as far as it matters for those that are wanted, and
    explain these."""
    state = build_state(document.cluster, WITHOUT_LIMITS)
    _, created = codec.events_of_cluster(document.cluster)
    events = [event for event in created if isinstance(event, StreamCreated)]
    found: dict[str, StreamExplanation] = {}
    decisions: dict[str, Decision] = {}
    # Where `place` evens streams out together, all of them matter.
    together = published is None and len(streams_to_place(events)) > 1
    crowd = SurroundingStreams(document, state, place_streams(document) if together else None)
    for event in _relevant_streams(events, wanted):
        if wanted.stream not in (None, event.stream):
            decisions[event.stream] = crowd.take(event)
            continue
        crowd.enter_rows()
        before = View(state.topology, state.table, loads=state.view().loads)
        if published is None:
            decision = crowd.place(event)
            shards = state.streams[event.stream].shards
            rows = [state.table.nodes(shard) for shard in shards]
        else:
            decision, rows = published.decision, _listed_replicas(state, event)
        decisions[event.stream] = decision
        found[event.stream] = _explain(state, event, decision, before, wanted, rows)
    answers = tuple(
        stream if isinstance(stream, RefusedStream) else decisions.get(stream.stream)
        for stream in document.cluster.streams
    )
    known = tuple(answer for answer in answers if answer is not None)
    whole = PlaceResult(document, known, state)
    missing = _find_missing(whole, decisions, wanted)
    ahead = _Outlook(document, state, published)
    given = {event.stream: event for event in events if event.replicas and any(event.replicas)}
    streams = tuple(
        StreamExplanation(answer)
        if isinstance(answer, RefusedStream)
        else ahead.add_to(found[answer.stream], given.get(answer.stream))
        for answer in known
        if wanted.stream in (None, answer.stream)
    )
    return ExplainResult(whole, streams, missing)


def _relevant_streams(
    events: Sequence[StreamCreated], wanted: ExplainOptions
) -> Sequence[StreamCreated]:
    """Select the streams that the wanted one depends on, itself last. Where its replicas are given
    these are all others with given replicas; otherwise those placed before it."""
    at = next((n for n, event in enumerate(events) if event.stream == wanted.stream), None)
    if at is None:
        return events if wanted.stream is None else ()
    if not any(events[at].replicas or ()):
        return events[: at + 1]
    behind = [event for event in events[at + 1 :] if any(event.replicas or ())]
    return [*events[:at], *behind, events[at]]


def _listed_replicas(state: ClusterState, event: StreamCreated) -> list[list[int]]:
    """The replicas that a stream has, by slot; none are completed."""
    policy, copies = state.streams.compile(event.placement_policies, event.policy), 0
    if isinstance(policy, Policy):
        copies = policy.copies(event.replication_factor)
    rows = [[state.topology.index.get(n, EMPTY) for n in nodes] for nodes in event.replicas or ()]
    return [[*row, *[EMPTY] * (copies - len(row))] for row in rows]


def _find_missing(
    placed: PlaceResult, decisions: Mapping[str, Decision], wanted: ExplainOptions
) -> str | None:
    """Name the stream, shard or node that was asked about and is not in the file."""
    if wanted.node is not None and wanted.node not in placed.state.topology.index:
        return f"the file has no node '{wanted.node}'"
    if wanted.stream is None:
        return None
    if wanted.stream not in {stream.stream for stream in placed.cluster.streams}:
        return f"the file has no stream '{wanted.stream}'"
    decision = decisions.get(wanted.stream)
    shards = decision.spec.shards if decision else 0
    if wanted.shard is not None and decision and wanted.shard >= shards:
        return f"stream '{wanted.stream}' has {shards} shards, counted from 0"
    return None


def _explain(
    state: ClusterState,
    event: StreamCreated,
    decision: Decision,
    before: View,
    wanted: ExplainOptions,
    shards: list[list[int]],
) -> StreamExplanation:
    """Explain the decision, with the `shards` as they stand, by slot."""
    policy = state.streams.compile(event.placement_policies, event.policy)
    wrong = (r for r in decision.reasons if r.code is not Code.DOMAIN_UNKNOWN)
    if isinstance(policy, Reason) or any(reason.band is Band.CONFIG for reason in wrong):
        return StreamExplanation(decision)
    given = [len(nodes) for nodes in event.replicas or ()] if shards else []
    amounts = _loads_of_shards(state, event, decision)
    explainer = Explainer(decision.spec, policy, shards, before, given, amounts)
    node = state.topology.index.get(wanted.node or "")
    why = decision.reasons[0] if decision.reasons else None
    found: list[ShardExplanation] = []
    unplaced: list[Absence] = []
    for shard in _shards_to_explain(decision.spec.shards, shards, wanted):
        absent = None if node is None else explainer.explain_absence(shard, node, why)
        if not shards:
            unplaced += [] if absent is None else [absent]
            continue
        held = explainer.explain_replicas(shard)
        mine = tuple(each for each in held if wanted.node in (None, each.node))
        names = tuple(state.topology.ids[n] for n in shards[shard] if n != EMPTY)
        found.append(ShardExplanation(event.stream, shard, names, None, mine, absent))
    advice = _advice(state, event, decision, policy, wanted)
    return StreamExplanation(decision, None, tuple(found), tuple(unplaced), tuple(advice))


def _loads_of_shards(
    state: ClusterState, event: StreamCreated, decision: Decision
) -> NDArray[np.int64] | None:
    """The loads of the stream's shards by resource, those of a new stream as they were placed."""
    columns, stream = state.table.loads, state.streams.get(event.stream)
    if columns is None:
        return None
    if any(event.replicas or ()) and stream is not None and stream.shards:
        return columns.of_shards(np.asarray(stream.shards, np.int64))
    return state.loads.of_new_shards(decision.spec)


def _shards_to_explain(
    count: int, shards: Sequence[Sequence[int]], wanted: ExplainOptions
) -> range:
    if wanted.shard is not None:
        return range(min(wanted.shard, count), min(wanted.shard + 1, count))
    # Nothing tells the shards of a stream apart that has no replicas.
    return range(len(shards)) if shards else range(1)


class _Outlook:
    """Health, what is broken, and what comes next, of streams that stand somewhere."""

    def __init__(
        self, document: Document, state: ClusterState, published: PublishedStream | None
    ) -> None:
        self._state, self._published = state, published
        self._moves = {(move.stream, move.shard): move for move in document.cluster.moves}
        hold = find_hold(state.topology)
        self._hold = None if hold is None else hold.reason

    def add_to(
        self, explained: StreamExplanation, event: StreamCreated | None
    ) -> StreamExplanation:
        """The explanation with what is ahead; as it is for a stream that was only placed now."""
        if event is None or not explained.shards:
            return explained
        state = self._state
        policy = state.streams.compile(event.placement_policies, event.policy)
        assert isinstance(policy, Policy), "a stream that stands somewhere has one"
        rows = self._rows(event)
        moving = frozenset(number for name, number in self._moves if name == event.stream)
        diagnosed = StreamToDiagnose(spec_of(state, event), policy, rows, rows, moving)
        health = diagnose_cluster(state.topology, [diagnosed]).shards[event.stream]
        ahead: Mapping[int, Outlook] = {}
        if self._published is None:
            indexes = state.streams[event.stream].shards
            found = find_outlooks(state, [indexes[each.shard] for each in explained.shards])
            ahead = {each.shard: found[indexes[each.shard]] for each in explained.shards}
        shards = tuple(
            self._shard(each, health[each.shard], ahead.get(each.shard, Outlook()))
            for each in explained.shards
        )
        return replace(explained, health=worst_of(health), shards=shards)

    def _rows(self, event: StreamCreated) -> list[list[int]]:
        """The nodes of each shard: as they are, or, of a file, with what was completed."""
        if self._published is not None:
            index = self._state.topology.index
            return [[index.get(n, UNKNOWN) for n in nodes] for nodes in event.replicas or ()]
        table, shards = self._state.table, self._state.streams[event.stream].shards
        return [[node for node in table.nodes(shard) if node != EMPTY] for shard in shards]

    def _shard(self, each: ShardExplanation, health: Health, ahead: Outlook) -> ShardExplanation:
        topics, number = self._published, each.shard
        if topics is not None:
            return replace(
                each,
                health=health,
                violations=topics.violations.get(number, ()),
                move=topics.moves.get(number),
                epoch=topics.epochs.get(number),
                adding=topics.adding.get(number, ()),
                removing=topics.removing.get(number, ()),
            )
        opened = self._moves.get((each.stream, number))
        move = None if opened is None else _file_move_body(opened)
        if move is None and ahead.move is not None:
            move = move_body(ahead.move) | {"move_id": None, "state": "planned"}
        hold = self._hold if ahead.violations else None
        return replace(each, health=health, violations=ahead.violations, move=move, hold=hold)


def move_body(move: Move) -> dict[str, Any]:
    """Write the move of a shard."""
    return {
        "move_id": move.move_id,
        "state": move.state,
        "cause": move.cause,
        "kind": move.kind,
        "remove": move.remove,
        "add": move.add,
        "reason": codec.reason_body(move.reason),
    }


def _file_move_body(move: ClusterMove) -> dict[str, Any]:
    reason = Reason(Code.REPLACEMENT_WANTED, "the file has it among the moves in flight")
    return {
        "move_id": None,
        "state": "under way" if move.add or move.kind != "replace" else "wanted",
        "cause": None,
        "kind": move.kind,
        "remove": move.remove,
        "add": move.add,
        "reason": codec.reason_body(reason),
    }


def _advice(
    state: ClusterState,
    event: StreamCreated,
    decision: Decision,
    policy: Policy,
    wanted: ExplainOptions,
) -> list[Advice]:
    """Advise what to add. The copies of a partly placed stream are kept."""
    if decision.outcome not in UNANSWERED or wanted.node is not None:
        return []
    given = event.replicas
    if decision.outcome is Outcome.PARTIAL and event.stream in state.streams:
        return _advise_completion(state, decision, policy, given)
    return advise(state, decision.spec, policy, given)


def _advise_completion(
    state: ClusterState,
    decision: Decision,
    policy: Policy,
    given: tuple[tuple[str, ...], ...] | None,
) -> list[Advice]:
    """Advice for a partial stream: in the fleet without it, so that nothing counts twice."""
    kept: list[tuple[int, int, int]] = []
    for shard in state.streams[decision.stream].shards:
        for slot in range(state.table.factor(shard)):
            kept.append((shard, slot, state.table.nodes(shard)[slot]))
            state.table.set(shard, slot, EMPTY)
    advice = advise(state, decision.spec, policy, given)
    for shard, slot, node in kept:
        state.table.set(shard, slot, node)
    return advice


def advise_stream(placed: PlaceResult, decision: Decision) -> list[Advice]:
    """Advise what to add so that a stream that was refused, waits or lacks replicas is placed."""
    state, spec = placed.state, decision.spec
    policy = state.streams.compile(spec.placement_policies, spec.policy)
    if decision.outcome not in UNANSWERED or isinstance(policy, Reason):
        return []
    if decision.outcome is Outcome.PARTIAL:
        return _advise_completion(state, decision, policy, None)
    return advise(state, spec, policy)


def advice_body(advice: Advice) -> dict[str, Any]:
    """Write what would help; the amount of a resource where that is what is missing."""
    body = asdict(advice)
    if advice.resource is None:
        del body["resource"], body["amount"]
    return body


def stream_body(each: StreamExplanation, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Write a stream's part of the answer: its decision (`answer`), its replicas, and its shards
    where it has replicas already."""
    held = []
    for replica in each.held:
        row = asdict(replica)
        row["given"] = row["chosen_by"] is None
        held.append(row)
    return {
        "stream": answer["stream"],
        "outcome": answer["outcome"],
        "health": each.health,
        "policy": answer["policy"],
        "reasons": answer["reasons"],
        "warnings": answer["warnings"],
        "replicas": held,
        "absent": [asdict(absent) for absent in each.absent],
        "advice": [advice_body(advice) for advice in each.advice],
        "shards": [] if each.health is None else [shard.body() for shard in each.shards],
    }
