"""Plays a scenario from its first registration to its judgement, against any reconciler.

It only acts and looks: the fleet, the creation of streams and the world that the output topics show
are given, so that `placer fleet`, `placer demo --scenario` and tests in simulated time play alike.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import orjson
from confluent_kafka import KafkaError, Message

from schemas.envelope import encode_headers
from schemas.inputs import StreamCreated
from schemas.topics import STREAMS, full_name
from streaming.brokers import make_producer
from streaming.errors import StreamingError
from streaming.simulator.claims import Baseline, find_broken_claims
from streaming.simulator.fleet import Fleet
from streaming.simulator.processes import ProcessFleet
from streaming.simulator.scenario import Scenario, StepPlayer
from streaming.simulator.world import World

# Spark's first batch on two busy cores has taken 30 s; what takes longer has failed.
ANSWER_SECONDS = 90.0
# Between two looks at the world.
LOOK_SECONDS = 0.1


class ScenarioStalled(StreamingError):
    """The reconciler does not do what a scenario needs before its first step."""


def claim_lines(scenario: Scenario, found: Sequence[str]) -> list[str]:
    """The judgement in lines; none of a scenario that claims nothing."""
    if scenario.ends is None:
        return []
    return [f"does not hold: {claim}" for claim in found] or ["all claims of the scenario hold"]


class StreamCreator:
    """Sends the creation of streams."""

    def __init__(
        self, bootstrap: str, prefix: str, options: Mapping[str, str] | None = None
    ) -> None:
        self._producer = make_producer(bootstrap, options)
        self._topic = full_name(STREAMS, prefix)

    def __call__(self, stream: StreamCreated) -> float:
        """Append the creation and return the broker's append time in seconds. Raises
        ScenarioStalled."""
        appended: list[int] = []
        faults: list[str] = []

        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                appended.append(message.timestamp()[1])
            else:
                faults.append(error.str())

        headers = encode_headers(
            "StreamCreated",
            cell="fleet",
            id=f"{stream.stream}:{stream.sequence}",
            subject=stream.stream,
            time_ms=time.time_ns() // 1_000_000,
        )
        self._producer.produce(
            self._topic,
            orjson.dumps(stream.model_dump(mode="json", exclude_none=True)),
            stream.stream,
            headers=list(headers),
            on_delivery=note,
        )
        self._producer.flush(ANSWER_SECONDS)
        if not appended:
            why = faults[0] if faults else f"no answer within {ANSWER_SECONDS:g} s"
            raise ScenarioStalled(
                f"the broker did not accept the creation of {stream.stream}: {why}"
            )
        return appended[0] / 1000


class ScenarioRun:
    """Plays one scenario on one fleet. `create` sends a stream's creation; `stop` ends it early."""

    def __init__(
        self,
        scenario: Scenario,
        fleet: Fleet | ProcessFleet,
        world: World,
        create: Callable[[StreamCreated], object],
        tell: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        self._scenario, self._world, self._create = scenario, world, create
        self._tell, self._stop, self._fleet = tell, stop, fleet
        self._player = StepPlayer(fleet, tell, stop)

    def play(self) -> list[str]:
        """Place the streams, take all steps, and judge the end: the claims that do not hold. Raises
        ScenarioStalled if the reconciler does not take in nodes or decide on streams."""
        self._place()
        before = Baseline.of(self._world)
        self._player.play(self._scenario)
        claims = self._scenario.ends
        if claims is None or self._stop.wait(claims.settle_seconds):
            return []
        waited = 0.0
        while found := find_broken_claims(claims, self._world, before, self._player.targets):
            if waited >= claims.within_seconds or self._stop.wait(LOOK_SECONDS):
                return found
            waited += LOOK_SECONDS
        return []

    def _place(self) -> None:
        """Wait for the nodes, create the streams and wait for their replicas."""
        nodes, streams, world = self._fleet.node_ids, self._scenario.streams, self._world
        self._tell(f"{self._scenario.name}: {len(nodes)} nodes send heartbeats")
        if not streams:
            return
        self._wait_until(
            f"{len(nodes)} nodes that are up",
            lambda: all(world.nodes.get(n, {}).get("liveness") == "up" for n in nodes),
        )
        for stream in streams:
            self._create(stream)
        names = [stream.stream for stream in streams]
        self._wait_until(
            f"a decision on {', '.join(names)}", lambda: world.decisions.keys() >= {*names}
        )
        for name in names:
            decision = world.decisions[name]
            shape = f"{decision['spec']['shards']} × {decision['spec']['replication_factor']}"
            self._tell(f"stream {name} {shape}: {decision['outcome']}")
        self._wait_until("an end of the moves", lambda: not world.open_moves)

    def _wait_until(self, what: str, holds: Callable[[], bool]) -> None:
        waited = 0.0
        while not holds():
            if self._world.failure is not None:
                raise self._world.failure
            if self._stop.wait(LOOK_SECONDS):
                raise KeyboardInterrupt
            waited += LOOK_SECONDS
            if waited > ANSWER_SECONDS:
                raise ScenarioStalled(
                    f"the reconciler has not shown {what} within {ANSWER_SECONDS:g} s"
                )
