"""The HTTP interface on a million shards: how soon it answers, what it takes, how fast it finds.

The state is decided by the core and written through the outbox. `placer api` is a process of its
own; for the lookups all its threads share one core, and the clients have the others.
"""

import asyncio
import os
import random
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import orjson
import psutil
from rich.console import Console

from placement.model import Configuration, Liveness, NodeChanged, StreamCreated
from streaming import gc_pause
from streaming.administration import apply_topics
from streaming.cli.render.report import print_table
from streaming.runtime import EmbeddedBroker
from tests.benchmarks.processes import BenchmarkFailed
from tests.benchmarks.recovering import (
    REPLICATION_FACTOR,
    SHARDS_PER_STREAM,
    STREAMS_PER_COMMIT,
    Tell,
)
from tests.builders.published_state import Publisher, nodes_up
from tests.systems.application import PLACER

PREFIX = "bench."
SERVED_CORE = 0
# What a gateway keeps open; more only wait for each other on one core.
CONNECTIONS = 16
# Of those that ask for many at once: more exceed the rate of one address.
CONNECTIONS_FOR_MANY = 2
SHARDS_PER_LOOKUP = 100
READY_TIMEOUT_SECONDS = 300.0
COMMIT_SECONDS = 1.0
CHANGED_NODE = "n1"
# Until the last commit has reached the last who follows them.
SHOWN_TIMEOUT_SECONDS = 60.0
# So often a start is looked at: its time is measured to a tenth of a second.
PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is served and asked for."""

    shards: int
    nodes: int
    seconds: float


FULL = Extent(1_000_000, 10_000, 20.0)
QUICK = Extent(100_000, 1_000, 5.0)


@dataclass(frozen=True, slots=True)
class Serving:
    """A process that has read all shards. `ready_seconds`: from its start until then."""

    pid: int
    host: str
    port: int
    ready_seconds: float
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests a second, and how long each took."""

    what: str
    per_second: float
    median_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Found:
    """Seconds from the start of the process to the first answer, its memory, and its rates."""

    extent: Extent
    ready_seconds: float
    resident_bytes: int
    peak_bytes: int
    rates: tuple[Rate, ...]


def measure(extent: Extent, broker: EmbeddedBroker, tell: Tell) -> Found:
    """Write, start, ask."""
    tell("decide and write")
    write(extent, broker.bootstrap_servers)
    tell("start")
    with started("api", extent, broker) as serving:
        pin(serving.pid)
        tell("lookups")
        rates = asyncio.run(_ask_all(serving.host, serving.port, extent))
        return Found(
            extent,
            serving.ready_seconds,
            serving.resident_bytes,
            peak_bytes(serving.pid),
            tuple(rates),
        )


@contextmanager
def started(
    command: str, extent: Extent, broker: EmbeddedBroker, *options: str
) -> Iterator[Serving]:
    """`placer api` or `placer console` with all shards read, until the end of the block; `options`:
    of the command. Raises BenchmarkFailed."""
    began = time.perf_counter()
    place = ["--bootstrap", broker.bootstrap_servers, "--prefix", PREFIX]
    words = [PLACER, command, "--port", "0", *place, *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as served:
        try:
            assert served.stdout is not None
            found = re.search(rb"http://([\d.]+):(\d+)", served.stdout.readline())
            if found is None:
                raise BenchmarkFailed(f"placer {command} did not start")
            host, port = found[1].decode(), int(found[2])
            _wait_ready(f"http://{host}:{port}", extent.shards)
            ready_seconds = time.perf_counter() - began
            resident = psutil.Process(served.pid).memory_info().rss
            yield Serving(served.pid, host, port, ready_seconds, resident)
        finally:
            served.terminate()


@gc_pause.pause_gc()
def write(extent: Extent, bootstrap: str) -> Publisher:
    """Decide all shards and commit them; return the publisher, to go on with."""
    apply_topics(bootstrap, PREFIX, 1)
    publisher = Publisher(bootstrap, PREFIX, Configuration())
    publisher.apply(nodes_up(extent.nodes, racks=extent.nodes // 20), 1)
    streams = [
        StreamCreated(1, f"stream-{n:04}", 1, SHARDS_PER_STREAM, REPLICATION_FACTOR)
        for n in range(extent.shards // SHARDS_PER_STREAM)
    ]
    for first in range(0, len(streams), STREAMS_PER_COMMIT):
        publisher.apply(streams[first : first + STREAMS_PER_COMMIT], 2 + first)
    return publisher


def _wait_ready(url: str, shards: int) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    with httpx2.Client(base_url=url, timeout=READY_TIMEOUT_SECONDS) as client:
        while True:
            answer = client.get("/api/v1/status")
            if answer.status_code == 200 and answer.json()["shards"] == shards:
                return
            if time.monotonic() > deadline:
                raise BenchmarkFailed(
                    f"{shards} shards are not read within {READY_TIMEOUT_SECONDS:.0f} s: "
                    f"{answer.text}"
                )
            time.sleep(PAUSE_SECONDS)


def pin(pid: int) -> None:
    """All threads of the process on one core."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {SERVED_CORE})


def peak_bytes(pid: int) -> int:
    """The largest resident set that the process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def draw_shard(drawn: random.Random, extent: Extent) -> tuple[str, int]:
    """A stream and the number of one of its shards."""
    number = drawn.randrange(extent.shards)
    return f"stream-{number // SHARDS_PER_STREAM:04}", number % SHARDS_PER_STREAM


def make_lookup(drawn: random.Random, extent: Extent) -> bytes:
    """A request for one shard."""
    stream, number = draw_shard(drawn, extent)
    return _request(b"GET", f"/api/v1/streams/{stream}/shards/{number}")


async def _ask_all(host: str, port: int, extent: Extent) -> list[Rate]:
    drawn = random.Random(1)
    shard = partial(draw_shard, drawn, extent)

    def many() -> bytes:
        named = [
            dict(zip(("stream", "shard"), shard(), strict=True)) for _ in range(SHARDS_PER_LOOKUP)
        ]
        return _request(b"POST", "/api/v1/shards:lookup", orjson.dumps({"shards": named}))

    def near() -> bytes:
        stream, number = shard()
        place = f"stream={stream}&shard={number}&location=/a/r{drawn.randrange(1, 50)}"
        return _request(b"GET", f"/api/v1/nearest?{place}")

    return [
        await ask(what, host, port, make, extent.seconds, clients)
        for what, make, clients in (
            ("one shard", partial(make_lookup, drawn, extent), CONNECTIONS),
            (f"{SHARDS_PER_LOOKUP} shards at once", many, CONNECTIONS_FOR_MANY),
            ("the nearest replica", near, CONNECTIONS),
        )
    ]


def _request(method: bytes, target: str, body: bytes = b"") -> bytes:
    head = method + b" " + target.encode() + b" HTTP/1.1\r\nHost: localhost\r\n"
    if body:
        head += b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    return head + b"\r\n" + body


async def ask(what: str, host: str, port: int, make: Any, seconds: float, clients: int) -> Rate:
    """Clients that ask again as soon as they have an answer."""
    took: list[float] = []
    deadline = time.perf_counter() + seconds

    async def client() -> None:
        reader, writer = await asyncio.open_connection(host, port)
        while (began := time.perf_counter()) < deadline:
            writer.write(make())
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            if b" 200 " not in head or length is None:
                raise BenchmarkFailed(f"{what}: {head.decode('latin-1')}")
            await reader.readexactly(int(length[1]))
            took.append(time.perf_counter() - began)
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(client() for _ in range(clients)))
    took.sort()
    return Rate(
        what,
        len(took) / seconds,
        1_000 * took[len(took) // 2],
        1_000 * took[len(took) * 99 // 100],
    )


async def commit_change(publisher: Publisher, written_at: dict[int, float], number: int) -> None:
    """Commit that a node is suspected, or up again, and pause until the next commit is due.
    `written_at` notes when, by the commit's sequence; `number` counts the changes from 0."""
    verdict = Liveness.UP if number % 2 else Liveness.SUSPECT
    now = time.time_ns() // 1_000_000
    change = NodeChanged(now, CHANGED_NODE, "a", 2 + number, verdict)
    written_at[publisher.committer.sequence + 1] = time.perf_counter()
    await asyncio.to_thread(publisher.apply, [change], now)
    await asyncio.sleep(COMMIT_SECONDS)


def body(found: Found) -> dict[str, Any]:
    """For `--output json`."""
    return asdict(found)


def show(console: Console, found: Found) -> None:
    """As tables."""
    extent = found.extent
    console.print(
        f"{extent.shards:,} shards on {extent.nodes:,} nodes: ready after "
        f"{found.ready_seconds:.1f} s, resident set {found.resident_bytes >> 20} MiB, at most "
        f"{found.peak_bytes >> 20} MiB"
    )
    show_rates(console, found.rates)


def show_rates(console: Console, rates: Sequence[Rate]) -> None:
    """As a table."""
    rows = [
        (each.what, f"{each.per_second:,.0f}", f"{each.median_ms:.1f}", f"{each.p99_ms:.1f}")
        for each in rates
    ]
    print_table(console, ("requests", "a second", "median ms", "p99 ms"), rows)
