"""Sends operators' orders to the running reconciler: dry run on a copy, request, answer.

The copy is rebuilt from the topics as every start does it, so that it answers as the stream will.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import uuid4

from placement.controllers import Preview
from placement.diagnosis import is_stuck
from placement.model import Ready
from schemas.requests import OperatorRequest
from schemas.topics import ANSWERS, MEMORY, OPERATOR
from streaming import codec
from streaming.brokers import CommittedReader
from streaming.codec import reason_body
from streaming.errors import StreamingError
from streaming.recovery import restore_snapshot, take_snapshot
from streaming.requests.rehearsal import Rehearsal, rehearse_request
from streaming.sending import SentRecord, make_record, send_records
from streaming.settings import Settings, core_configuration

# The outcomes that answer a request; others report later what became of it.
FIRST_OUTCOMES = ("accepted", "refused")
POLL_SECONDS = 0.2


class NoAnswer(StreamingError):
    """The reconciler did not answer in time."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """Holds the preview of a request (`seen`) and the first batch after it (`first`). `first` is
    None where the request would be refused; `rehearsal` has all moves of a request that makes
    some."""

    seen: Preview
    first: Ready | None
    rehearsal: Rehearsal | None = None

    @property
    def summary(self) -> dict[str, Any]:
        """As `--output json` shows it; of long lists only how long they are."""
        first = self.first
        moves = [] if first is None else [move for move, _ in first.moves.values()]
        open_now = [move for move in moves if move.state.is_open]
        broken = [] if first is None else [v for each in first.violations.values() for v in each]
        refusal = self.seen.refusal
        return {
            "impact_hash": self.seen.hash,
            "destructive": self.seen.destructive,
            "nodes": len(self.seen.nodes),
            "shards": len(self.seen.shards),
            "streams": len({stream for stream, _ in self.seen.shards}),
            "refusal": None if refusal is None else reason_body(refusal),
            "moves_at_once": len(open_now),
            "waiting": sum(v.violation_class == "deferred" and not is_stuck(v) for v in broken),
            "relabelled": [asdict(each) for each in self.seen.relocated],
            "blocked": sum(map(is_stuck, broken)),
            **({} if self.rehearsal is None else self.rehearsal.body()),
        }


def new_request_id() -> str:
    """An id for a request."""
    return uuid4().hex


def dry_run(settings: Settings, request: OperatorRequest) -> DryRun:
    """Try a request on a copy of the running reconciler. Raises NoSnapshot, BrokerUnreachable,
    TopicMissing."""
    core = core_configuration(settings)
    bootstrap, prefix = settings.kafka.bootstrap_servers, settings.topics.prefix
    snapshot = take_snapshot(bootstrap, prefix, core, settings.resolved_kafka_options())
    copy = restore_snapshot(snapshot, core)
    asked = codec.event_of_order(request, snapshot.now)
    seen = copy.preview(replace(asked, expected_hash=None))
    if seen.refusal is not None:
        return DryRun(seen, None)
    first = copy.apply([replace(asked, expected_hash=seen.hash or None)], copy.now)
    level = core.levels[0] if core.levels else "location"
    played = rehearse_request(
        copy, first, snapshot.open_moves, asked.action, asked.target, seen.shards, level
    )
    return DryRun(seen, first, played)


def send_request_and_wait(
    settings: Settings, request: OperatorRequest, timeout_seconds: float
) -> Mapping[str, Any]:
    """Send a request and wait for its answer, a `RequestAnswered`. Raises NoAnswer,
    BrokerUnreachable, TopicMissing, StreamingError."""
    options = settings.resolved_kafka_options()
    bootstrap, prefix = settings.kafka.bootstrap_servers, settings.topics.prefix
    with CommittedReader(
        bootstrap, prefix, [ANSWERS], from_beginning=False, options=options
    ) as reader:
        send_request(settings, request)
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            for record in reader.poll(POLL_SECONDS):
                answer = record.value
                if answer is not None and _answers(answer, request):
                    return answer
    raise NoAnswer(
        f"no answer to request {request.request_id} within {timeout_seconds:g} s: is "
        "placer run running? The request may still be carried out; its answer will come "
        f"to {prefix}{ANSWERS}"
    )


def _answers(answer: Mapping[str, Any], request: OperatorRequest) -> bool:
    first = answer["outcome"] in FIRST_OUTCOMES
    return first and bool(answer["request_id"] == request.request_id)


def send_request(settings: Settings, request: OperatorRequest) -> SentRecord:
    """Send a request and do not wait for its answer. Raises RecordRefused, BrokerUnreachable,
    TopicMissing, StreamingError."""
    name, identity = type(request).__name__, request.request_id
    record = make_record(
        OPERATOR, name, request.target, request.model_dump(mode="json"), settings.cell, identity
    )
    (sent,) = send_records(settings, [record])
    return sent


def follow_progress(settings: Settings, target: str) -> Iterator[Mapping[str, Any] | None]:
    """Yield the order on a target each time it is published; None where there is none. It never
    ends: the caller stops."""
    options = settings.resolved_kafka_options()
    bootstrap, prefix = settings.kafka.bootstrap_servers, settings.topics.prefix
    key = f"request/{target}"
    with CommittedReader(bootstrap, prefix, [MEMORY], options=options) as reader:
        found = [record for record in reader.read_to_end() if record.key == key]
        yield found[-1].value if found else None
        while True:
            for record in reader.poll(POLL_SECONDS):
                if record.key == key:
                    yield record.value
