"""How fast and how evenly our strategies place: the placement part of `make bench`.

The same fleet and the same number of shards as for the peers (`peers.py`). A placement is one shard
with all its replicas, which is what CRUSH maps in one go. Times are CPU time of the placing thread,
so that what else runs on the machine does not count for or against anyone.
"""

import gc
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.allocator import Placement, Strategy, View
from placement.model import (
    Configuration,
    Liveness,
    NodeAttributes,
    NodeChanged,
    StreamCreated,
    StreamSpec,
)
from placement.policy import Policy, compile_policy
from placement.reconciler import Reconciler
from placement.state import ClusterState
from placement.strategies import STRATEGIES
from tests.benchmarks.processes import BenchmarkFailed

LEVELS = ("region", "az", "rack")
REPLICATION_FACTOR = 3
# The most that one stream may have.
SHARDS = 10_000
STRATEGIES_MEASURED = ("spread", "location_majority", "multi_level", "ring")


@dataclass(frozen=True)
class Tree:
    """A regular fleet: regions, azs in each, racks in each, nodes in each."""

    fan_out: tuple[int, int, int, int]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return int(np.prod(self.fan_out))

    @property
    def layers(self) -> Iterator[tuple[str, int]]:
        """Levels from the rack up, with the children of one domain."""
        return zip(reversed(LEVELS), reversed(self.fan_out[1:]), strict=True)

    def locations(self) -> list[str]:
        """The path of every node; those of a domain follow one another."""
        domains = {name: (self.domains(name) % many).tolist() for name, many in self._within}
        rows = zip(*domains.values(), strict=True)
        return ["/" + "/".join(f"{n}{i}" for n, i in zip(LEVELS, row, strict=True)) for row in rows]

    def domains(self, level: str) -> NDArray[np.int64]:
        """The number of each node's domain."""
        below = self.fan_out[(*LEVELS, "node").index(level) + 1 :]
        return np.arange(self.size) // int(np.prod(below))

    @property
    def _within(self) -> Iterator[tuple[str, int]]:
        return zip(LEVELS, self.fan_out, strict=False)


TREES = (Tree((5, 5, 4, 10)), Tree((5, 10, 10, 20)))


@dataclass(frozen=True)
class Extent:
    """How much is placed: streams of SHARDS shards, so often after a warm-up."""

    streams: int
    repeats: int

    @property
    def shards(self) -> int:
        """Shards of all streams."""
        return self.streams * SHARDS


FULL, QUICK = Extent(streams=10, repeats=5), Extent(streams=2, repeats=3)


@dataclass
class Placed:
    """One placer on one fleet. `seconds`: CPU time of each repeat; `first_seconds`: what the first
    call took more, compiling; `apply_seconds`: one stream through the whole core; `load`: replicas
    by node."""

    extent: Extent
    seconds: Sequence[float]
    load: NDArray[np.int64]
    first_seconds: float | None = None
    apply_seconds: Sequence[float] = ()
    balance: dict[str, tuple[float, int]] = field(default_factory=dict)

    @property
    def per_second(self) -> float:
        """Shards placed in a second, the median of the repeats."""
        return self.extent.shards / statistics.median(self.seconds)

    @property
    def applied_per_second(self) -> float | None:
        """Shards of one stream decided, entered and published by the core in a second."""
        return SHARDS / statistics.median(self.apply_seconds) if self.apply_seconds else None

    def weigh(self, tree: Tree) -> None:
        """Maximum by mean and maximum less minimum of the replicas of each level's domains."""
        for level in (*LEVELS, "node"):
            held = np.bincount(tree.domains(level), self.load)
            self.balance[level] = (float(held.max() / held.mean()), int(np.ptp(held)))


def compile_into(directory: Path) -> None:
    """Compiled kernels are kept in `directory`, so that the first call of each compiles."""
    os.environ["NUMBA_CACHE_DIR"] = str(directory)


def measure(strategy: str, tree: Tree, extent: Extent) -> Placed:
    """Place the streams with one strategy, and one more stream through the reconciler."""
    asked = {"strategy": strategy}
    state = ClusterState(Configuration(levels=LEVELS))
    core = Reconciler(state.configuration, state)
    nodes = [
        NodeChanged(0, f"n{n}", "i", 0, Liveness.UP, NodeAttributes(location))
        for n, location in enumerate(tree.locations())
    ]
    core.apply(nodes, 0)
    placer = STRATEGIES[strategy]
    policy = compile_policy(None, asked, {}, state.topology, STRATEGIES)
    if not isinstance(policy, Policy):
        raise BenchmarkFailed(f"{strategy}: {policy.message}")
    specs = [StreamSpec(f"s{n}", SHARDS, REPLICATION_FACTOR, asked) for n in range(extent.streams)]
    # What stands by now, mostly imported modules, is not for the stopwatch to search for garbage.
    gc.collect()
    gc.freeze()
    runs = [_run(placer, specs, policy, state) for _ in range(1 + extent.repeats)]
    gc.unfreeze()
    seconds, load = [spent for spent, _ in runs], runs[-1][1]
    first, *rest = seconds
    applied = list(_applied(core, asked, extent.repeats))
    first_more = max(first - statistics.median(rest), 0.0)
    return Placed(extent, rest, load, first_more, applied)


def _applied(core: Reconciler, asked: dict[str, Any], repeats: int) -> Iterator[float]:
    """CPU time of `apply` for a stream each."""
    for number in range(1 + repeats):
        name = f"a{number}"
        stream = StreamCreated(0, name, 0, SHARDS, REPLICATION_FACTOR, policy=asked)
        begun = time.thread_time()
        ready = core.apply([stream], 0)
        spent = time.thread_time() - begun
        if len(ready.assignments) != SHARDS:
            raise BenchmarkFailed(f"{name}: {ready.decisions[name].reasons}")
        if number:
            yield spent


def _run(
    placer: Strategy, specs: Sequence[StreamSpec], policy: Policy, state: ClusterState
) -> tuple[float, NDArray[np.int64]]:
    """CPU time of placing the streams one after the other, and the replicas by node. Each answer is
    dropped once it is counted, as in the application, which keeps columns."""
    view, spent = View(state.topology, state.table), 0.0
    load = np.zeros(state.topology.size, np.int64)
    for spec in specs:
        begun = time.thread_time()
        placed = placer.place(spec, policy, view)
        spent += time.thread_time() - begun
        if not isinstance(placed, Placement):
            raise BenchmarkFailed(f"{placer.name}: {placed.message}")
        held = np.asarray(placed.shards, np.int64).ravel()
        load += np.bincount(held, minlength=len(load))
        del placed, held
    return spent, load
