"""`explain --live` and `suggest`: why replicas are where they are, where a new stream would go.

The explanation is that of a cluster file (`streaming.offline`), asked on the published state, with
the last decision, the open moves and the violations that the reconciler itself has published. The
suggestion (KIP-879) places one more stream on that state; the running reconciler is not asked.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from placement.model import Assignment, Band, Decision, Outcome, Violation
from schemas.cluster import Cluster, ClusterStream
from streaming import codec
from streaming.errors import StreamingError
from streaming.live.published_state import StateRecords, stream_of
from streaming.offline import (
    Document,
    ExplainOptions,
    ExplainResult,
    PlaceResult,
    PublishedStream,
    StreamExplanation,
    advice_body,
    advise_stream,
    explain_streams,
    move_body,
    place_streams,
    stream_body,
)


class NotInLiveState(StreamingError):
    """The stream, shard or node that was asked about is not in the live state."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class LiveExplanation:
    """A stream's last decision and its explanation. `explanation` is None for a stream that was
    refused for what it says itself: nothing else is to be said of it."""

    decision: Decision
    explanation: ExplainResult | None

    @property
    def stream(self) -> StreamExplanation:
        """The stream's explanation."""
        return self.explanation.streams[0] if self.explanation else StreamExplanation(self.decision)

    def body(self) -> dict[str, Any]:
        """The answer of `explain --live`: that of a file for the one stream, with who decided it
        and when."""
        decision, policies = self.decision, self.decision.spec.placement_policies
        answer = {
            "stream": decision.stream,
            "outcome": decision.outcome,
            "policy": decision.spec.policy if policies is None else policies,
            "reasons": [codec.reason_body(each) for each in decision.reasons],
            "warnings": [codec.reason_body(each) for each in decision.warnings],
        }
        who = {"strategy": decision.strategy, "decided_at": decision.decided_at}
        return stream_body(self.stream, answer) | who


def explain_live(
    live: StateRecords, stream: str, shard: int | None = None, node: str | None = None
) -> LiveExplanation:
    """Explain a stream, or one shard of it. Raises NotInLiveState."""
    decision = next((each for each in live.decisions if each.stream == stream), None)
    if decision is None:
        raise NotInLiveState(f"there is no stream '{stream}'; see: placer streams")
    if shard is not None and not 0 <= shard < decision.spec.shards:
        raise NotInLiveState(f"stream '{stream}' has {decision.spec.shards} shards, counted from 0")
    cluster = live.cluster()
    if node is not None and node not in {each.id for each in cluster.nodes}:
        raise NotInLiveState(f"there is no node '{node}'; see: placer nodes")
    if decision.outcome is Outcome.REJECTED:
        if any(reason.band is Band.CONFIG for reason in decision.reasons):
            return LiveExplanation(decision, None)
        # What would help is tried as if it were asked for now.
        streams = [each for each in cluster.streams if each.stream != stream]
        cluster = replace(cluster, streams=(*streams, stream_of(decision, None)))
    if not any(each.stream == stream for each in cluster.streams):
        return LiveExplanation(decision, None)
    wanted = ExplainOptions(stream, shard, node)
    found = explain_streams(Document(cluster), wanted, _read_published(live, decision))
    return LiveExplanation(decision, found)


def _read_published(live: StateRecords, decision: Decision) -> PublishedStream:
    """Read the stream's published state."""
    name = decision.stream
    mine = [each for each in live.assignments if each.stream == name]
    broken: dict[int, tuple[Violation, ...]] = {}
    for violation in live.violations:
        if violation.stream == name:
            shard = violation.key[1]
            broken[shard] = (*broken.get(shard, ()), violation)

    def map_shards(part: Callable[[Assignment], Any]) -> dict[int, Any]:
        return {each.shard: part(each) for each in mine}

    return PublishedStream(
        decision,
        epochs=map_shards(lambda each: each.epoch),
        adding=map_shards(lambda each: each.adding),
        removing=map_shards(lambda each: each.removing),
        moves={move.shard: move_body(move) for move in live.open_moves if move.stream == name},
        violations=broken,
    )


def suggest_placement(
    cluster: Cluster, asked: dict[str, Any]
) -> tuple[dict[str, Any], PlaceResult]:
    """The answer for one more stream, in the form of `place`, and the whole it is part of.

    `asked`: fields of a stream without its name.
    """
    taken = {stream.stream for stream in cluster.streams}
    name = next(n for n in (f"suggestion-{i}" for i in count(1)) if n not in taken)
    stream = ClusterStream.model_validate({"stream": name, **asked})
    whole = place_streams(Document(replace(cluster, streams=(*cluster.streams, stream))))
    decision = whole.decisions[-1]
    answer = whole.answer(decision)
    if cluster.resources and isinstance(decision, Decision):
        answer["advice"] = [advice_body(each) for each in advise_stream(whole, decision)]
    return answer, whole
