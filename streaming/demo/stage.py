"""Sets up a demo: a broker, the application as a process, and a watcher of both.

`StoryDemo` (`demo.story`) and `ScenarioDemo` are the two demos that `placer demo` plays on it.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Self

from placement.model import Configuration
from schemas.topics import ALERTS, DEFAULT_PREFIX
from streaming.administration import apply_topics
from streaming.brokers import CommittedReader
from streaming.errors import StreamingError
from streaming.replay import AUDITED, audit
from streaming.runtime import Application, EmbeddedBroker, Scratch
from streaming.settings import ENV_DELIMITER, ENV_PREFIX
from streaming.simulator import (
    Executor,
    Fleet,
    JudgingProgram,
    LoadReporter,
    ProcessFleet,
    Programs,
    Scenario,
    ScenarioRun,
    StreamCreator,
    Watcher,
    World,
    claim_lines,
)

# Production waits for minutes; the story should not. Four missed beats make a suspect.
SUSPECT_AFTER_SECONDS = 2.0
DEAD_AFTER_SECONDS = 4.0
TICK_SECONDS = 0.5
STORY_FLAGS = (
    *("--suspect-after-seconds", str(SUSPECT_AFTER_SECONDS)),
    *("--dead-after-seconds", str(DEAD_AFTER_SECONDS)),
)
STORY_ENVIRONMENT = {
    "PLACER_TICK__INTERVAL_SECONDS": str(TICK_SECONDS),
    # A node that comes back empty would get its share again: another story than this one tells.
    "PLACER_REBALANCE__MODE": "off",
}
WATCHED = (*AUDITED, ALERTS)
# Spark's first batch on two busy cores has taken 30 s; a scene that takes longer has failed.
SCENE_TIMEOUT_SECONDS = 90.0


class SceneFailed(StreamingError):
    """Something that should have happened did not, in time."""


@dataclass(frozen=True, slots=True)
class DemoReport:
    """Reports the end of a demo: findings, counts, and latencies in seconds."""

    findings: list[str]
    counts: dict[str, int]
    seconds: dict[str, float]


class Stage:
    """A broker and the application, gone when it is left, and what the output topics show."""

    def __init__(
        self,
        tell: Callable[[str], None],
        stop: threading.Event,
        flags: Sequence[str] = STORY_FLAGS,
        environment: Mapping[str, str] = STORY_ENVIRONMENT,
    ) -> None:
        """`tell` receives the story's lines; `stop` ends it between two looks; `flags` and
        `environment` are those of the application."""
        self.world = World()
        self.seconds: dict[str, float] = {}
        self._tell, self._stop = tell, stop
        self._flags, self._environment = flags, environment
        self._owned = ExitStack()

    def __enter__(self) -> Self:
        self._tell("starting a Kafka broker")
        self.scratch = self._owned.enter_context(Scratch("demo")).path
        broker = self._owned.enter_context(EmbeddedBroker())
        self.bootstrap = broker.bootstrap_servers
        apply_topics(self.bootstrap, DEFAULT_PREFIX, 1)
        self._application = Application(
            self.bootstrap, self.scratch, self._flags, self._environment
        )
        self._owned.callback(self._application.stop)
        self._create = StreamCreator(self.bootstrap, DEFAULT_PREFIX)
        reader = CommittedReader(self.bootstrap, DEFAULT_PREFIX, WATCHED)
        self._owned.enter_context(Watcher(self.world, reader))
        return self

    def __exit__(self, *_: object) -> None:
        self._owned.close()

    def play(self) -> DemoReport:
        """Play the demo and report on it; subclasses say how."""
        raise NotImplementedError

    def _start(self) -> None:
        with self._measure("application start → ready"):
            self._tell("starting the application on Spark")
            self._application.start()
            self._application.wait_ready()

    def _report(self, more: Sequence[str] = ()) -> DemoReport:
        """The audit of the topics, read to their ends, after what was found before."""
        with CommittedReader(self.bootstrap, DEFAULT_PREFIX, AUDITED) as reader:
            records = reader.read_to_end()
        outcomes = [each["outcome"] for each in self.world.decisions.values()]
        counts = {
            "streams placed": sum(outcome != "rejected" for outcome in outcomes),
            "streams rejected": outcomes.count("rejected"),
            "shards": len(self.world.assignments),
            "moves completed": self._moves("completed"),
            "moves cancelled or superseded": self._moves("cancelled") + self._moves("superseded"),
            "records read back": len(records),
        }
        return DemoReport([*more, *audit(records, Configuration())], counts, self.seconds)

    def _moves(self, state: str) -> int:
        return sum(move["state"] == state for move in self.world.moves.values())

    @contextmanager
    def _measure(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds[what] = time.monotonic() - started


class ScenarioDemo(Stage):
    """Plays one scenario with the settings that it names."""

    def __init__(
        self, scenario: Scenario, tell: Callable[[str], None], stop: threading.Event
    ) -> None:
        super().__init__(tell, stop, (), _environment(scenario))
        self._scenario = scenario

    def play(self) -> DemoReport:
        """The whole scenario; the report has the claims that do not hold, then what the audit
        found. Raises SceneFailed, NoAnswer; KeyboardInterrupt when stopped."""
        self._start()
        scenario = self._scenario
        with ExitStack() as opened:
            if scenario.programs is None:
                fleet: Fleet | ProcessFleet = self._simulate(opened)
                judge = None
            else:
                fleet, judge = self._run(opened, scenario.programs)
            playing = ScenarioRun(scenario, fleet, self.world, self._create, self._tell, self._stop)
            found = playing.play()
            if self._stop.is_set():
                raise KeyboardInterrupt
            found += [] if judge is None else judge.end()
            for line in claim_lines(scenario, found):
                self._tell(line)
            return self._report(found)

    def _simulate(self, opened: ExitStack) -> Fleet:
        """Start simulated nodes, with what surrounds them."""
        scenario, at = self._scenario, (self.bootstrap, DEFAULT_PREFIX)
        fleet = opened.enter_context(Fleet(*at, scenario.fleet(), scenario.heartbeat_seconds))
        opened.enter_context(Executor(*at, scenario.executor, serves=fleet.can_serve))
        if scenario.loads is not None:
            opened.enter_context(LoadReporter(*at, scenario.loads, fleet, self.world))
        return fleet

    def _run(
        self, opened: ExitStack, programs: Programs
    ) -> tuple[ProcessFleet, JudgingProgram | None]:
        """Start nodes that are processes, and the program that judges them."""
        at, nodes = (self.bootstrap, DEFAULT_PREFIX), self._scenario.fleet()
        self._tell(f"starting {len(nodes)} processes: {' '.join(programs.node)}")
        fleet = ProcessFleet(*at, nodes, programs.node, self.scratch / "nodes")
        opened.enter_context(fleet)
        if programs.judge is None:
            return fleet, None
        told = {"KAFKA_BOOTSTRAP": at[0], "TOPIC_PREFIX": at[1]}
        return fleet, opened.enter_context(JudgingProgram(programs.judge, told, self._tell))


def _environment(scenario: Scenario) -> dict[str, str]:
    """The settings as variables; what is a string stays one."""
    return {
        ENV_PREFIX + name.replace(".", ENV_DELIMITER).upper(): (
            value if isinstance(value, str) else json.dumps(value)
        )
        for name, value in scenario.flags.items()
    }
