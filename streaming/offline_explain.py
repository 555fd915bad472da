"""`explain` offline: why the replicas of a cluster file stand where they do, or what is missing."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from placement.advice import Advice, advise
from placement.assignments import EMPTY
from placement.events import StreamCreated
from placement.explain import Absent, Explainer, Held
from placement.model import Decision, Outcome
from placement.policy import Policy
from placement.reasons import Band, Code, Reason
from placement.state import State
from placement.strategies.base import View
from schemas.cluster import RefusedStream
from streaming import codec
from streaming.offline import UNANSWERED, Document, Placed, decided, fleet


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be explained: all streams or one, all shards or one, replicas or a node."""

    stream: str | None = None
    shard: int | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Explained:
    """One stream's decision with why each replica is there, why the node is not, and advice."""

    decision: Decision | RefusedStream
    held: tuple[Held, ...] = ()
    absent: tuple[Absent, ...] = ()
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanations of a document, in its order. `missing`: what was asked for and is not."""

    placed: Placed
    streams: tuple[Explained, ...]
    missing: str | None = None

    @property
    def unanswered(self) -> bool:
        """Whether one of the streams does not have what it asked for."""
        outcomes = (getattr(each.decision, "outcome", None) for each in self.streams)
        return any(outcome in (None, *UNANSWERED) for outcome in outcomes)

    def body(self) -> dict[str, Any]:
        """The answer of `explain`."""
        name = self.placed.cluster.name
        body: dict[str, Any] = {} if name is None else {"name": name}
        if self.missing is not None:
            return body | {"error": {"message": self.missing, "line": None, "field": None}}
        return body | {"explain": [_body(each, self.placed) for each in self.streams]}


def explained(document: Document, wanted: Wanted) -> Explanation:
    """Place the document's streams one by one and explain those that are wanted."""
    state = fleet(document.cluster)
    _, events = codec.cluster_events(document.cluster)
    found: dict[str, Explained] = {}
    decisions: dict[str, Decision] = {}
    for event in events:
        assert isinstance(event, StreamCreated)
        before = View(state.topology, state.table)
        decision = decisions[event.stream] = decided(state, event)
        if wanted.stream in (None, event.stream):
            found[event.stream] = _explain(state, event, decision, before, wanted)
    answers = tuple(
        stream if isinstance(stream, RefusedStream) else decisions[stream.stream]
        for stream in document.cluster.streams
    )
    placed = Placed(document, answers, state)
    streams = tuple(
        Explained(answer) if isinstance(answer, RefusedStream) else found[answer.stream]
        for answer in answers
        if wanted.stream in (None, answer.stream)
    )
    return Explanation(placed, streams, _missing(placed, decisions, wanted))


def _missing(placed: Placed, decisions: Mapping[str, Decision], wanted: Wanted) -> str | None:
    """What was asked about but is not in the file."""
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
    state: State, event: StreamCreated, decision: Decision, before: View, wanted: Wanted
) -> Explained:
    policy = state.compile(event.placement_policies, event.policy)
    wrong = (r for r in decision.reasons if r.code is not Code.DOMAIN_UNKNOWN)
    if isinstance(policy, Reason) or any(reason.band is Band.CONFIG for reason in wrong):
        return Explained(decision)
    stream = state.streams[event.stream]
    shards = [state.table.nodes(shard) for shard in stream.shards]
    given = [len(nodes) for nodes in event.replicas or ()] if shards else []
    explainer = Explainer(decision.spec, policy, shards, before, given)
    asked = _asked(decision.spec.shards, shards, wanted)
    held: list[Held] = []
    absent: list[Absent] = []
    for shard in asked:
        if shards and wanted.node is None:
            held += explainer.held(shard)
        elif shards:
            held += [each for each in explainer.held(shard) if each.node == wanted.node]
        node = state.topology.index.get(wanted.node or "")
        why = decision.reasons[0] if decision.reasons else None
        lacks = None if node is None else explainer.absent(shard, node, why)
        absent += [] if lacks is None else [lacks]
    advice = _advice(state, event, decision, policy, wanted)
    return Explained(decision, tuple(held), tuple(absent), tuple(advice))


def _asked(count: int, shards: Sequence[Sequence[int]], wanted: Wanted) -> range:
    if wanted.shard is not None:
        return range(min(wanted.shard, count), min(wanted.shard + 1, count))
    # Nothing tells the shards of a stream apart that has no replicas.
    return range(len(shards)) if shards else range(1)


def _advice(
    state: State, event: StreamCreated, decision: Decision, policy: Policy, wanted: Wanted
) -> list[Advice]:
    """What to add; of a stream that is there in part, its copies are kept."""
    if decision.outcome not in UNANSWERED or wanted.node is not None:
        return []
    given = event.replicas
    if decision.outcome is Outcome.PARTIAL:
        return _completing(state, decision, policy, given)
    return advise(state, decision.spec, policy, given)


def _completing(
    state: State,
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


def _body(each: Explained, placed: Placed) -> dict[str, Any]:
    answer = placed.answer(each.decision)
    held = []
    for replica in each.held:
        row = asdict(replica)
        row["given"] = row["chosen_by"] is None
        held.append(row)
    return {
        "stream": answer["stream"],
        "outcome": answer["outcome"],
        "policy": answer["policy"],
        "reasons": answer["reasons"],
        "warnings": answer["warnings"],
        "replicas": held,
        "absent": [asdict(absent) for absent in each.absent],
        "advice": [asdict(advice) for advice in each.advice],
    }
