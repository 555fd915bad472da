"""Asks for streams, and waits for the decisions: create, alter, drop.

A request may be repeated at any time, also by another process after a crash. Its sequence is that
of the stream's published decision plus one, so that a repetition before the decision is the same
record; after it, the decision's `body_hash` tells that this very request was decided already.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

from schemas.body_hashes import hash_request
from schemas.inputs import StreamAltered, StreamCreated, StreamDropped
from schemas.outputs import Outcome
from schemas.topics import DECISIONS, STREAMS
from streaming.brokers import CommittedReader
from streaming.client.sender import Sender, make_message
from streaming.errors import StreamingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.brokers import Record

# How long one look for the decision waits for records.
POLL_SECONDS = 0.2
# A decision takes some 0.1 s; a start of the reconciler that is waited out takes 30.
TIMEOUT_SECONDS = 60.0
_GONE = (Outcome.DROPPED, Outcome.REJECTED)

_Request = TypeVar("_Request", StreamCreated, StreamAltered, StreamDropped)


class StreamThere(StreamingError):
    """A stream of that name is there, and was not created by this request."""

    exit_code = 1


class StreamNotThere(StreamingError):
    """There is no stream of that name to alter or drop."""

    exit_code = 1


class RequestOvertaken(StreamingError):
    """Another request about the stream was decided first, under the same or a higher sequence."""

    exit_code = 1


class DecisionAwaited(StreamingError):
    """No decision has come in time. The request may still be carried out; repeating it is safe."""


class Requester:
    """Sends requests for streams, one at a time, and returns their decisions as published.

    Safe for threads. Raises BrokerUnreachable, TopicMissing or AccessRefused when it is made.
    """

    def __init__(
        self, bootstrap: str, prefix: str, options: Mapping[str, str] | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._reader = CommittedReader(bootstrap, prefix, [DECISIONS], options=options)
        self._sender = Sender(bootstrap, prefix, "requester", options)
        self._decisions: dict[str, dict[str, Any]] = {}

    def create(
        self,
        stream: str,
        shards: int,
        replication_factor: int,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        **fields: Any,
    ) -> Mapping[str, Any]:
        """Create a stream; `fields` are the others of StreamCreated, such as `policy` and `uid`.

        Returns the decision, whatever its outcome: look at `outcome` and `reasons`. Raises
        MessageRefused, StreamThere, RequestOvertaken, DecisionAwaited.
        """
        said = {"shards": shards, "replication_factor": replication_factor, **fields}
        return self._ask(StreamCreated, stream, said, timeout_seconds)

    def alter(
        self,
        stream: str,
        shards: int,
        replication_factor: int,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        **fields: Any,
    ) -> Mapping[str, Any]:
        """Give a stream another spec, in full: a field that is left out has its default again.

        Returns the decision; a spec that was refused stands in its `requested`. Raises
        MessageRefused, StreamNotThere, RequestOvertaken, DecisionAwaited.
        """
        said = {"shards": shards, "replication_factor": replication_factor, **fields}
        return self._ask(StreamAltered, stream, said, timeout_seconds)

    def drop(
        self, stream: str, *, timeout_seconds: float = TIMEOUT_SECONDS, uid: str | None = None
    ) -> Mapping[str, Any] | None:
        """Drop a stream with its replicas. Returns the decision; None where its record is gone
        already. Raises RequestOvertaken, DecisionAwaited."""
        try:
            return self._ask(StreamDropped, stream, {"uid": uid}, timeout_seconds)
        except StreamNotThere:
            return self._decisions.get(stream)

    def decision(self, stream: str) -> Mapping[str, Any] | None:
        """Return the last decision on a stream, as of now; None where there is none."""
        with self._lock:
            self._take(self._reader.read_to_end())
            return self._decisions.get(stream)

    def close(self) -> None:
        """Leave the brokers. Raises NotDelivered."""
        self._reader.close()
        self._sender.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(
        self,
        kind: type[_Request],
        stream: str,
        fields: Mapping[str, Any],
        timeout_seconds: float,
    ) -> Mapping[str, Any]:
        """Send a request, unless it was decided already, and wait for its decision."""
        with self._lock:
            self._take(self._reader.read_to_end())
            before = self._decisions.get(stream)
            sequence = 0 if before is None else before["sequence"]
            if before is not None and self._answers(
                before, self._make(kind, stream, fields, sequence)
            ):
                return before
            _refuse_state(kind, stream, before)
            request = self._make(kind, stream, fields, sequence + 1)
            identity = f"{kind.__name__}:{stream}:{request.sequence}"
            self._sender.send(STREAMS, request, identity)
            self._sender.flush()
            return self._wait(request, timeout_seconds)

    def _make(
        self, kind: type[_Request], stream: str, fields: Mapping[str, Any], sequence: int
    ) -> _Request:
        return make_message(kind, {"stream": stream, "sequence": sequence, **fields})

    def _wait(
        self, request: StreamCreated | StreamAltered | StreamDropped, timeout_seconds: float
    ) -> Mapping[str, Any]:
        name = request.stream
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            self._take(self._reader.poll(POLL_SECONDS))
            found = self._decisions.get(name)
            if found is None or found["sequence"] < request.sequence:
                continue
            if self._answers(found, request):
                return found
            raise RequestOvertaken(
                f"another request about {name} was decided under sequence {found['sequence']}: "
                "read its decision, then ask again if this request still holds"
            )
        raise DecisionAwaited(
            f"no decision on {name} within {timeout_seconds:g} s: look whether the reconciler runs "
            "(placer status) and whether it has refused the request (placer dlq show), then repeat "
            "the request"
        )

    def _answers(
        self,
        decision: Mapping[str, Any],
        request: StreamCreated | StreamAltered | StreamDropped,
    ) -> bool:
        """Return whether the decision is on this very request."""
        is_drop = isinstance(request, StreamDropped)
        return (
            decision["sequence"] == request.sequence
            and decision["body_hash"] == hash_request(request)
            and is_drop == (decision["outcome"] == Outcome.DROPPED)
        )

    def _take(self, records: list[Record]) -> None:
        for record in records:
            if record.value is None:
                self._decisions.pop(record.key or "", None)
            else:
                self._decisions[record.key or ""] = record.value


def _refuse_state(
    kind: type[StreamCreated | StreamAltered | StreamDropped],
    stream: str,
    decision: Mapping[str, Any] | None,
) -> None:
    """Raise what the reconciler would refuse because of the stream's state."""
    outcome = None if decision is None else decision["outcome"]
    if kind is StreamCreated:
        if outcome is not None and outcome not in _GONE:
            raise StreamThere(
                f"stream {stream} is there already and is {outcome}; alter it, or use another name"
            )
    elif outcome in (None, Outcome.DROPPED):
        raise StreamNotThere(f"there is no stream {stream}; create it, or correct the name")
