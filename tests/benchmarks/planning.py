"""How fast repair plans, and how few replicas it moves: the planning part of `make bench`.

Times are CPU time of the planning thread, medians. The baseline of a dead node is the same code
asked shard by shard and node by node, as it is where there is little to do.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import psutil

from placement.allocator import node_classes
from placement.diagnosis import StreamToDiagnose, diagnose_cluster
from placement.model import (
    AckKind,
    AdministrativeState,
    Assignment,
    Configuration,
    Guard,
    Limits,
    Liveness,
    Move,
    MoveAcked,
    NodeChanged,
    Ready,
    Violation,
)
from placement.planning import WITHOUT_LIMITS, PlanPhase, StreamSnapshot, plan
from placement.reconciler import Reconciler
from placement.repair import triage
from placement.topology import Topology
from streaming import gc_pause
from tests.benchmarks.fleet import Site, enter, placed, registered
from tests.benchmarks.placing import LEVELS, REPLICATION_FACTOR, Tree
from tests.benchmarks.processes import BenchmarkFailed

# The dead node's replicas; the others have a quarter of that on average, which makes ten million
# on the larger fleet.
DEAD_REPLICAS, MEAN_REPLICAS = 4_000, 1_000
# Cruise Control's published size: 2.8 million replicas on 215 brokers.
LARGE_REPLICAS, LARGE_NODES = 2_800_000, 215
# Replicas of a node where one of many joins or leaves: those of the reference run of osdmaptool.
SMALL_REPLICAS = 96
RACKS, ZONES = 10, 5
JOINS = "1 joins"
NEVER = 1 << 40


@dataclass(frozen=True)
class Amount:
    """How much is measured: replicas of each size by this divisor, so many nodes die, one of so
    many nodes joins or leaves."""

    divisor: int
    deaths: int
    fleets: tuple[int, ...]


FULL, QUICK = Amount(1, 5, (100, 1_000)), Amount(10, 3, (100,))


@dataclass
class Death:
    """What the batch of a death costs on one fleet, in seconds: under the limits as shipped and
    without any, asked at once and one by one; what the records of both alone cost to make; a batch
    after it, and one that completes moves. The memory is the resident set of the whole process
    with the fleet in it."""

    nodes: int
    replicas: int
    moves: tuple[int, int]
    limited: Sequence[float]
    unlimited: Sequence[float]
    records: tuple[float, float]
    one_by_one: float
    idle: float
    acks: float
    memory_bytes: int


@dataclass
class Moved:
    """One change of a fleet: what moved, the fewest that could, and the seconds it took."""

    what: str
    nodes: int
    replicas: int
    moves: int
    lower_bound: int
    seconds: float


def deaths(tree: Tree, amount: Amount) -> Death:
    """Let heavy nodes of a fleet die, one at a time; each comes back before the next does."""
    heavy = [node * 7 for node in range(1, 2 * amount.deaths + 5)]
    weight = DEAD_REPLICAS / MEAN_REPLICAS
    site = Site(LEVELS, tree.locations(), heavy, weight)
    share = tree.size + len(heavy) * (weight - 1)
    shards = int(share * MEAN_REPLICAS) // REPLICATION_FACTOR // amount.divisor
    state, core = registered(site, Limits())
    enter(state, shards)
    memory = psutil.Process().memory_info().rss
    # The application searches nothing for garbage while it applies a batch.
    with _settled(), gc_pause.pause_gc():
        victims = iter(heavy)
        _die(core, next(victims))  # the first one loads what all need
        limited = [_die(core, next(victims)) for _ in range(amount.deaths)]
        few = _records_alone(core, next(victims))
        idle, acks = _aftermath(core, next(victims))
        _unlimited(state.configuration)
        unlimited = [_die(core, next(victims)) for _ in range(amount.deaths - 1)]
        every = _records_alone(core, next(victims))
        with _one_by_one():
            alone, _ = _die(core, next(victims))
    moves = (limited[-1][1], unlimited[-1][1])
    slow, fast = ([spent for spent, _ in each] for each in (limited, unlimited))
    replicas = shards * REPLICATION_FACTOR
    records = (few, every)
    return Death(tree.size, replicas, moves, slow, fast, records, alone, idle, acks, memory)


def _change(node: int, liveness: Liveness, at: int) -> NodeChanged:
    return NodeChanged(at, f"n{node}", "i", at, liveness)


def _die(core: Reconciler, node: int) -> tuple[float, int]:
    """CPU time of the batch in which the node dies, and its moves; then it comes back."""
    at = core.now + 1
    spent, ready = _timed(lambda: _decide(core, [_change(node, Liveness.DEAD, at)], at))
    core.apply([_change(node, Liveness.UP, at + 1)], at + 1)
    if core.open_moves:
        raise BenchmarkFailed(f"{core.open_moves} moves are open though the node is back")
    return spent, len(ready.moves)


def _decide(core: Reconciler, events: Sequence[NodeChanged], at: int) -> Ready:
    """Apply a batch, and ask for the digest as its marker does."""
    ready = core.apply(events, at)
    assert core.digest
    return ready


def _records_alone(core: Reconciler, node: int) -> float:
    """CPU time of making what the node's death publishes again: what no way of planning can save.
    The median of five."""
    at = core.now + 1
    ready = core.apply([_change(node, Liveness.DEAD, at)], at)
    moves = [move for move, _ in ready.moves.values()]

    def made_again() -> list[object]:
        said = [tuple([Violation(*each) for each in said]) for said in ready.violations.values()]
        assigned = [Assignment(*each) for each in ready.assignments.values()]
        return [*said, *assigned, *[Move(*each) for each in moves]]

    core.apply([_change(node, Liveness.UP, at + 1)], at + 1)
    return statistics.median(_timed(made_again)[0] for _ in range(5))


def _aftermath(core: Reconciler, node: int) -> tuple[float, float]:
    """CPU time of a batch that brings nothing while thousands wait, and of one that completes ten
    moves."""
    at = core.now + 1
    moves = [move for move, _ in core.apply([_change(node, Liveness.DEAD, at)], at).moves.values()]
    idle = statistics.median(_timed(lambda: core.apply([], at))[0] for _ in range(5))
    acks = []
    for first in range(0, 50, 10):
        done = [
            MoveAcked(at, AckKind.COMPLETED, move.move_id, move.stream, move.shard)
            for move in moves[first : first + 10]
        ]
        acks.append(_timed(lambda done=done: core.apply(done, at))[0])  # type: ignore[misc]
    core.apply([_change(node, Liveness.UP, at + 1)], at + 1)
    return idle, statistics.median(acks)


def _unlimited(configuration: Configuration) -> None:
    """The reconciler goes on without limits."""
    object.__setattr__(configuration, "limits", WITHOUT_LIMITS)


@contextmanager
def _one_by_one() -> Iterator[None]:
    known = triage.TRIAGED_FROM, node_classes.CLASSED_FROM
    triage.TRIAGED_FROM = node_classes.CLASSED_FROM = NEVER
    try:
        yield
    finally:
        triage.TRIAGED_FROM, node_classes.CLASSED_FROM = known


@contextmanager
def _settled() -> Iterator[None]:
    """What stands by now is not for the stopwatch to search for garbage."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.thread_time()
    done = work()
    return time.thread_time() - begun, done


def large(amount: Amount) -> tuple[Moved, float]:
    """Diagnose and plan a fleet of Cruise Control's size, a node of which has died: what moves,
    and the seconds that diagnosis took of it."""
    locations = [f"/z{n % 5}/r{n % 25}" for n in range(LARGE_NODES)]
    state, _ = registered(Site(("zone", "rack"), locations), Limits())
    topology = state.topology
    streams = [*placed(state, LARGE_REPLICAS // amount.divisor // REPLICATION_FACTOR)]
    _kill(topology, [7])
    with _settled():
        examined = [
            StreamToDiagnose(each.spec, each.policy, each.shards, each.shards) for each in streams
        ]
        diagnosing, found = _timed(lambda: diagnose_cluster(topology, examined))
        planning, made = _timed(lambda: plan(topology, streams, PlanPhase.REPAIR))
    lost = len({(v.stream, v.shard) for v in found.violations})
    if made.left or len(made.moves) != lost:
        raise BenchmarkFailed(f"{len(made.moves)} moves, {len(made.left)} left of {lost}")
    replicas = sum(each.spec.shards for each in streams) * REPLICATION_FACTOR
    spent = diagnosing + planning
    return Moved("a node dies", LARGE_NODES, replicas, len(made.moves), lost, spent), diagnosing


@dataclass(frozen=True)
class Changed:
    """A small fleet whose nodes have changed, and the fewest replicas that have to move."""

    topology: Topology
    streams: Sequence[StreamSnapshot]
    lower_bound: int


def changes(nodes: int) -> Iterator[Moved]:
    """One node more, one less, a rack and a zone less: what moves, and the fewest that could."""
    for what, phase, changed in (
        (JOINS, PlanPhase.REBALANCE, joining(nodes)),
        *((what, PlanPhase.REPAIR, leaving(nodes, gone)) for what, gone in losses(nodes).items()),
    ):
        spent, made = _timed(partial(plan, changed.topology, changed.streams, phase))
        moves = sum(move.add is not None for move in made.moves)
        if made.left:
            raise BenchmarkFailed(f"{what}: {len(made.left)} replicas are left")
        yield Moved(what, nodes, nodes * SMALL_REPLICAS, moves, changed.lower_bound, spent)


def losses(nodes: int) -> dict[str, list[int]]:
    """Who goes: a node, the first rack, the first zone, which are two racks."""
    racks = {n: n % RACKS for n in range(nodes)}
    return {
        "1 leaves": [0],
        "a rack is lost": [n for n, rack in racks.items() if rack == 0],
        "a zone is lost": [n for n, rack in racks.items() if rack % ZONES == 0],
    }


def racked(nodes: int) -> Site:
    """Nodes dealt out over ten racks in five zones."""
    racks = [f"/z{rack % ZONES}/r{rack}" for rack in range(RACKS)]
    return Site(("zone", "rack"), [racks[n % RACKS] for n in range(nodes)])


def joining(nodes: int) -> Changed:
    """A node has come to so many that hold everything: it is to get its share."""
    state, _ = registered(racked(nodes + 1), Limits())
    topology = state.topology
    _kill(topology, [nodes])
    replicas = nodes * SMALL_REPLICAS
    streams = [*placed(state, replicas // REPLICATION_FACTOR)]
    topology.set_condition(nodes, Liveness.UP, AdministrativeState.NONE, Guard.NONE)
    return Changed(topology, streams, replicas // (nodes + 1))


def leaving(nodes: int, gone: Sequence[int]) -> Changed:
    """Some of the nodes that hold everything are gone: what they held is to be given back."""
    state, _ = registered(racked(nodes), Limits())
    topology = state.topology
    streams = [*placed(state, nodes * SMALL_REPLICAS // REPLICATION_FACTOR)]
    _kill(topology, gone)
    lost = sum(int(np.isin(np.asarray(each.shards), gone).sum()) for each in streams)
    return Changed(topology, streams, lost)


def _kill(topology: Topology, nodes: Sequence[int]) -> None:
    for node in nodes:
        topology.set_condition(node, Liveness.DEAD, AdministrativeState.NONE, Guard.NONE)
