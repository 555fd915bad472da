"""Both ends of the application: what is sent to it, and what it has committed."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from schemas.base import Message as AnyMessage
from schemas.envelope import encode_headers, type_name
from schemas.outputs import OUTPUTS
from schemas.topics import CATALOGUE, DEAD_LETTERS, full_name
from streaming.brokers import CommittedReader, Record, make_producer
from tests.oracle.log import Log
from tests.systems.waiting import PAUSE_SECONDS, TIMEOUT_SECONDS, until

if TYPE_CHECKING:
    from confluent_kafka import Message

STATE_TOPICS = (
    "topology.v1",
    "decisions.v1",
    "assignments.v1",
    "moves.v1",
    "violations.v1",
    "state.v1",
    "load.v1",
)
# A broker that was killed serves again when its old session has run out.
DELIVERY_TIMEOUT_SECONDS = 60.0
# The records of one transaction become visible topic by topic, within milliseconds.
SETTLE_TIMEOUT_SECONDS = 5.0

_Found = TypeVar("_Found")


class Inputs:
    """Sends input records; every call returns when they are in the log."""

    def __init__(
        self, bootstrap: str, prefix: str, options: Mapping[str, str] | None = None
    ) -> None:
        self._prefix = prefix
        self._producer = make_producer(bootstrap, options)

    def stream(self, name: str, **fields: Any) -> tuple[int, int]:
        """Ask for a stream; returns partition and offset of the request."""
        asked = {"stream": name, "sequence": 1, "shards": 1, "replication_factor": 3} | fields
        return self.send("streams.v1", "StreamCreated", name, asked)

    def ack(self, message: str, move: Mapping[str, Any]) -> tuple[int, int]:
        """An executor's word on a move."""
        said = {name: move[name] for name in ("move_id", "stream", "shard")}
        return self.send("acks.v1", message, f"{move['stream']}/{move['shard']}", said)

    def send(self, topic: str, message: str, key: str, body: dict[str, Any]) -> tuple[int, int]:
        """Send a message in CloudEvents' binary mode."""
        headers = encode_headers(message, cell="test", id="1", subject=key, time_ms=0)
        return self.raw(topic, key.encode(), orjson.dumps(body), [*headers])

    def raw(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
    ) -> tuple[int, int]:
        """Send any bytes."""
        sent: list[tuple[object, Message]] = []
        self._producer.produce(
            full_name(topic, self._prefix),
            value,
            key,
            headers=headers,
            on_delivery=lambda *end: sent.append(end),
        )
        assert self._producer.flush(DELIVERY_TIMEOUT_SECONDS) == 0
        ((error, message),) = sent
        assert error is None, error
        return message.partition(), message.offset()


class Requests:
    """Asks for one stream after the other until it is closed; `asked` are those in the log."""

    def __init__(self, inputs: Inputs, per_second: float) -> None:
        self._inputs, self._pause_seconds = inputs, 1 / per_second
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.asked = 0
        self._thread.start()

    def close(self) -> None:
        """Stop; the request under way is in the log when this returns."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(self._pause_seconds):
            self._inputs.stream(f"s{self.asked}", shards=2, replication_factor=2)
            self.asked += 1


class Outputs:
    """Everything committed to the output topics, in the order of each partition.

    A reader of its own follows them in a thread, so that looking costs nothing.
    """

    def __init__(
        self, bootstrap: str, prefix: str, options: Mapping[str, str] | None = None
    ) -> None:
        names = [topic.name for topic in CATALOGUE if topic.direction == "out"]
        self._reader = CommittedReader(bootstrap, prefix, names, options=options)
        self._records: list[Record] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._reader.close()

    @property
    def records(self) -> list[Record]:
        """What has come so far."""
        return self._records[:]

    def of(self, topic: str) -> list[Record]:
        """The records of one topic."""
        return [record for record in self.records if record.topic == topic]

    def latest(self, topic: str) -> dict[str, dict[str, Any]]:
        """Last value by key; tombstones take their key away."""
        held: dict[str, dict[str, Any]] = {}
        for record in self.of(topic):
            held.pop(record.key or "", None)
            if record.value is not None:
                held[record.key or ""] = record.value
        return held

    @property
    def marker(self) -> dict[str, Any]:
        """The newest commit marker."""
        (found,) = self.latest("commits.v1").values()
        return found

    @property
    def open_moves(self) -> dict[str, dict[str, Any]]:
        moves = self.latest("moves.v1")
        return {key: m for key, m in moves.items() if m["state"] in ("issued", "accepted")}

    def decision(self, stream: str) -> dict[str, Any]:
        """The answer to a stream's request, waited for together with its assignments."""
        found = self.wait(lambda: self.latest("decisions.v1").get(stream), f"decision on {stream}")
        placed = found["outcome"] not in ("rejected", "waiting")
        shards = found["spec"]["shards"] if placed else 0
        self.wait(lambda: len(self.replicas(stream)) == shards, f"{shards} shards of {stream}")
        return found

    def replicas(self, stream: str) -> list[list[str]]:
        """Replicas of the stream's shards."""
        shards = [a for a in self.latest("assignments.v1").values() if a["stream"] == stream]
        return [a["replicas"] for a in sorted(shards, key=lambda each: each["shard"])]

    def liveness(self, node_id: str) -> str | None:
        view = self.latest("topology.v1").get(node_id)
        return view and view["liveness"]

    def wait(
        self,
        condition: Callable[[], _Found],
        what: str,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> _Found:
        """The first true answer of a condition on what has come."""
        return until(condition, what, timeout_seconds)

    def wait_passed(self, topic: str, place: tuple[int, int]) -> None:
        """Return when a marker says that the input record at (partition, offset) was applied."""
        partition, offset = place
        self.wait(
            lambda: self.marker["positions"][topic].get(str(partition), 0) > offset,
            f"a marker behind {topic}-{partition}@{offset}",
        )

    def letters(self) -> dict[tuple[str, str, str], Record]:
        """Dead letters by topic, partition and offset of the record they are of."""
        start = "__placement.errors."
        found = {}
        for record in self.of(DEAD_LETTERS):
            place = tuple(record.headers[start + n] for n in ("topic", "partition", "offset"))
            assert place not in found, f"{place} has two dead letters"
            found[place] = record
        return found  # type: ignore[return-value]

    def log(self) -> Log:
        """All records as the oracle sees them, read topic by topic."""
        log = Log(ordered=False)
        for topic in STATE_TOPICS:
            for record in self.of(topic):
                message = _message(record)
                # Fields that are not set are left out on the wire; the oracle asks for all.
                value = message and message.model_dump(mode="json", by_alias=True)
                log.feed(topic, record.key or "", value, record.headers["ce_id"])
        return log

    def check(self) -> None:
        """Nothing may be wrong; what one topic shows and another does not yet is waited for."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_SECONDS
        while (found := self.faults()) and time.monotonic() < deadline:
            self._closing.wait(PAUSE_SECONDS)
        assert found == []

    def faults(self) -> list[str]:
        """What is wrong with the records by themselves: ids, sequences, epochs, the contract."""
        found = self.log().violations()
        identities = [r.headers["ce_id"] for r in self.records if r.topic != DEAD_LETTERS]
        doubled = len(identities) - len(set(identities))
        found += [f"{doubled} ids came twice"] if doubled else []
        sequences = [r.value["sequence"] for r in self.of("commits.v1") if r.value]
        if sequences != list(range(1, len(sequences) + 1)):
            found.append(f"commit sequences {sequences}")
        for record in self.records:
            message = _message(record)
            if message is not None and message.record_key() != record.key:
                found.append(f"{record.topic}@{record.offset} has the key {record.key}")
        return found

    def _follow(self) -> None:
        while not self._closing.is_set():
            self._records += self._reader.poll(0.1)


def _message(record: Record) -> AnyMessage | None:
    """The record as the message its type says; None for tombstones and dead letters."""
    if record.topic == DEAD_LETTERS or record.raw is None:
        return None
    name = next(name for name in OUTPUTS if type_name(name) == record.headers["ce_type"])
    return OUTPUTS[name].model_validate_json(record.raw)
