"""Recorded inputs again through the whole application, on a broker of its own.

Batches are cut differently each time, so ids may differ; what must hold is what the audit asks of
any quiet system. Inputs keep their distances in time, ticks are the new application's own, and an
executor takes on the moves, as recorded acknowledgements name those of another run. Nodes that
lived at the recording's end are kept alive until all is at rest.
"""

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml
from confluent_kafka import KafkaError, KafkaException, Message

from placement.model import Configuration, MoveState
from schemas.envelope import Refusal, decode, encode_headers, validate
from schemas.inputs import TICK_KEY, NodeMessage, NodeUnregistered
from schemas.topics import BY_NAME, COMMITS, DEFAULT_PREFIX, JOURNAL, MOVES, NODES, full_name
from streaming.administration import apply_topics
from streaming.brokers import CommittedReader, Record, make_producer
from streaming.errors import StreamingError
from streaming.replay import AUDITED, Recording, audit, latest_values
from streaming.runtime import Application, EmbeddedBroker
from streaming.simulator import Executor

# Nothing new for so long, and nothing open: at rest.
QUIET_SECONDS = 3.0
# For the start, and for what happens behind the last input: silences run out, moves are made.
REST_TIMEOUT_SECONDS = 180.0
EXECUTOR_DELAY_SECONDS = 0.2
FLUSH_TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.2


class RerunFailed(StreamingError):
    """The application did not come to rest, or did not start."""


class NoInputs(StreamingError):
    """The recording holds no input: there is nothing to run."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class RerunResult:
    """Counts the inputs and records of a rerun, and lists the audit's findings."""

    inputs: int
    records: int
    digest: str
    findings: tuple[str, ...]


class _Writer:
    """Writes records, and notes whether the broker has refused one."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = make_producer(bootstrap)
        self._fault = ""

    def write(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
        partition: int = -1,
    ) -> None:
        """Put a record in the queue. `topic`: its short name; `partition`: by the key if -1."""
        name = full_name(topic, DEFAULT_PREFIX)
        try:
            self._producer.produce(
                name, value, key, partition, headers=[*headers], on_delivery=self._note
            )
        except KafkaException as error:
            self._fault = error.args[0].str()
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until the broker has all records. Raises RerunFailed."""
        waiting = self._producer.flush(FLUSH_TIMEOUT_SECONDS)
        if waiting or self._fault:
            why = self._fault or f"no answer within {FLUSH_TIMEOUT_SECONDS:g} s"
            raise RerunFailed(f"the embedded broker did not accept the inputs: {why}")

    def _note(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._fault = error.str()


@dataclass(slots=True)
class _NodeSign:
    """The last sign of a node."""

    incarnation: str
    sequence: int
    at: int


def rerun(
    recording: Recording,
    settings: Mapping[str, Any],
    configuration: Configuration,
    scratch: Path,
    stop: threading.Event,
    speed: float = 1.0,
) -> RerunResult:
    """Run the recording's inputs. `settings`: those of the run, by section; `speed` shortens the
    distances between inputs and the timers alike. Raises NoInputs, RerunFailed and what the broker
    raises."""
    inputs = [
        record
        for record in recording.records
        if record.topic in BY_NAME and BY_NAME[record.topic].direction == "in"
        if record.raw_key != TICK_KEY.encode()
    ]
    if not inputs:
        raise NoInputs("the recording holds no record of an input topic but ticks: nothing to run")
    inputs.sort(key=lambda each: (each.timestamp_ms, each.topic, each.partition, each.offset))
    counts = {t: n for t, n in recording.head.partitions.items() if BY_NAME[t].direction == "in"}
    with EmbeddedBroker() as broker:
        at = broker.bootstrap_servers
        apply_topics(at, DEFAULT_PREFIX, 1, partitions=counts)
        writer = _Writer(at)
        _seed(writer, recording)
        config = scratch / "rerun.yaml"
        config.write_text(yaml.safe_dump(_scale_durations(settings, configuration.cell, speed)))
        application = Application(at, scratch, ("--config", str(config)), {})
        application.start()
        try:
            application.wait_ready(REST_TIMEOUT_SECONDS)
            with (
                Executor(at, DEFAULT_PREFIX, EXECUTOR_DELAY_SECONDS),
                CommittedReader(at, DEFAULT_PREFIX, AUDITED) as reader,
            ):
                lives = _send(writer, inputs, speed, stop)
                suspect_after = settings["liveness"]["suspect_after_seconds"] / speed
                records = _await_rest(reader, writer, lives, suspect_after, stop)
        finally:
            application.stop()
    marker = latest_values(records)[COMMITS][configuration.cell]
    found = audit(records, configuration)
    return RerunResult(len(inputs), len(records), marker["digest"], tuple(found))


def _scale_durations(settings: Mapping[str, Any], cell: str, speed: float) -> dict[str, Any]:
    """The settings with every duration divided by the speed."""

    def scale(value: Any, name: str = "") -> Any:
        if isinstance(value, Mapping):
            return {key: scale(each, key) for key, each in value.items() if each is not None}
        return value / speed if name.endswith("_seconds") else value

    return {"cell": cell, **scale(settings)}


def _seed(writer: _Writer, recording: Recording) -> None:
    """The state that the recording begins with; its inputs begin at the beginning of the topics."""
    if recording.snapshot is None:
        return
    for record in recording.snapshot.records:
        value = record.raw
        if record.topic == COMMITS:
            body = dict(recording.snapshot.marker)
            value = orjson.dumps(body | {"positions": {t: {} for t in body["positions"]}})
        writer.write(record.topic, value, record.raw_key, record.raw_headers)
    writer.flush()


def _send(
    writer: _Writer, inputs: list[Record], speed: float, stop: threading.Event
) -> dict[str, _NodeSign]:
    """Send the inputs in their distances; returns the nodes that lived at the end."""
    lives: dict[str, _NodeSign] = {}
    began, first = time.monotonic(), inputs[0].timestamp_ms if inputs else 0
    for record in inputs:
        due = began + (record.timestamp_ms - first) / 1000 / speed
        if stop.wait(max(0.0, due - time.monotonic())):
            break
        writer.write(record.topic, record.raw, record.raw_key, record.raw_headers, record.partition)
        _note(lives, record)
    writer.flush()
    return lives


def _note(lives: dict[str, _NodeSign], record: Record) -> None:
    if record.topic != NODES:
        return
    envelope = decode(record.raw, [*record.raw_headers])
    message = (
        envelope
        if isinstance(envelope, Refusal)
        else validate(envelope, record.raw_key, record.topic)
    )
    if isinstance(message, NodeUnregistered):
        lives.pop(message.node_id, None)
    elif isinstance(message, NodeMessage):
        life = _NodeSign(message.incarnation, message.sequence, record.timestamp_ms)
        lives[message.node_id] = life


def _await_rest(
    reader: CommittedReader,
    writer: _Writer,
    lives: dict[str, _NodeSign],
    suspect_after_seconds: float,
    stop: threading.Event,
) -> list[Record]:
    """Keep the living alive until nothing happens any more; returns all records."""
    newest = max((life.at for life in lives.values()), default=0)
    alive = {n: x for n, x in lives.items() if newest - x.at < suspect_after_seconds * 1000}
    records: list[Record] = []
    deadline = time.monotonic() + REST_TIMEOUT_SECONDS
    beat_at = quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < QUIET_SECONDS or _open_moves(records):
        if stop.is_set() or time.monotonic() > deadline:
            raise RerunFailed(
                "the run was stopped, or records still came or moves were still open "
                f"{REST_TIMEOUT_SECONDS:g} s after the last input"
            )
        if time.monotonic() >= beat_at:
            beat_at = time.monotonic() + suspect_after_seconds / 4
            for node_id, life in alive.items():
                life.sequence += 1
                _beat(writer, node_id, life)
            writer.flush()
        found = reader.poll(POLL_SECONDS)
        if any(record.topic not in (COMMITS, JOURNAL) for record in found):
            quiet_since = time.monotonic()
        records += found
    return records + reader.read_to_end()


def _beat(writer: _Writer, node_id: str, life: _NodeSign) -> None:
    body = {"node_id": node_id, "incarnation": life.incarnation, "sequence": life.sequence}
    headers = encode_headers("NodeHeartbeat", cell="rerun", id="1", subject=node_id, time_ms=0)
    writer.write(NODES, orjson.dumps(body), node_id.encode(), headers)


def _open_moves(records: list[Record]) -> bool:
    moves = latest_values(records)[MOVES].values()
    return any(MoveState(move["state"]).is_open for move in moves)
