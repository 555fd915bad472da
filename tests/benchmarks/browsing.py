"""The console on a million shards: what each page takes, and what open pages take from lookups.

    write ──▶ placer console ──▶ each page alone ──▶ lookups alone ──▶ lookups beside open pages

The state is that of `serving`. A viewer is a page with its socket, as a browser keeps it; beside
the lookups a node changes each second, which every open page is told of.
"""

import asyncio
import random
import re
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count, cycle, islice
from typing import Any

import httpx2
import orjson
import psutil
import socketio
from rich.console import Console

from streaming.cli.render.report import print_table
from streaming.runtime import EmbeddedBroker
from tests.benchmarks.processes import BenchmarkFailed, cpu_seconds
from tests.benchmarks.recovering import Tell
from tests.benchmarks.serving import (
    COMMIT_SECONDS,
    CONNECTIONS,
    SHOWN_TIMEOUT_SECONDS,
    Extent,
    Rate,
    Serving,
    ask,
    commit_change,
    make_lookup,
    peak_bytes,
    pin,
    show_rates,
    started,
    write,
)
from tests.builders.published_state import Publisher

# Each with what its content says where all is well, as it stands in the answer.
PAGES = {
    "/": "Topology",
    "/nodes": "/nodes/n7",
    "/locations": "/a/r7",
    "/streams": "stream-0003",
    "/shards": "/streams/stream-0000/shards/7",
    "/nodes/n7": "What it holds",
    "/streams/stream-0003": "What it asks for",
    "/streams/stream-0003/shards/7": "Replicas in the topology",
    "/moves": "In flight",
    "/requests": "Ask for something",
    "/what-if": "Suppose that",
    "/alerts": "What the reconciler told people",
}
# The first computes what the later ones share until the next commit.
LOOKS = 5
# As many open pages as one address may have.
VIEWERS = 50
# One address may ask for five pages a second, beyond a burst of a hundred.
PAGE_SECONDS = 0.2
# A page that takes longer is given up by the console itself.
ANSWER_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Look:
    """What one page took: wall-clock time at its reader, CPU time of the console."""

    page: str
    answer_bytes: int
    first_ms: float
    median_ms: float
    worst_ms: float
    first_cpu_ms: float
    median_cpu_ms: float


@dataclass(frozen=True, slots=True)
class Shown:
    """How long after their commits the pages were told of them, and how many went by unsaid,
    because a later one was told in their place."""

    what: str
    commits: int
    told: int
    median_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Found:
    """The start, each page, lookups without and beside viewers, and commits on the viewers' pages
    without and beside lookups. `resident_bytes`: when ready; `peak_bytes`: at the end of all."""

    extent: Extent
    ready_seconds: float
    resident_bytes: int
    peak_bytes: int
    looks: tuple[Look, ...]
    rates: tuple[Rate, ...]
    shown: tuple[Shown, ...]


def measure(extent: Extent, broker: EmbeddedBroker, tell: Tell) -> Found:
    """Write, start, look, view."""
    tell("decide and write")
    publisher = write(extent, broker.bootstrap_servers)
    tell("start")
    with started("console", extent, broker) as serving:
        looks = _look_at_all(serving, tell)
        pin(serving.pid)
        lookup = partial(make_lookup, random.Random(1), extent)
        tell("lookups")
        alone = asyncio.run(
            ask("one shard", serving.host, serving.port, lookup, extent.seconds, CONNECTIONS)
        )
        tell(f"lookups beside {VIEWERS} viewers")
        beside, shown = asyncio.run(_ask_beside(serving, publisher, lookup, extent.seconds))
        return Found(
            extent,
            serving.ready_seconds,
            serving.resident_bytes,
            peak_bytes(serving.pid),
            tuple(looks),
            (alone, beside),
            shown,
        )


def _look_at_all(serving: Serving, tell: Tell) -> list[Look]:
    process = psutil.Process(serving.pid)
    url = f"http://{serving.host}:{serving.port}"
    with httpx2.Client(base_url=url, timeout=ANSWER_TIMEOUT_SECONDS) as client:
        found = []
        for page, content in PAGES.items():
            tell(f"look at {page}")
            found.append(_look_at(client, process, page, content))
        return found


def _look_at(client: httpx2.Client, process: psutil.Process, page: str, content: str) -> Look:
    took, cpu, size = [], [], 0
    for _ in range(LOOKS):
        cpu_before, began = cpu_seconds(process), time.perf_counter()
        answer = client.get(page)
        took.append(1_000 * (time.perf_counter() - began))
        cpu.append(1_000 * (cpu_seconds(process) - cpu_before))
        _check(page, answer, content)
        size = len(answer.content)
        time.sleep(PAGE_SECONDS)
    middle = LOOKS // 2
    return Look(page, size, took[0], sorted(took)[middle], max(took), cpu[0], sorted(cpu)[middle])


def _check(page: str, answer: Any, content: str) -> None:
    if answer.status_code != 200 or content not in answer.text:
        raise BenchmarkFailed(f"{page} answers {answer.status_code}, without '{content}'")


@dataclass(slots=True)
class _Commits:
    """When each commit was written, and how long after it pages were told, in ms."""

    at: dict[int, float] = field(default_factory=dict)
    delays: list[float] = field(default_factory=list)

    @property
    def last(self) -> int:
        return max(self.at, default=0)

    def take_shown(self, what: str) -> Shown:
        """The figures of the delays since the last call."""
        delays = sorted(self.delays)
        median, p99 = delays[len(delays) // 2], delays[len(delays) * 99 // 100]
        shown = Shown(what, len(self.at), len(delays), median, p99)
        self.at, self.delays = {}, []
        return shown


class _Viewer:
    """A page as a browser has it open."""

    def __init__(self, commits: _Commits) -> None:
        self._commits, self.seen = commits, 0
        self._socket = socketio.AsyncClient(reconnection=False)
        self._socket.on("update", self._take)

    def _take(self, update: Any) -> None:
        now = time.perf_counter()
        for number in re.findall(rb'"sequence":(\d+)', orjson.dumps(update)):
            sequence = int(number)
            if sequence > self.seen and sequence in self._commits.at:
                self.seen = sequence
                self._commits.delays.append(1_000 * (now - self._commits.at[sequence]))

    async def open(self, client: httpx2.AsyncClient, url: str, page: str) -> None:
        """Ask for the page, then connect its socket."""
        answer = await client.get(page)
        _check(page, answer, PAGES[page])
        named = re.search(r"'client_id': '([0-9a-f-]+)'", answer.text)
        if named is None:
            raise BenchmarkFailed(f"{page} names no socket")
        query = f"client_id={named[1]}&next_message_id=0&implicit_handshake=true"
        await self._socket.connect(
            f"{url}?{query}&tab_id={named[1]}&document_id={named[1]}",
            headers={"Origin": url},
            transports=["websocket"],
            socketio_path="/_nicegui_ws/socket.io",
        )

    def check(self) -> None:
        """Raise BenchmarkFailed where the console has closed the socket."""
        if not self._socket.connected:
            raise BenchmarkFailed("the console has closed the socket of an open page")

    async def close(self) -> None:
        """Leave the page."""
        await self._socket.disconnect()


async def _ask_beside(
    serving: Serving, publisher: Publisher, lookup: Any, seconds: float
) -> tuple[Rate, tuple[Shown, ...]]:
    url = f"http://{serving.host}:{serving.port}"
    commits, changes = _Commits(), count()
    async with AsyncExitStack() as owned:
        client = await owned.enter_async_context(
            httpx2.AsyncClient(base_url=url, timeout=ANSWER_TIMEOUT_SECONDS)
        )
        viewers = []
        for _, page in zip(range(VIEWERS), cycle(PAGES), strict=False):
            viewer = _Viewer(commits)
            owned.push_async_callback(viewer.close)
            await viewer.open(client, url, page)
            viewers.append(viewer)
            await asyncio.sleep(PAGE_SECONDS)
        await _commit_each_second(publisher, commits, changes, seconds)
        await _wait_shown(viewers, commits)
        alone = commits.take_shown("without lookups")
        what = f"one shard, beside {VIEWERS} viewers"
        rate, _ = await asyncio.gather(
            ask(what, serving.host, serving.port, lookup, seconds, CONNECTIONS),
            _commit_each_second(publisher, commits, changes, seconds),
        )
        await _wait_shown(viewers, commits)
    return rate, (alone, commits.take_shown("beside as many lookups as it answers"))


async def _commit_each_second(
    publisher: Publisher, commits: _Commits, changes: Iterator[int], seconds: float
) -> None:
    """Make changes for so long; `changes` numbers them."""
    for number in islice(changes, int(seconds / COMMIT_SECONDS)):
        await commit_change(publisher, commits.at, number)


async def _wait_shown(viewers: list[_Viewer], commits: _Commits) -> None:
    deadline = time.monotonic() + SHOWN_TIMEOUT_SECONDS
    while any(viewer.seen < commits.last for viewer in viewers):
        for viewer in viewers:
            viewer.check()
        if time.monotonic() > deadline:
            left = sum(viewer.seen < commits.last for viewer in viewers)
            raise BenchmarkFailed(
                f"{left} of {len(viewers)} pages were not told of commit {commits.last} within "
                f"{SHOWN_TIMEOUT_SECONDS:.0f} s"
            )
        await asyncio.sleep(PAGE_SECONDS)


def body(found: Found) -> dict[str, Any]:
    """For `--output json`."""
    return asdict(found)


def show(console: Console, found: Found) -> None:
    """As tables."""
    extent = found.extent
    console.print(
        f"{extent.shards:,} shards on {extent.nodes:,} nodes: ready after "
        f"{found.ready_seconds:.1f} s, resident set {found.resident_bytes >> 20} MiB, with "
        f"{VIEWERS} viewers at most {found.peak_bytes >> 20} MiB"
    )
    rows = [
        (
            each.page,
            f"{each.answer_bytes / 1024:,.0f}",
            f"{each.first_ms:,.0f}",
            f"{each.median_ms:,.0f}",
            f"{each.worst_ms:,.0f}",
            f"{each.first_cpu_ms:,.0f}",
            f"{each.median_cpu_ms:,.0f}",
        )
        for each in found.looks
    ]
    headings = ("ms of a page", "KiB", "first", "median", "worst", "CPU first", "CPU median")
    print_table(console, headings, rows)
    show_rates(console, found.rates)
    for shown in found.shown:
        console.print(
            f"{VIEWERS} pages were told of {shown.commits} commits, one a second, {shown.what}: "
            f"{shown.told} times, median {shown.median_ms:,.0f} ms after the commit, p99 "
            f"{shown.p99_ms:,.0f} ms"
        )
