"""The demo: a real broker, the real application and a simulated fleet, told as a story.

Each scene changes the world and waits until the output topics show what should follow; nothing is
looked up inside the application. `placer demo` shows it and turns the closing audit into an exit
status.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import orjson

from placement.configuration import Configuration
from schemas.envelope import encode_headers
from schemas.topics import DEFAULT_PREFIX, full_name
from streaming.admin import apply_topics
from streaming.audit import AUDITED, audit
from streaming.broker import EmbeddedBroker
from streaming.clients import make_producer
from streaming.demo.stage import (
    DEAD_AFTER_SECONDS,
    SCENE_TIMEOUT_SECONDS,
    Application,
    SceneFailed,
    World,
)
from streaming.executor import Executor
from streaming.fleet import Fleet, FleetNode
from streaming.records import CommittedReader

HEARTBEAT_SECONDS = 0.5
# Long enough to be killed while moves are under way, short enough to watch.
MOVE_SECONDS = 1.5
# Name, shards, replication factor, placement_policies.
STREAMS: tuple[tuple[str, int, int, str | None], ...] = (
    ("default", 2, 3, ""),
    ("exclusive-shards", 2, 3, "shard=exclusive"),
    ("exclusive-racks", 2, 4, "node=exclusive;shard=balanced"),
    ("impossible", 1, 7, "node=exclusive"),
    # Streams that name no policy: the default strategy spreads them.
    *((f"events-{number}", 4, 3, None) for number in range(12)),
)


@dataclass(frozen=True, slots=True)
class Report:
    """How it ended: audit findings, counts and latencies in seconds."""

    findings: list[str]
    counts: dict[str, int]
    seconds: dict[str, float]


class Demo:
    """The stage: broker, application, fleet, executor and a watcher of the output topics."""

    def __init__(self, tell: Callable[[str], None], stop: threading.Event) -> None:
        """`tell` receives the story's lines; `stop` ends it between two looks."""
        self.world = World()
        self.seconds: dict[str, float] = {}
        self._tell, self._stop = tell, stop
        self._owned = ExitStack()
        self._closing = threading.Event()
        self._failure: Exception | None = None

    def __enter__(self) -> Self:
        self._tell("starting a Kafka broker")
        scratch = Path(self._owned.enter_context(TemporaryDirectory(prefix="placer-demo-")))
        broker = self._owned.enter_context(EmbeddedBroker())
        self.bootstrap = broker.bootstrap_servers
        apply_topics(self.bootstrap, DEFAULT_PREFIX, 1)
        self._application = Application(self.bootstrap, scratch)
        self._owned.callback(self._application.stop)
        self._producer = make_producer(self.bootstrap)
        reader = CommittedReader(self.bootstrap, DEFAULT_PREFIX, AUDITED)
        watcher = threading.Thread(target=self._watch, args=(reader,), daemon=True)
        watcher.start()
        self._owned.callback(watcher.join)
        self._owned.callback(self._closing.set)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._owned.close()

    def play(self) -> Report:
        """All scenes and the audit. Raises SceneFailed; KeyboardInterrupt when stopped."""
        with self._timed("application start → ready"):
            self._tell("starting the application on Spark")
            self._application.start()
            self._application.wait_ready()
        with self._fleet() as fleet, Executor(self.bootstrap, DEFAULT_PREFIX, MOVE_SECONDS):
            self._create_streams()
            self._node_dies_and_returns(fleet)
            self._rack_dies_and_application_is_killed(fleet)
            self._until("everything is at rest", self._at_rest)
        return self._close()

    def _fleet(self) -> Fleet:
        self._tell("12 nodes in 3 zones × 2 racks register and send heartbeats")
        nodes = [
            FleetNode(f"node-{zone}{rack}{number}", f"/zone{zone}/rack{rack}")
            for zone in (1, 2, 3)
            for rack in (1, 2)
            for number in (1, 2)
        ]
        return Fleet(self.bootstrap, DEFAULT_PREFIX, nodes, HEARTBEAT_SECONDS)

    def _create_streams(self) -> None:
        self._until("all nodes are up", lambda: self._liveness_counts().get("up", 0) == 12)
        latencies = []
        for name, shards, factor, policies in STREAMS:
            appended_at = self._create(name, shards, factor, policies)
            self._until(f"{name} is decided", partial(self._is_decided, name))
            latencies.append(self.world.first_seen["decisions.v1", name] - appended_at)
            self._tell(_decided(self.world.decisions[name]))
        self.seconds["stream appended → decision readable, p50"] = median(latencies)
        self.seconds["stream appended → decision readable, max"] = max(latencies)

    def _node_dies_and_returns(self, fleet: Fleet) -> None:
        victim = self._busiest()
        self._tell(f"{victim} falls silent")
        self._lose({victim}, lambda: fleet.kill(victim))
        self._until(f"{victim} is replaced everywhere", lambda: self._healed({victim}))
        before = len(self.world.moves)
        self._tell(f"{victim} returns; nothing should move")
        fleet.revive(victim)
        self._until(f"{victim} is up", lambda: self._is(victim, "up"))
        if len(self.world.moves) != before:
            raise SceneFailed(f"{victim} returned and {len(self.world.moves) - before} moves began")

    def _rack_dies_and_application_is_killed(self, fleet: Fleet) -> None:
        rack = "/zone2/rack1"
        lost = {node_id for node_id in fleet.node_ids if fleet.location(node_id) == rack}
        self._tell(f"{rack} loses power: {', '.join(sorted(lost))}")
        self._lose(lost, lambda: fleet.kill_domain(rack))
        self._tell(f"kill -9 of the application, {len(self.world.open_moves)} moves under way")
        with self._timed("kill -9 → ready again"):
            self._application.kill()
            self._application.start()
            self._application.wait_ready()
        with self._timed("ready again → decision of a new stream"):
            self._create("after-the-crash", 4, 3, None)
            name = "after-the-crash"
            self._until("a new stream is decided", partial(self._is_decided, name))
        self._tell(_decided(self.world.decisions[name]))
        self._until(f"{rack} is replaced everywhere", lambda: self._healed(lost))

    def _lose(self, lost: set[str], cut: Callable[[], object]) -> None:
        """Silence nodes and wait for the first moves away from them."""
        what = " and ".join(sorted(lost))
        started = time.time()
        cut()
        self._until(f"{what} dead", lambda: all(self._is(node, "dead") for node in lost))
        found = f"{what} silent → dead and first move (timer {DEAD_AFTER_SECONDS:g} s)"
        self._until("moves are issued", lambda: bool(self.world.open_moves))
        self.seconds[found] = time.time() - started
        for move in self.world.open_moves[:3]:
            self._tell(_moving(move))
        more = len(self.world.open_moves) - 3
        if more > 0:
            self._tell(f"… and {more} more")

    def _close(self) -> Report:
        with CommittedReader(self.bootstrap, DEFAULT_PREFIX, AUDITED) as reader:
            records = reader.read_to_end()
        findings = audit(records, Configuration())
        outcomes = [each["outcome"] for each in self.world.decisions.values()]
        counts = {
            "streams placed": sum(outcome != "rejected" for outcome in outcomes),
            "streams rejected": outcomes.count("rejected"),
            "shards": len(self.world.assignments),
            "moves completed": self._moves("completed"),
            "moves cancelled or superseded": self._moves("cancelled") + self._moves("superseded"),
            "records read back": len(records),
        }
        return Report(findings, counts, self.seconds)

    # Looking at the world

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SCENE_TIMEOUT_SECONDS
        while not holds():
            if self._failure is not None:
                raise self._failure
            if self._stop.wait(0.02):
                raise KeyboardInterrupt
            if time.monotonic() > deadline:
                raise SceneFailed(f"not within {SCENE_TIMEOUT_SECONDS:g} s: {what}")

    def _is_decided(self, name: str) -> bool:
        return name in self.world.decisions

    def _is(self, node_id: str, liveness: str) -> bool:
        return self.world.nodes.get(node_id, {}).get("liveness") == liveness

    def _liveness_counts(self) -> dict[str, int]:
        seen = [view["liveness"] for view in list(self.world.nodes.values())]
        return {liveness: seen.count(liveness) for liveness in set(seen)}

    def _healed(self, lost: set[str]) -> bool:
        return not self.world.holders(lost) and self._at_rest()

    def _at_rest(self) -> bool:
        needy = any(
            violation["rule"] == "replicas"
            for record in list(self.world.violations.values())
            for violation in record["violations"]
        )
        return not self.world.open_moves and not needy

    def _busiest(self) -> str:
        held = [n for each in self.world.assignments.values() for n in each["replicas"]]
        return max(sorted(set(held)), key=held.count)

    def _moves(self, state: str) -> int:
        return sum(move["state"] == state for move in self.world.moves.values())

    def _create(self, name: str, shards: int, factor: int, policies: str | None) -> float:
        """Append a StreamCreated; returns the broker's append time in seconds."""
        body = {
            "stream": name,
            "sequence": 1,
            "shards": shards,
            "replication_factor": factor,
            "placement_policies": policies,
        }
        appended: list[int] = []
        headers = encode_headers(
            "StreamCreated",
            cell="demo",
            id=f"demo-{name}",
            subject=name,
            time_ms=time.time_ns() // 1_000_000,
        )
        self._producer.produce(
            full_name("streams.v1", DEFAULT_PREFIX),
            orjson.dumps(body),
            name,
            headers=list(headers),
            on_delivery=lambda _error, message: appended.append(message.timestamp()[1]),
        )
        self._producer.flush(SCENE_TIMEOUT_SECONDS)
        if not appended:
            raise SceneFailed(f"the broker did not take the creation of {name}")
        return appended[0] / 1000

    def _watch(self, reader: CommittedReader) -> None:
        try:
            with reader:
                while not self._closing.is_set():
                    records = reader.poll(0.1)
                    seen_at = time.time()
                    for record in records:
                        self.world.take(record, seen_at)
        except Exception as error:  # noqa: BLE001 - raised again where the world is looked at
            self._failure = error

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds[what] = time.monotonic() - started


def _decided(decision: dict[str, Any]) -> str:
    spec = decision["spec"]
    shape = f"{spec['shards']} × {spec['replication_factor']}"
    asked = spec.get("placement_policies")
    wish = "" if asked is None else f" '{asked}'" if asked else " (Timeplus defaults)"
    why = "".join(f": {reason['message']}" for reason in decision["reasons"])
    return f"stream {decision['stream']} {shape}{wish} → {decision['outcome']}{why}"


def _moving(move: dict[str, Any]) -> str:
    where = f"{move['stream']}/{move['shard']}"
    ways = f"{move.get('remove', 'nothing')} → {move.get('add', 'nothing')}"
    return f"move {where}: {ways} ({move['cause']})"
