"""A fleet, its executor and its reconciler in simulated time: what a scenario is played on without
Spark, Kafka and waiting. The records are real, and take the way of the application (`Driver`)."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import orjson

from schemas.inputs import StreamCreated
from streaming.client import Move
from streaming.codec import RawRecord
from streaming.pipeline import timers_of
from streaming.settings import core_configuration, load_settings
from streaming.simulator import Scenario, World
from streaming.simulator.executor import SimulatedCopies, make_acknowledgement
from streaming.simulator.fleet import FleetNode
from tests.builders.batches import Driver
from tests.builders.kafka_rows import heartbeat, raw, tick

# Fleet and reconciler move on in steps of so long.
STEP_MS = 500


class SimulatedFleet:
    """Stands where `Fleet`, the executor, the broker and the player's clock do."""

    def __init__(self, scenario: Scenario) -> None:
        settings = load_settings(None, scenario.flags)
        self.world = World()
        self.driver = Driver(configuration=core_configuration(settings), timers=timers_of(settings))
        self._now, self._due = 0, STEP_MS
        self._offsets: Counter[str] = Counter()
        self._said: dict[str, list[RawRecord]] = {"nodes.v1": [], "streams.v1": [], "acks.v1": []}
        self._places: dict[str, str] = {}
        self._lives: Counter[str] = Counter()
        self._sequences: Counter[str] = Counter()
        self._alive: set[str] = set()
        self._copying = SimulatedCopies(
            scenario.executor,
            self._acknowledge,
            lambda: self._now / 1000,
            self._alive.__contains__,
            lambda: self._now,
        )
        for node in scenario.fleet():
            self.join(node)

    # The fleet, as the player and `Playing` use it

    @property
    def node_ids(self) -> list[str]:
        return list(self._places)

    def location(self, node_id: str) -> str:
        return self._places[node_id]

    def kill(self, node_id: str) -> None:
        self._alive.discard(node_id)

    def stop(self, node_id: str) -> None:
        self._alive.discard(node_id)
        self._say(node_id, "NodeHeartbeat", stopping=True)

    def revive(self, node_id: str, *, same_incarnation: bool = False) -> None:
        if not same_incarnation:
            self._lives[node_id] += 1
            self._sequences[node_id] = 0
        self._alive.add(node_id)
        self._say(node_id, "NodeRegistered", location=self._places[node_id])

    def relocate(self, node_id: str, location: str) -> None:
        self._places[node_id] = location
        if node_id in self._alive:
            self._say(node_id, "NodeLocalityChanged", location=location)

    def unregister(self, node_id: str) -> None:
        self._alive.discard(node_id)
        self._say(node_id, "NodeUnregistered")

    def join(self, node: FleetNode) -> None:
        self._places[node.node_id] = node.location
        self.revive(node.node_id)

    def create(self, stream: StreamCreated) -> None:
        self._append("streams.v1", "StreamCreated", stream.stream, stream.model_dump(mode="json"))

    # The clock, as the player waits on it

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        self._due += round(seconds * 1000)
        while self._due >= STEP_MS:
            self._due -= STEP_MS
            self._now += STEP_MS
            self._step()
        return False

    def _step(self) -> None:
        for node_id in sorted(self._alive):
            self._sequences[node_id] += 1
            life, number = str(self._lives[node_id]), self._sequences[node_id]
            self._add("nodes.v1", heartbeat(node_id, number, life))
        self._add("nodes.v1", tick(0, 0))
        said, self._said = self._said, {topic: [] for topic in self._said}
        for commit in self.driver.batch(*filter(None, said.values())):
            for record in commit:
                key = (record.key or b"").decode()
                value = None if record.value is None else orjson.loads(record.value)
                seen: Any = SimpleNamespace(topic=record.topic, key=key, value=value)
                self.world.take(seen, self._now / 1000)
                if record.topic == "moves.v1":
                    self._copying.see(key, value)
                elif record.topic == "assignments.v1":
                    self._copying.see_assignment(key, value)
        self._copying.advance()

    def _acknowledge(self, message: str, move: Move, bytes_done: int | None = None) -> None:
        body = make_acknowledgement(move, bytes_done)
        self._append("acks.v1", message, str(move.shard_id), body)

    def _say(self, node_id: str, message: str, **more: str | bool) -> None:
        self._sequences[node_id] += 1
        life = {"incarnation": str(self._lives[node_id]), "sequence": self._sequences[node_id]}
        self._append("nodes.v1", message, node_id, {"node_id": node_id, **life, **more})

    def _append(self, topic: str, message: str, key: str, body: dict[str, Any]) -> None:
        kept = {name: value for name, value in body.items() if value is not None}
        self._add(topic, raw(message, key, kept, topic=topic))

    def _add(self, topic: str, record: RawRecord) -> None:
        self._offsets[topic] += 1
        self._said[topic].append(record._replace(offset=self._offsets[topic], at=self._now))
