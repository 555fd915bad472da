"""The recovery part: writing a million assignments, and rebuilding from topics.

Everything is what the application does, without Spark: the core decides, the records go through
the outbox, and `recovery.recover` reads them back and proves the digest. Beside it, in the same
run, the client alone: the same bytes written without our work, and read and parsed without ours.
"""

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import orjson
import psutil  # type: ignore[import-untyped]

from placement.model import Configuration, Liveness, NodeAttributes, NodeChanged, StreamCreated
from placement.reconciler import Reconciler
from placement.state import DIGEST_VERSION
from schemas.topics import CATALOGUE, full_name
from streaming import gc_pause
from streaming.administration import topics
from streaming.brokers import make_producer, make_reader, present_partitions
from streaming.brokers.reader import RECORDS_PER_CALL_MAX
from streaming.codec import log_record, ready_records
from streaming.outbox import Outbox
from streaming.recovery import recover
from streaming.runtime import EmbeddedBroker

CELL = "main"
NODES = 1_000
SHARDS_PER_STREAM = 10_000
REPLICATION_FACTOR = 3
# One prefix of a batch: what fits a transaction well.
STREAMS_PER_COMMIT = 10

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is written and rebuilt."""

    shards: int


FULL = Extent(1_000_000)
QUICK = Extent(100_000)


@dataclass(slots=True)
class Recovered:
    """Seconds by what was done, on the wall and of this process's CPU time (the broker works
    beside it), and the memory that the rebuilt state takes."""

    shards: int
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    state_bytes: int = 0
    peak_bytes: int = 0

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the time of the block to `what`."""
        began, cpu_began = time.perf_counter(), time.process_time()
        yield
        self.add(what, time.perf_counter() - began, time.process_time() - cpu_began)

    def add(self, what: str, seconds: float, cpu_seconds: float) -> None:
        """Add time to `what`."""
        for spent, more in ((self.seconds, seconds), (self.cpu_seconds, cpu_seconds)):
            spent[what] = spent.get(what, 0.0) + more


def measure(extent: Extent, broker: EmbeddedBroker, prefix: str, tell: Tell) -> Recovered:
    """Write, read with the client alone, rebuild."""
    found = Recovered(extent.shards)
    bootstrap = broker.bootstrap_servers
    topics.apply_topics(bootstrap, prefix, 1)
    counts = topics.count_partitions(bootstrap, prefix)
    outputs = {t.name: counts[t.name] for t in CATALOGUE if t.direction == "out"}
    tell("write")
    _write(found, bootstrap, prefix, outputs)
    tell("read with the client alone")
    with found.timed("client: read and parse"):
        _read(bootstrap, full_name("assignments.v1", prefix), extent.shards)
    tell("rebuild")
    # In a process of its own, whose memory is that of nothing else.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        rebuilt = other.submit(_rebuild, bootstrap, prefix, outputs).result()
    found.add("rebuild", rebuilt.seconds["rebuild"], rebuilt.cpu_seconds["rebuild"])
    found.state_bytes, found.peak_bytes = rebuilt.state_bytes, rebuilt.peak_bytes
    assert rebuilt.shards >= extent.shards
    return found


def _rebuild(bootstrap: str, prefix: str, outputs: dict[str, int]) -> Recovered:
    """What the rebuild took; its shards are all records that were read."""
    found, process = Recovered(0), psutil.Process()
    before = process.memory_info().rss
    with found.timed("rebuild"):
        rebuilt = recover(bootstrap, prefix, CELL, Configuration(CELL), outputs, {})
    gc.collect()
    found.shards = rebuilt.records
    found.state_bytes = process.memory_info().rss - before
    found.peak_bytes = _peak_bytes()
    return found


def _peak_bytes() -> int:
    """This process at its largest. Not `ru_maxrss`, which begins with that of the parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


# As `BatchApplier` does it.
@gc_pause.pause_gc()
def _write(found: Recovered, bootstrap: str, prefix: str, outputs: dict[str, int]) -> None:
    """A fleet, and streams on it, as the application commits them."""
    outbox = Outbox(bootstrap, prefix, CELL, outputs, {})
    outbox.fence()
    reconciler = Reconciler(Configuration(CELL))
    options = {"compression.type": "lz4", "queue.buffering.max.messages": "2000000"}
    producer = make_producer(bootstrap, options, linger_ms=20)
    # A topic that nobody rebuilds from.
    unread = full_name("journal.v1", prefix)
    nodes = [
        NodeChanged(1, f"node-{n:04}", "a", 1, Liveness.UP, NodeAttributes(f"/z{n % 10}/r{n % 50}"))
        for n in range(NODES)
    ]
    streams = [
        StreamCreated(1, f"stream-{n:04}", 1, SHARDS_PER_STREAM, REPLICATION_FACTOR)
        for n in range(found.shards // SHARDS_PER_STREAM)
    ]
    batches = [
        streams[n : n + STREAMS_PER_COMMIT] for n in range(0, len(streams), STREAMS_PER_COMMIT)
    ]
    for sequence, events in enumerate([nodes, *batches], start=1):
        with found.timed("decide"):
            ready = reconciler.apply(events, sequence)
        marker = {
            "cell": CELL, "sequence": sequence, "writer_epoch": 1, "now": sequence,
            "positions": {}, "clocks": {}, "output_partitions": outputs,
            "journal_sequence": sequence, "digest": reconciler.digest,
            "digest_version": DIGEST_VERSION,
        }  # fmt: skip
        last = log_record("CommitMarker", "commits.v1", CELL, marker, 1)
        with found.timed("write"):
            outbox.commit(chain(ready_records(ready, CELL, sequence, sequence), (last,)))
        records = [*ready_records(ready, CELL, sequence, sequence)]
        with found.timed("client: write"):
            for each in records:
                producer.produce(unread, each.value, each.key, headers=each.headers)
            producer.flush()


def _read(bootstrap: str, topic: str, records: int) -> None:
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    consumer = make_reader(bootstrap)
    parts = present_partitions(consumer, topic)
    consumer.assign([TopicPartition(topic, part, OFFSET_BEGINNING) for part in parts])
    count = 0
    while count < records:
        for message in consumer.consume(RECORDS_PER_CALL_MAX, timeout=1.0):
            if message.error() is None:
                orjson.loads(message.value())
                count += 1
    consumer.close()
