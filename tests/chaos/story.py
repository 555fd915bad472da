"""A system under load in which something is killed again and again, and what became of it all.

Requests, heartbeats and moves go on without a pause; nodes die and come back; at random moments a
kill -9 hits the driver, Spark's JVM, its Python workers, all of them, or the broker. What ends is
started again, as an orchestrator does. A pair has one that decides and one that stands by: the
active one is killed, stopped in order, or paused until the other has decided something. On a Spark
cluster its executors and workers are killed and paused as well: it goes on without another start.

In the end every request has one answer, the fleet is whole, and the journal replayed through the
core gives every record again, byte for byte.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import psutil

from schemas.topics import NODES
from streaming.administration import apply_topics
from streaming.runtime import EmbeddedBroker
from streaming.simulator import Fleet
from streaming.simulator.fleet import Executor, FleetNode
from tests.chaos.executors import TOPOLOGY_SHARDS, Executors, start_executors
from tests.integration.conftest import System
from tests.systems.application import Application
from tests.systems.topics import Requests
from tests.systems.waiting import until

# Enough that every kill meets batches with something in them, and that the records of fifty kills
# can still be judged within seconds.
REQUESTS_PER_SECOND = 8
UNDER_LOAD_SECONDS_MAX = 3.0
FLEET = [FleetNode(f"n{zone}{number}", f"/z{zone}") for zone in "abc" for number in range(5)]
# One start of Spark and of a broker on a machine that does other work beside.
RECOVERY_SECONDS_MAX = 300.0
# What all fifty kills have left to do is done by then.
REST_TIMEOUT_SECONDS = 300.0
# A killed broker is let in again when its session has run out; the default of 9 s only waits.
BROKER = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


@dataclass
class Outcome:
    """Result of a run: seconds to the first new decision by part, and the faults found."""

    recoveries: dict[str, list[float]] = field(default_factory=dict)
    asked: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    replayed: str = ""


@dataclass(frozen=True)
class Story:
    """Says how often what is killed, in an order drawn by `seed`; `pair`: with a standby;
    `cluster`: with executors on a Spark cluster; `parts`: only these."""

    kills: int
    seed: int
    pair: bool = False
    cluster: bool = False
    parts: Sequence[str] | None = None


class Chaos:
    """One run: a broker, the application on it, and what is done to them."""

    def __init__(
        self, broker: EmbeddedBroker, system: System, executors: Executors | None, seed: int
    ) -> None:
        """`executors`: of the application, where they are processes of a cluster."""
        self._broker, self._system, self._executors = broker, system, executors
        self._choice = random.Random(seed)
        self._application = self._launch()
        self._dead: list[str] = []
        self.outcome = Outcome()
        self.parts: dict[str, Callable[[], None]] = {
            "driver": self._kill_driver,
            "jvm": self._kill_jvm,
            "workers": self._kill_workers,
            "all of it": self._kill_all,
            "broker": self._kill_broker,
        }
        if executors is not None:
            # They are its executors' there.
            del self.parts["workers"]
            self.parts |= executors.parts

    def _launch(self) -> Application:
        return self._system.launch(**self._settings())

    def _settings(self) -> dict[str, str]:
        """The environment of the next application."""
        return {} if self._executors is None else self._executors.settings()

    def _mend(self) -> None:
        """Return when nothing is missing from the last kill."""
        if self._executors is not None:
            self._application.wait_ready()
            self._executors.mend([self._application], self._application)

    def _is_survived(self, part: str) -> bool:
        """Whether the application has to go on as it is."""
        return self._executors is not None and part in self._executors.parts

    @property
    def decided(self) -> int:
        """Streams with an answer."""
        return len(self._system.outputs.latest("decisions.v1"))

    def order(self, kills: int, chosen: Sequence[str] | None = None) -> list[str]:
        """Draw the part that each kill hits: all equally often, in random order."""
        parts = [name for name in self.parts if chosen is None or name in chosen]
        names = [name for name, _ in zip(cycle(parts), range(kills), strict=False)]
        self._choice.shuffle(names)
        return names

    def kill(self, part: str, fleet: Fleet) -> None:
        """One kill at a random moment; returns when a new decision has come."""
        self._mend()
        self._trouble(fleet)
        threading.Event().wait(self._choice.uniform(0, UNDER_LOAD_SECONDS_MAX))
        started, before = time.monotonic(), self._application
        self.parts[part]()
        if part != "broker" and not self._is_survived(part):
            assert self._application.wait_end() != 0
        self.go_on()
        self.outcome.recoveries.setdefault(part, []).append(time.monotonic() - started)
        if self._is_survived(part) and self._application is not before:
            self.outcome.faults.append(f"{part}: the application ended: {before.printed[-500:]}")

    def go_on(self) -> None:
        """Return when a new decision has come; an application that has ended is started again."""
        before = self.decided
        try:
            until(lambda: self._goes_on(before), "a new decision", RECOVERY_SECONDS_MAX)
        except AssertionError as error:
            error.add_note(self._application.output)
            raise

    def finish(self, fleet: Fleet, requests: Requests) -> None:
        """Let everything come to rest, stop, and judge what is on the topics."""
        for node in self._dead:
            fleet.revive(node)
        requests.close()
        outputs = self._system.outputs
        until(lambda: self.decided >= requests.asked, "all are answered", REST_TIMEOUT_SECONDS)
        until(
            lambda: not outputs.latest("violations.v1") and not outputs.open_moves,
            "the fleet is whole",
            REST_TIMEOUT_SECONDS,
        )
        self._stop()
        self._judge(requests.asked)

    def _stop(self) -> None:
        self._application.send(signal.SIGTERM)
        assert self._application.wait_end() == 0, self._application.output

    def _goes_on(self, before: int) -> bool:
        if not self._application.running:
            self._application = self._launch()
        return self.decided > before

    def _trouble(self, fleet: Fleet) -> None:
        """A node dies or returns, so that moves are under way."""
        if self._dead and self._choice.random() < 0.5:
            fleet.revive(self._dead.pop(0))
        elif len(self._dead) < 2:
            self._dead.append(self._choice.choice(fleet.alive))
            fleet.kill(self._dead[-1])

    def _kill_driver(self) -> None:
        self._application.send(signal.SIGKILL)

    def _kill_jvm(self) -> None:
        self._application.jvm.kill()

    def _kill_all(self) -> None:
        self._application.kill()

    def _kill_workers(self) -> None:
        for process in self._application.named("pyspark.daemon", "worker_daemon"):
            process.kill()

    def _kill_broker(self) -> None:
        process = psutil.Process(self._broker.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        self._broker.stop()
        self._broker.start()

    def _judge(self, asked: int) -> None:
        outputs, outcome = self._system.outputs, self.outcome
        outcome.asked = asked
        answered = outputs.latest("decisions.v1")
        outcome.lost = [f"s{n}" for n in range(asked) if f"s{n}" not in answered]
        seen: set[object] = set()
        for record in outputs.of("decisions.v1"):
            said = (record.key, record.value["revision"])
            if said in seen:
                outcome.doubled.append(f"{record.key} revision {said[1]}")
            seen.add(said)
        outcome.faults = outputs.faults() + outputs.log().final_violations()
        report = self._system.replay()
        outcome.faults += [f"replay: {each}" for each in report.differences]
        outcome.replayed = (
            f"{report.entries} commits replayed, {report.compared} of {report.records} records "
            f"compared, {len(report.differences)} differ, digest {report.digest[:12]}"
        )


class PairChaos(Chaos):
    """The same with a standby: times are those until the other one has decided something."""

    def __init__(
        self, broker: EmbeddedBroker, system: System, executors: Executors | None, seed: int
    ) -> None:
        self._started = 0
        self._running: dict[str, Application] = {}
        super().__init__(broker, system, executors, seed)
        self._launch()
        self.parts.pop("workers", None)
        self.parts |= {"paused": self._pause, "stopped": self._stop_active}
        self._paused: Application | None = None

    @property
    def epoch(self) -> int:
        """Writer epoch of the last commit."""
        return int(self._system.outputs.marker["writer_epoch"])

    def kill(self, part: str, fleet: Fleet) -> None:
        """One kill at a random moment, once the other process stands by."""
        self._wait_for_pair()
        self._trouble(fleet)
        threading.Event().wait(self._choice.uniform(0, UNDER_LOAD_SECONDS_MAX))
        before, started, stopped = self.epoch, time.monotonic(), self._application
        self.parts[part]()
        if part == "broker" or self._is_survived(part):
            self.go_on()
            if self._is_survived(part) and self.epoch != before:
                self.outcome.faults.append(f"{part}: taken over without need, epoch {self.epoch}")
        else:
            outputs = self._system.outputs
            until(lambda: self.epoch > before, "the other one is active", RECOVERY_SECONDS_MAX)
            first = self.decided
            until(lambda: self.decided > first, "it decides", RECOVERY_SECONDS_MAX)
            if self.epoch > before + 1:
                self.outcome.faults.append(f"{part}: epochs {before} to {outputs.marker}")
        self.outcome.recoveries.setdefault(part, []).append(time.monotonic() - started)
        if self._paused is not None:
            self._paused.send(signal.SIGCONT)
            assert self._paused.wait_end() == 3, self._paused.output
            self._paused = None
        if part == "stopped":
            # It has released its role, and takes a while to end its queries and Spark.
            assert stopped.wait_end() == 0, stopped.output

    def _launch(self) -> Application:
        name = f"p{self._started}"
        self._started += 1
        self._running[name] = self._system.launch(
            "--ha", PLACER_STANDBY__INSTANCE=name, **self._settings()
        )
        return self._running[name]

    def _goes_on(self, before: int) -> bool:
        return self.decided > before

    def _wait_for_pair(self) -> None:
        """Return when one is active and the other stands by, warm."""
        self._running = {name: each for name, each in self._running.items() if each.running}
        while len(self._running) < 2:
            self._launch()
        name = str(self._system.outputs.marker["instance"])
        until(lambda: name in self._running, "the active one runs")
        self._application = self._running[name]
        others = [each for each in self._running.values() if each is not self._application]
        for each in others:
            each.wait_standing_by()
        if self._executors is not None:
            self._executors.mend([*self._running.values()], self._application)

    def _pause(self) -> None:
        self._paused = self._application
        self._application.send(signal.SIGSTOP)

    def _stop_active(self) -> None:
        self._application.send(signal.SIGTERM)

    def _stop(self) -> None:
        self._wait_for_pair()
        others = [each for each in self._running.values() if each is not self._application]
        for each in (*others, self._application):
            each.send(signal.SIGTERM)
            assert each.wait_end() == 0, each.output


@contextmanager
def stage(scratch: Path, port: int, story: Story) -> Iterator[tuple[System, Chaos]]:
    """A broker that keeps its data, with topics on it, and the application."""
    with ExitStack() as stack:
        executors = None
        if story.cluster:
            executors = stack.enter_context(start_executors(scratch, 2 if story.pair else 1))
        broker = stack.enter_context(EmbeddedBroker(port, scratch / "broker", BROKER))
        system = System(broker.bootstrap_servers, scratch)
        stack.callback(system.close)
        if story.cluster:
            apply_topics(system.bootstrap, system.prefix, 1, partitions={NODES: TOPOLOGY_SHARDS})
        made = (PairChaos if story.pair else Chaos)(broker, system, executors, story.seed)
        yield system, made


def play(scratch: Path, port: int, story: Story, tell: Callable[[str], None]) -> Outcome:
    """Kill so often, let everything come to rest, and say what was seen."""
    with (
        stage(scratch, port, story) as (system, chaos),
        Fleet(system.bootstrap, system.prefix, FLEET, 0.5) as fleet,
        Executor(system.bootstrap, system.prefix, 0.5),
    ):
        requests = Requests(system.inputs, REQUESTS_PER_SECOND)
        chaos.go_on()
        parts: Sequence[str] = chaos.order(story.kills, story.parts)
        for number, part in enumerate(parts, start=1):
            try:
                chaos.kill(part, fleet)
            except AssertionError as error:
                error.add_note(f"kill {number} of {story.kills}: {part}")
                raise
            took = chaos.outcome.recoveries[part][-1]
            tell(f"{number:3} of {story.kills}  {part:10} {took:6.1f} s  {chaos.decided} decisions")
        chaos.finish(fleet, requests)
        return chaos.outcome
