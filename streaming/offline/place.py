"""`placer place`: decides the streams of a cluster file as the running reconciler would.

It needs neither Kafka nor Spark nor Java. The core decides for a file as it does for a stream of
records. Answers are plain values; the command line prints them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from placement.allocator import find_unmet
from placement.model import (
    AdministrativeState,
    Code,
    Configuration,
    Decision,
    Guard,
    Limits,
    NodeChanged,
    Outcome,
    Reason,
    ShardLoad,
    StreamCreated,
)
from placement.policy import Balance, Policy
from placement.rebalance import balance_of, even_out_all
from placement.state import ClusterState, Stream
from placement.streams import decide
from schemas.cluster import Cluster, RefusedStream
from streaming import codec
from streaming.offline.documents import Document
from streaming.offline.loads import known_loads, utilisation_body

# A stream that does not have what it asked for.
UNANSWERED = (Outcome.REJECTED, Outcome.WAITING, Outcome.PARTIAL)


@dataclass(frozen=True, slots=True)
class PlaceResult:
    """A cluster and what was decided for its streams, in the document's order."""

    document: Document
    decisions: tuple[Decision | RefusedStream, ...]
    state: ClusterState = field(repr=False)

    @property
    def cluster(self) -> Cluster:
        """The cluster that the document describes."""
        return self.document.cluster

    @property
    def has_unanswered(self) -> bool:
        """Return whether a stream does not have what it asked for."""
        return any(
            isinstance(decision, RefusedStream) or decision.outcome in UNANSWERED
            for decision in self.decisions
        )

    @property
    def has_degraded(self) -> bool:
        """Return whether a stream has what it asked for, but not as it wished."""
        outcomes = (getattr(decision, "outcome", None) for decision in self.decisions)
        return Outcome.DEGRADED in outcomes

    def replicas(self, decision: Decision) -> list[list[str]]:
        """Node ids by shard, leader first; what was given, where nothing was placed."""
        ids, table = self.state.topology.ids, self.state.table
        shards = self.state.streams[decision.stream].shards
        found = [[ids[node] for node in table.replicas(shard)] for shard in shards]
        return found or self._listed_replicas(decision.stream)

    def body(self) -> dict[str, Any]:
        """The answer of `place`."""
        name = {} if self.cluster.name is None else {"name": self.cluster.name}
        body = name | {"decisions": [self.answer(decision) for decision in self.decisions]}
        used = self.utilisation()
        return body if used is None else body | {"utilisation": used}

    def utilisation(self) -> dict[str, Any] | None:
        """Write what nodes and domains bear, by resource; None for a file without resources."""
        loads = self.state.node_loads()
        return None if loads is None else utilisation_body(self.state.topology, loads)

    def fill_in(self) -> dict[str, Any]:
        """Fill the replicas of every placed stream into the document as it was given. `check`,
        `plan` and `explain` take the result."""
        value = self.document.value
        streams = [
            {**given, "replicas": replicas} if replicas else given
            for given, replicas in zip(value.get("streams", ()), self._lists(), strict=True)
        ]
        return {**value, "streams": streams} if "streams" in value else dict(value)

    def _lists(self) -> Iterator[list[list[str]]]:
        """List the replicas of each stream in the document's order. None for a refused stream,
        which keeps its own."""
        for decision in self.decisions:
            yield [] if isinstance(decision, RefusedStream) else self.replicas(decision)

    def _listed_replicas(self, stream: str) -> list[list[str]]:
        asked = next((s for s in self.cluster.streams if s.stream == stream), None)
        given = None if asked is None or isinstance(asked, RefusedStream) else asked.replicas
        return [list(nodes) for nodes in given or ()]

    def answer(self, decision: Decision | RefusedStream) -> dict[str, Any]:
        """Write the answer of `place` on one stream."""
        if isinstance(decision, RefusedStream):
            reason = codec.reason_body(Reason(Code.STREAM_MALFORMED, decision.message))
            return {
                "stream": decision.stream,
                "outcome": Outcome.REJECTED,
                "replicas": [],
                "policy": None,
                "reasons": [reason | {"field": decision.field}],
                "warnings": [],
            }
        policies = decision.spec.placement_policies
        return {
            "stream": decision.stream,
            "outcome": decision.outcome,
            "replicas": self.replicas(decision),
            "policy": decision.spec.policy if policies is None else policies,
            "reasons": [codec.reason_body(reason) for reason in decision.reasons],
            "warnings": [codec.reason_body(warning) for warning in decision.warnings],
        }


def place_streams(document: Document) -> PlaceResult:
    """Decide the streams one after the other as the running reconciler would. Streams without
    replicas are then evened out together, as nothing is copied for them yet.

    Nothing is repaired: what the document lists stays as it is.
    """
    state = build_state(document.cluster)
    _, events = codec.events_of_cluster(document.cluster)
    created = [event for event in events if isinstance(event, StreamCreated)]
    known = known_loads(document.cluster)
    decisions = {
        event.stream: decide_stream(state, event, known.get(event.stream, ())) for event in created
    }
    decisions |= _even_out(state, decisions, streams_to_place(created))
    answers = tuple(
        stream if isinstance(stream, RefusedStream) else decisions[stream.stream]
        for stream in document.cluster.streams
    )
    return PlaceResult(document, answers, state)


def streams_to_place(events: Iterable[StreamCreated]) -> list[str]:
    """Streams of which nothing is placed yet."""
    return [event.stream for event in events if event.replicas is None]


def _even_out(
    state: ClusterState, decisions: Mapping[str, Decision], fresh: Sequence[str]
) -> dict[str, Decision]:
    """Even out the fresh streams that follow the totals; the decisions of those that changed."""
    streams = {name: state.streams[name] for name in fresh if name in state.streams}
    free = {
        name: stream
        for name, stream in streams.items()
        if stream.shards and stream.policy and balance_of(stream.policy) is Balance.TOTALS_FIRST
    }
    if len(free) < 2:  # one by itself is even when it is placed
        return {}
    before = {name: _preference_warnings(state, stream) for name, stream in free.items()}
    view = state.view()
    kept = {shard for shard in range(state.table.shards) if state.streams.key(shard)[0] not in free}
    result = {}
    for name in {state.streams.key(shard)[0] for shard in even_out_all(view, kept)}:
        new = [each for each in decisions[name].warnings if each not in before[name]]
        warnings = (*new, *_preference_warnings(state, free[name]))
        result[name] = replace(decisions[name], warnings=warnings)
        state.upsert_stream(result[name], free[name].policy)
    return result


def _preference_warnings(state: ClusterState, stream: Stream) -> tuple[Reason, ...]:
    """Warnings of the preferred rules that the stream's shards do not meet."""
    assert stream.policy is not None
    rows = [state.table.nodes(shard) for shard in stream.shards]
    return find_unmet(state.streams.rules(stream), rows, stream.spec, stream.policy, state.topology)


def build_state(cluster: Cluster, limits: Limits | None = None) -> ClusterState:
    """The state of a reconciler that knows the cluster's nodes."""
    bounds = Limits() if limits is None else limits
    resources = codec.resources_of_cluster(cluster)
    state = ClusterState(Configuration(levels=cluster.levels, limits=bounds, resources=resources))
    nodes, _ = codec.events_of_cluster(cluster)
    for node in nodes:
        assert isinstance(node, NodeChanged)
        assert node.attributes is not None
        ordered = node.administrative or AdministrativeState.NONE
        guard = node.guard or Guard.NONE
        state.topology.upsert(node.node_id, node.attributes, node.liveness, ordered, guard)
    return state


def decide_stream(
    state: ClusterState, event: StreamCreated, known: Sequence[ShardLoad] = ()
) -> Decision:
    """Decide one stream by what is `known` of its shards, and take both into the state."""
    state.loads.foresee(known)
    decision, policy, shards = decide(state, event, None)
    enter_decision(state, decision, policy, shards, known)
    return decision


def enter_decision(
    state: ClusterState,
    decision: Decision,
    policy: Policy | None,
    shards: Sequence[Sequence[int]] | None,
    known: Sequence[ShardLoad] = (),
) -> None:
    """Take a decision and its replicas, if it has any, into the state.

    `known`: what is known of the stream's shards.
    """
    stream = state.upsert_stream(decision, policy)
    if shards is not None:
        for shard, nodes in zip(state.allocate_slots(stream, shards), shards, strict=True):
            state.load_shard(shard, nodes)
        state.loads.learn(known)
