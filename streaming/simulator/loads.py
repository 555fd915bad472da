"""Simulates shards of unequal size that grow: nodes report what they hold, as the topics show it.

Sizes are drawn from a log-normal distribution by the shard's name, so that a scenario plays alike
again; every report is off by some noise, as measurements are.
"""

from __future__ import annotations

import itertools
import math
import random
import threading
import time
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Any, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field

from schemas.base import Id
from schemas.envelope import encode_headers
from schemas.limits import AMOUNT_MAX
from schemas.loads import ResourceName
from schemas.topics import NODE_LOADS, full_name
from streaming.brokers import make_producer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.brokers import Reachability
    from streaming.simulator.fleet import Fleet
    from streaming.simulator.world import World

# What is still unsent after so long will not be: the broker has gone.
FLUSH_TIMEOUT_SECONDS = 30.0
# The ends of the distribution are cut here: five deviations.
_TAIL = 1e-6
# Shards of one record; it stays below its limit with the longest names.
SHARDS_PER_REPORT = 400

Report = dict[str, Any]


class LoadsBehaviour(BaseModel):
    """What shards weigh. `median` and `sigma` (of the logarithm) shape their sizes at the start;
    all grow by `growth_per_second` of that, and those of `growing` alone where it is given. A
    report is off by `noise` at most. Every node has `capacity`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    resource: ResourceName = "disk_bytes"
    capacity: Annotated[int, Field(ge=1, le=AMOUNT_MAX)]
    median: Annotated[int, Field(ge=0, le=AMOUNT_MAX)]
    sigma: Annotated[float, Field(ge=0, le=5)] = 1.5
    growth_per_second: Annotated[float, Field(ge=0, le=100)] = 0.0
    growing: Id | None = None
    noise: Annotated[float, Field(ge=0, lt=1)] = 0.05
    every_seconds: Annotated[float, Field(gt=0, le=3_600)] = 5.0
    seed: int = 0

    def size(self, stream: str, shard: int, seconds: float) -> float:
        """Compute a shard's size so many seconds after the start."""
        drawn = random.Random(f"{self.seed}:{stream}/{shard}").random()
        deviation = NormalDist().inv_cdf(min(max(drawn, _TAIL), 1 - _TAIL))
        grows = self.growing in (None, stream)
        grown = 1 + self.growth_per_second * seconds * grows
        return self.median * math.exp(self.sigma * deviation) * grown

    def reports(
        self, assignments: Mapping[str, Mapping[str, Any]], seconds: float, round_: int
    ) -> dict[str, list[Report]]:
        """Make what each node reports of the shards that it holds, by node."""
        found: dict[str, list[Report]] = {}
        for key in sorted(assignments):
            each = assignments[key]
            size = self.size(each["stream"], each["shard"], seconds)
            for node in each["replicas"]:
                off = random.Random(f"{self.seed}:{key}:{node}:{round_}").uniform(-1, 1)
                amount = min(round(size * (1 + self.noise * off)), AMOUNT_MAX)
                place = {"stream": each["stream"], "shard": each["shard"]}
                found.setdefault(node, []).append({**place, self.resource: amount})
        return found


class LoadReporter:
    """Reports for all nodes of a fleet that are alive, once in `every_seconds`."""

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        behaviour: LoadsBehaviour,
        fleet: Fleet,
        world: World,
        *,
        options: Mapping[str, str] | None = None,
        reachability: Reachability | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._behaviour, self._fleet, self._world = behaviour, fleet, world
        self._producer = make_producer(bootstrap, options, on_error=reachability)
        self._topic, self._clock = full_name(NODE_LOADS, prefix), clock
        self._sequence = itertools.count(1)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fleet-loads", daemon=True)
        self._incarnation = f"agent-{time.time_ns()}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush(FLUSH_TIMEOUT_SECONDS)

    def _run(self) -> None:
        began = self._clock()
        for round_ in itertools.count():
            if self._stopping.wait(self._behaviour.every_seconds):
                return
            alive = set(self._fleet.alive)
            assignments = dict(self._world.assignments)
            found = self._behaviour.reports(assignments, self._clock() - began, round_)
            for node, shards in found.items():
                for first in range(0, len(shards) if node in alive else 0, SHARDS_PER_REPORT):
                    self._send(node, shards[first : first + SHARDS_PER_REPORT])
            self._producer.poll(0)

    def _send(self, node: str, shards: list[Report]) -> None:
        sequence = next(self._sequence)
        body = {
            "node_id": node,
            "incarnation": self._incarnation,
            "sequence": sequence,
            "capacities": {self._behaviour.resource: self._behaviour.capacity},
            "shards": shards,
        }
        headers = encode_headers(
            "NodeLoadReported",
            cell="fleet",
            id=f"{node}:{self._incarnation}:{sequence}",
            subject=node,
            time_ms=time.time_ns() // 1_000_000,
        )
        self._producer.produce(self._topic, orjson.dumps(body), node, headers=[*headers])
