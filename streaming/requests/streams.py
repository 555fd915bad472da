"""Checks and sends requests for streams, and waits for their answers.

Commands read the reconciler's decisions and nodes, check a request with the core's own code, send
it, and wait for the decision on it, or for the dead letter that says why there is none.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from placement.model import Code, Decision, Outcome, Reason, StreamRequested, StreamSpec
from placement.state import ClusterState
from placement.strategies import STRATEGIES
from placement.streams import compile_request, spec_of
from schemas.base import describe
from schemas.inputs import StreamAltered, StreamCreated, StreamDropped
from schemas.spelling import did_you_mean
from schemas.topics import DEAD_LETTERS, DECISIONS, STREAMS, TOPOLOGY, full_name
from streaming import codec
from streaming.brokers import CommittedReader, Record
from streaming.codec import parse_configuration
from streaming.errors import StreamingError
from streaming.live import PublishedState
from streaming.requests.dead_letters import DeadLetter
from streaming.requests.operators import NoAnswer
from streaming.sending import (
    OutgoingRecord,
    RecordRefused,
    SentRecord,
    make_record,
    now_ms,
    send_records,
)
from streaming.settings import Settings, core_configuration

POLL_SECONDS = 0.2
# Outcomes of a stream that has what it asked for, if not always as it wished, or is gone as asked.
_SATISFIED = (Outcome.PLACED, Outcome.DEGRADED, Outcome.DROPPED)
# What is asked for; the rest of a spec is the stream's name.
SPEC_FIELDS = (
    "shards",
    "replication_factor",
    "placement_policies",
    "policy",
    "quorum",
    "shard_tokens",
    "dimension",
    "ranges",
    "repair",
    "expected_load",
)

StreamMessage = StreamCreated | StreamAltered | StreamDropped


class StreamNotThere(StreamingError):
    """There is no stream of that name to change or to show."""

    exit_code = 2


class StreamThere(StreamingError):
    """A stream of that name is there already."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class StreamAnswer:
    """Answers a request: the published decision on it, or the reason of its refusal."""

    stream: str
    body: Mapping[str, Any] | None
    refusal: tuple[str, str] | None = None

    @property
    def decision(self) -> Decision | None:
        """The decision; None where the request was refused with a dead letter."""
        return None if self.body is None else codec.parse_decision(self.body)

    @property
    def is_satisfied(self) -> bool:
        """Return whether the stream has what was asked for."""
        decision = self.decision
        return decision is not None and is_satisfied(decision)

    def to_json(self) -> dict[str, Any]:
        """For programs: the decision, or the refusal in the form of one."""
        if self.body is not None:
            return dict(self.body)
        assert self.refusal is not None
        code, message = self.refusal
        reason = {"code": code, "message": message}
        return {"stream": self.stream, "outcome": "refused", "reasons": [reason]}


class StreamRequests:
    """The streams that a reconciler knows, and the fleet by which it would judge a request."""

    def __init__(self, live: PublishedState, settings: Settings) -> None:
        self.decisions = {decision.stream: decision for decision in live.decisions}
        body = live.configuration
        # Where the reconciler has not said by what it decides, it is by these settings.
        known = core_configuration(settings) if body is None else parse_configuration(body)
        self._state = ClusterState(known)
        for view in live.nodes:
            condition = (view.liveness, view.administrative, view.guard)
            self._state.topology.upsert(view.node_id, view.attributes, *condition)

    def find(self, name: str) -> Decision | None:
        """The last decision on a stream that was not dropped."""
        decision = self.decisions.get(name)
        return None if decision is None or decision.outcome is Outcome.DROPPED else decision

    def get(self, name: str) -> Decision:
        """Return the last decision on a stream. Raises StreamNotThere with names of similar
        spelling."""
        decision = self.find(name)
        if decision is None:
            names = [each for each in self.decisions if self.find(each)]
            raise StreamNotThere(
                f"{Code.STREAM_UNKNOWN}: there is no stream '{name}'{did_you_mean(name, names)}"
            )
        return decision

    def next_sequence(self, name: str) -> int:
        """A sequence that the reconciler takes for news."""
        decision = self.decisions.get(name)
        return max(now_ms(), 0 if decision is None else decision.sequence + 1)

    def make_create(self, name: str, fields: Mapping[str, Any]) -> StreamCreated:
        """The request for a new stream. Raises RecordRefused, StreamThere."""
        decision = self.find(name)
        if decision is not None and decision.outcome is not Outcome.REJECTED:
            raise StreamThere(
                f"{Code.STREAM_EXISTS}: stream '{name}' already exists and is {decision.outcome}; "
                f"change it with: placer stream alter {name}"
            )
        return self._validate_message(StreamCreated, name, fields)

    def make_alter(self, name: str, fields: Mapping[str, Any]) -> StreamAltered:
        """The request for another spec: `fields` instead of those in force. Raises RecordRefused,
        StreamNotThere."""
        spec = self.get(name).spec
        message = self._validate_message(
            StreamAltered, name, overlay_spec(spec_fields(spec), fields)
        )
        self._refuse_fewer_shards(message)
        return message

    def make_respecify(self, name: str, fields: Mapping[str, Any]) -> StreamAltered:
        """The request for another spec: `fields` and nothing else. Raises RecordRefused."""
        message = self._validate_message(StreamAltered, name, fields)
        self._refuse_fewer_shards(message)
        return message

    def make_drop(self, name: str) -> StreamDropped:
        """The request to drop a stream. Raises StreamNotThere."""
        self.get(name)
        return StreamDropped(stream=name, sequence=self.next_sequence(name))

    def spec_of(self, message: StreamCreated | StreamAltered) -> StreamSpec:
        """The spec that a request comes to, defaults filled in."""
        event = codec.event_of_message(message, 0)
        assert isinstance(event, StreamRequested)
        return spec_of(self._state, event)

    def _validate_message(self, kind: type[Any], name: str, fields: Mapping[str, Any]) -> Any:
        body = {"stream": name, "sequence": self.next_sequence(name)}
        body |= {field: value for field, value in fields.items() if value is not None}
        try:
            message = kind.model_validate(body)
        except ValidationError as error:
            raise RecordRefused(f"{name}: {describe(error, body)[1]}") from error
        event = codec.event_of_message(message, 0)
        assert isinstance(event, StreamRequested)
        wrong = self._find_refusal(event)
        if wrong is not None:
            raise RecordRefused(f"{name}: {wrong.code}: {wrong.message}")
        return message

    def _find_refusal(self, event: StreamRequested) -> Reason | None:
        """Return the reason for which no placement would be tried; None where there is none."""
        policy = compile_request(self._state, event)
        if isinstance(policy, Reason):
            return policy
        strategy = STRATEGIES[policy.strategy]
        return strategy.find_fault(spec_of(self._state, event), policy, self._state.topology)

    def _refuse_fewer_shards(self, message: StreamAltered) -> None:
        decision = self.get(message.stream)
        have = decision.spec.shards if decision.shards_placed else 0
        if message.shards < have:
            raise RecordRefused(
                f"{message.stream}: {Code.SHARDS_OUT_OF_RANGE}: {message.shards} shards "
                f"are fewer than the {have} there are: none is taken away"
            )


def read_streams(settings: Settings) -> StreamRequests:
    """The streams of a running reconciler. Raises BrokerUnreachable, TopicMissing."""
    with PublishedState(settings, (DECISIONS, TOPOLOGY)) as live:
        return StreamRequests(live, settings)


def is_satisfied(decision: Decision) -> bool:
    """Return whether a stream has what was asked for last."""
    return decision.outcome in _SATISFIED and decision.requested is None


def spec_fields(spec: StreamSpec) -> dict[str, Any]:
    """Return the spec as the fields of a request."""
    found = {name: spec_field(spec, name) for name in SPEC_FIELDS}
    return {name: value for name, value in found.items() if value is not None}


def spec_field(spec: StreamSpec, name: str) -> Any:
    """Return a field of the spec as a request has it."""
    value = getattr(spec, name)
    return value if name != "expected_load" or value is None else dict(value)


def overlay_spec(spec: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A spec in force with what is given instead; either form of policy takes the place of both."""
    kept = dict(spec)
    named = given.get("policy") is not None or given.get("placement_policies") is not None
    if named or kept.get("placement_policies") is not None:
        # The policy of a spec with `placement_policies` only says how these were read.
        kept.pop("policy", None)
    if named:
        kept.pop("placement_policies", None)
    return kept | {field: value for field, value in given.items() if value is not None}


def send_stream_requests_and_wait(
    settings: Settings, messages: Sequence[StreamMessage], timeout_seconds: float
) -> Iterator[StreamAnswer]:
    """Send requests, and hand out their answers as they come. Raises NoAnswer where one does not
    come in time, BrokerUnreachable, TopicMissing, StreamingError."""
    with CommittedReader(
        settings.kafka.bootstrap_servers,
        settings.topics.prefix,
        [DECISIONS, DEAD_LETTERS],
        from_beginning=False,
        options=settings.resolved_kafka_options(),
    ) as reader:
        places = send_stream_requests(settings, messages)
        waiting = dict(zip(places, messages, strict=True))
        deadline = time.monotonic() + timeout_seconds
        while waiting and time.monotonic() < deadline:
            for record in reader.poll(POLL_SECONDS):
                for place, answer in _answers(record, waiting):
                    del waiting[place]
                    yield answer
    if waiting:
        names = ", ".join(sorted(message.stream for message in waiting.values()))
        topic = full_name(DECISIONS, settings.topics.prefix)
        raise NoAnswer(
            f"no decision on {names} within {timeout_seconds:g} s: is placer run running? "
            f"The request may still be carried out; its decision will come to {topic}"
        )


def send_stream_requests(settings: Settings, messages: Sequence[StreamMessage]) -> list[SentRecord]:
    """Send requests and do not wait for their answers."""
    return send_records(settings, [_record(settings, message) for message in messages])


def _record(settings: Settings, message: StreamMessage) -> OutgoingRecord:
    name = type(message).__name__
    identity = f"{name}:{message.stream}:{message.sequence}"
    return make_record(
        STREAMS, name, message.stream, message.model_dump(mode="json"), settings.cell, identity
    )


def _answers(
    record: Record, waiting: Mapping[SentRecord, StreamMessage]
) -> list[tuple[SentRecord, StreamAnswer]]:
    """The requests that a record answers."""
    if record.topic == DEAD_LETTERS:
        letter = DeadLetter(record)
        refusal = (letter.header("reason"), letter.header("message"))
        return [
            (place, StreamAnswer(message.stream, None, refusal))
            for place, message in waiting.items()
            if letter.is_about(place.topic, place.partition, place.offset)
        ]
    body = record.value
    if body is None:
        return []
    return [
        (place, _decision_of(message, body))
        for place, message in waiting.items()
        if message.stream == body["stream"] and body["sequence"] >= message.sequence
    ]


def _decision_of(message: StreamMessage, body: Mapping[str, Any]) -> StreamAnswer:
    if body["sequence"] == message.sequence:
        return StreamAnswer(message.stream, body)
    said = f"another request with the higher sequence {body['sequence']} came first"
    return StreamAnswer(message.stream, None, (Code.SEQUENCE_CONFLICT, said))
