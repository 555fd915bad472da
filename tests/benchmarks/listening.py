"""Thousands of open streams of events: how soon a commit is on all of them, and what they take.

    write ──▶ placer api ◀── streams, 20 of each principal ; a node changes each second

Principals are named by a trusted proxy, which the benchmark stands for. A stream is a plain socket;
server and clients are processes of their own.
"""

import asyncio
import re
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil
from rich.console import Console

from streaming.cli.render.report import print_table
from streaming.runtime import EmbeddedBroker
from tests.benchmarks.processes import BenchmarkFailed, cpu_seconds
from tests.benchmarks.recovering import Tell
from tests.benchmarks.serving import (
    SHOWN_TIMEOUT_SECONDS,
    Extent,
    Serving,
    commit_change,
    peak_bytes,
    started,
    write,
)
from tests.builders.published_state import Publisher

# As many as one principal may have.
STREAMS_EACH = 20
# Beyond a limit that is asked for, what listens answers 429 and the benchmark fails.
STREAMS = 10_000
STREAMS_QUICK = 500
COMMITS = 10
# So many connect at once; the others would only wait in the backlog.
CONNECTING = 100
# Who is served does not matter here; the fleet is that of a small cell.
EXTENT = Extent(10_000, 100, 0.0)


@dataclass(frozen=True, slots=True)
class Heard:
    """What the streams took. `told`: changes that have come, of all streams; delays are from before
    the commit was written until it was read, in ms; `last_ms`: the median of when the last stream
    had a commit; `stream_bytes`: of the server's memory for each; `cpu_ms`: of the server, for each
    commit."""

    streams: int
    principals: int
    commits: int
    told: int
    median_ms: float
    p99_ms: float
    last_ms: float
    stream_bytes: int
    peak_bytes: int
    cpu_ms: float


def measure(streams: int, broker: EmbeddedBroker, tell: Tell) -> Heard:
    """Write, start, open, listen."""
    tell("decide and write")
    publisher = write(EXTENT, broker.bootstrap_servers)
    tell("start")
    with started("api", EXTENT, broker, "--trusted-proxy", "127.0.0.1") as serving:
        tell(f"open {streams:,} streams")
        return asyncio.run(_listen(serving, publisher, streams, tell))


@dataclass(slots=True)
class _Delays:
    """When each commit was written, and when streams have read it, in ms after that."""

    at: dict[int, float] = field(default_factory=dict)
    by_commit: dict[int, list[float]] = field(default_factory=dict)

    def note(self, sequence: int) -> None:
        if sequence in self.at:
            took = 1_000 * (time.perf_counter() - self.at[sequence])
            self.by_commit.setdefault(sequence, []).append(took)


class _Stream:
    """One open stream of events."""

    def __init__(self, number: int, delays: _Delays) -> None:
        self._principal, self._delays = f"listener-{number // STREAMS_EACH}", delays
        self._task: asyncio.Task[None] | None = None
        self.fault: str | None = None

    async def open(self, serving: Serving) -> None:
        """Ask for it, and read on in a task. Raises BenchmarkFailed where it is refused."""
        reader, self._writer = await asyncio.open_connection(serving.host, serving.port)
        head = f"Host: localhost\r\nX-Forwarded-User: {self._principal}\r\n"
        self._writer.write(f"GET /api/v1/events HTTP/1.1\r\n{head}\r\n".encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer:
            raise BenchmarkFailed(f"a stream is refused: {answer.decode('latin-1')}")
        self._task = asyncio.get_running_loop().create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                found = re.match(rb"id: (\d+)", line)
                if found is not None:
                    self._delays.note(int(found[1]))
        except OSError as error:
            self.fault = str(error)
        else:
            self.fault = "the server has closed it"

    async def close(self) -> None:
        """Leave it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._writer.close()


async def _listen(serving: Serving, publisher: Publisher, streams: int, tell: Tell) -> Heard:
    process, delays = psutil.Process(serving.pid), _Delays()
    before_bytes = process.memory_info().rss
    listeners = [_Stream(number, delays) for number in range(streams)]
    async with AsyncExitStack() as owned:
        for first in range(0, streams, CONNECTING):
            some = listeners[first : first + CONNECTING]
            await asyncio.gather(*(each.open(serving) for each in some))
            for each in some:
                owned.push_async_callback(each.close)
        stream_bytes = (process.memory_info().rss - before_bytes) // streams
        tell(f"commit to {streams:,} streams")
        cpu = cpu_seconds(process)
        for number in range(COMMITS):
            await commit_change(publisher, delays.at, number)
        await _wait_told(listeners, delays)
        cpu_ms = 1_000 * (cpu_seconds(process) - cpu) / COMMITS
    took = sorted(each for found in delays.by_commit.values() for each in found)
    last = sorted(max(found) for found in delays.by_commit.values())
    return Heard(
        streams,
        -(-streams // STREAMS_EACH),
        COMMITS,
        len(took),
        took[len(took) // 2],
        took[len(took) * 99 // 100],
        last[len(last) // 2],
        stream_bytes,
        peak_bytes(serving.pid),
        cpu_ms,
    )


async def _wait_told(listeners: list[_Stream], delays: _Delays) -> None:
    deadline = time.monotonic() + SHOWN_TIMEOUT_SECONDS
    while (told := len(delays.by_commit.get(max(delays.at), ()))) < len(listeners):
        faults = [each.fault for each in listeners if each.fault is not None]
        if faults:
            raise BenchmarkFailed(f"{len(faults)} streams have ended: {faults[0]}")
        if time.monotonic() > deadline:
            raise BenchmarkFailed(
                f"{told} of {len(listeners)} streams were told of the last commit within "
                f"{SHOWN_TIMEOUT_SECONDS:.0f} s"
            )
        await asyncio.sleep(0.1)


def body(heard: Heard) -> dict[str, Any]:
    """For `--output json`."""
    return asdict(heard)


def show(console: Console, found: Heard) -> None:
    """As a table."""
    row = (
        f"{found.streams:,}",
        f"{found.principals:,}",
        f"{found.told:,} of {found.streams * found.commits:,}",
        f"{found.median_ms:,.0f}",
        f"{found.p99_ms:,.0f}",
        f"{found.last_ms:,.0f}",
        f"{found.stream_bytes / 1024:,.0f}",
        f"{found.peak_bytes >> 20:,}",
        f"{found.cpu_ms:,.0f}",
    )
    headings = (
        "streams",
        "principals",
        "told",
        "median ms",
        "p99 ms",
        "all ms",
        "KiB each",
        "peak MiB",
        "CPU ms a commit",
    )
    print_table(console, headings, [row])
