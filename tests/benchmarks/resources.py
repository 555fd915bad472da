"""How few bytes plans for resources move, and how fast they are made: `python -m tests.benchmarks`.

Small fleets are planned beside the least bytes that OR-tools' CP-SAT finds for the same rules,
limits and bands; large ones beside the lower bound that each plan names. Times are CPU time of the
planning thread, the columns of the search included.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from placement.model import Resource
from placement.rebalance import (
    Bands,
    ResourceArrangement,
    ResourcePlan,
    bands_of,
    movable,
    plan_relief,
    plan_resources,
)
from tests.benchmarks.processes import BenchmarkFailed
from tests.builders.resource_fleets import Fleet, large_fleet, small_fleet

# What a plan may take beyond the least: in the mean of all small fleets, and of the worst one; and
# beyond the lower bound on a large one, where the optimum is out of reach.
MEAN_MAX, WORST_MAX, BOUND_MAX = 1.05, 1.20, 1.10
SECONDS_MAX, RELIEF_SECONDS_MAX = 10.0, 0.05
# How long the solver looks at one fleet; one that it does not decide counts by what it has found.
SOLVER_SECONDS = 20.0
# Cruise Control's defaults: the share of the mean that a broker may hold, and of its capacity.
PEER_BALANCE, PEER_CAPACITY = 1.10, 0.8
PEER_LINE = (
    "Cruise Control's optimizer is not in the registry that jars come from (Maven Central), so that"
    f" it was not run; the row with its name is ours with its thresholds: {PEER_BALANCE} of the"
    f" mean, {PEER_CAPACITY} of the capacity."
)


@dataclass(frozen=True)
class Extent:
    """Small fleets; nodes and shards of the large one."""

    small: int
    nodes: int
    shards: int


FULL, QUICK = Extent(300, 1_000, 100_000), Extent(30, 100, 10_000)


@dataclass(frozen=True)
class Small:
    """A small fleet: bytes of our plan, the least, whether that is proved, and CPU seconds.

    None: no lawful arrangement within the bands, or none was found.
    """

    seed: int
    planned: int | None
    least: int | None
    proved: bool
    seconds: float

    @property
    def share(self) -> float | None:
        """Bytes of the plan beside the least; None where one of the two is missing."""
        if self.planned is None or not self.least:
            return None
        return self.planned / self.least


@dataclass(frozen=True)
class Large:
    """A large fleet: the largest load beside the mean by resource, before and after."""

    case: str
    replicas: int
    moves: int
    waves: int
    bytes: int
    lower_bound: int
    before: list[float]
    after: list[float]
    left: int
    seconds: float


@dataclass
class Found:
    """Everything that was measured."""

    small: list[Small]
    large: list[Large]


def measure(extent: Extent, tell: Callable[[str], None]) -> Found:
    """Plan all fleets. Raises BenchmarkFailed."""
    small = []
    for seed in range(extent.small):
        tell(f"small fleet {seed + 1} of {extent.small}, beside CP-SAT")
        small.extend(_small(seed))
    tell("large fleets")
    return Found(small, [*_large(extent)])


def _small(seed: int) -> Iterator[Small]:
    """Plan one small fleet and solve it; nothing if it needs no move."""
    fleet = small_fleet(seed)
    arrangement = fleet.arrangement()
    bands, full = bands_of(arrangement), arrangement.excess().sum(axis=0) > 0
    if not bands.active.any() and not full.any():
        return
    every = np.arange(len(arrangement.shard))
    free = movable(arrangement, bands, every) | full[arrangement.node]
    seconds, plan = _timed(plan_resources, arrangement)
    least, proved = solve(fleet, bands, free)
    inside = not plan.excess.any() and not plan.outside.any()
    yield Small(seed, plan.bytes if inside else None, least, proved, seconds)


def solve(fleet: Fleet, bands: Bands, free: np.ndarray) -> tuple[int | None, bool]:
    """The least bytes for a fleet of one replica in a rack at most, by CP-SAT, and whether that is
    proved. None: there is no such arrangement, or none was found."""
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise BenchmarkFailed(f"OR-tools is not installed, make setup does that: {error}") from None
    model = cp_model.CpModel()
    shards, copies = fleet.rows.shape
    nodes = range(fleet.capacity.shape[1])
    held = [
        [[model.new_bool_var(f"{s}/{c}@{n}") for n in nodes] for c in range(copies)]
        for s in range(shards)
    ]
    moved: list[Any] = []
    for s, row in enumerate(fleet.rows.tolist()):
        for c, node in enumerate(row):
            model.add_exactly_one(held[s][c])
            if not free[s * copies + c]:
                model.add(held[s][c][node] == 1)
            moved.append(int(fleet.loads[0, s]) * (1 - held[s][c][node]))
        for rack in sorted(set(fleet.racks.tolist())):
            there = [n for n in nodes if fleet.racks[n] == rack]
            model.add(sum(held[s][c][n] for c in range(copies) for n in there) <= 1)
    limits = fleet.limits()
    for r, each in enumerate(fleet.resources):
        bearing = range(1 if each.led else copies)
        for n in nodes:
            load = sum(
                int(fleet.loads[r, s]) * held[s][c][n] for s in range(shards) for c in bearing
            )
            model.add(load <= min(int(limits[r, n]), int(bands.high[r, n])))
            model.add(load >= int(bands.low[r, n]))
    model.minimize(sum(moved))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = SOLVER_SECONDS
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return round(solver.objective_value), status == cp_model.OPTIMAL
    return None, status == cp_model.INFEASIBLE


def _large(extent: Extent) -> Iterator[Large]:
    """Plan the large fleet in each case."""
    size = extent.nodes, extent.shards
    yield _planned("as many replicas on every node", large_fleet(*size))
    yield _planned("the same, one resource led", large_fleet(*size, led=True))
    yield _planned("a tenth of the nodes joins", large_fleet(*size, empty=extent.nodes // 10))
    peer = large_fleet(*size, balance=2 * (PEER_BALANCE - 1))
    peer.resources = tuple(
        Resource(each.name, PEER_CAPACITY, each.balance, each.led) for each in peer.resources
    )
    yield _planned("with Cruise Control's thresholds", peer)
    fleet = large_fleet(*size)
    fleet.capacity = fleet.capacity * 3
    # One node holds ninety of a hundred, and may hold eighty-five.
    fleet.capacity[0, 0] = fleet.totals()[0, 0] * 100 // 90
    yield _planned("one node nearly full is relieved", fleet, plan_relief)


def _planned(
    case: str,
    fleet: Fleet,
    make: Callable[[ResourceArrangement], ResourcePlan] = plan_resources,
) -> Large:
    arrangement = fleet.arrangement()
    before = _peaks(arrangement.totals, arrangement)
    seconds, plan = _timed(make, arrangement)
    return Large(
        case,
        fleet.rows.size,
        len(plan.moves),
        plan.waves,
        plan.bytes,
        plan.lower_bound,
        before,
        _peaks(arrangement.totals, arrangement),
        int((plan.excess > 0).sum() + (plan.outside > 0).sum()),
        seconds,
    )


def _peaks(totals: np.ndarray, arrangement: ResourceArrangement) -> list[float]:
    """The highest utilisation of a node beside the mean, by resource."""
    used = totals / arrangement.capacity
    mean = totals.sum(axis=1) / arrangement.capacity.sum(axis=1)
    return [round(float(peak), 4) for peak in used.max(axis=1) / mean]


def _timed(
    make: Callable[[ResourceArrangement], ResourcePlan], given: ResourceArrangement
) -> tuple[float, ResourcePlan]:
    begun = time.thread_time()
    plan = make(given)
    return time.thread_time() - begun, plan


def show(console: Console, extent: Extent, found: Found) -> None:
    """Tables for people."""
    shares = [each.share for each in found.small if each.share is not None]
    solved = [each for each in found.small if each.least is not None]
    missed = [each.seed for each in solved if each.planned is None]
    table = Table(title=f"{extent.small} small fleets beside the least bytes (CP-SAT)")
    for column in ("what", "found", "target"):
        table.add_column(column, justify="left" if column == "what" else "right")
    if shares:
        mean, worst = sum(shares) / len(shares), max(shares)
        table.add_row("bytes beside the least, mean", f"{mean:.4f}", f"{MEAN_MAX}")
        table.add_row("the worst", f"{worst:.4f}", f"{WORST_MAX}")
    table.add_row("have a lawful arrangement within the bands", f"{len(solved)}", "")
    table.add_row("of them missed by ours", f"{len(missed)} {missed or ''}", "0")
    unproved = sum(not each.proved for each in found.small)
    table.add_row(f"not decided by CP-SAT in {SOLVER_SECONDS:.0f} s", f"{unproved}", "")
    many = [each.seconds for each in found.small]
    if many:
        table.add_row("CPU s of a plan, mean", f"{sum(many) / len(many):.2f}", "")
        table.add_row("CPU s of a plan, the longest", f"{max(many):.2f}", "")
    console.print(table)
    table = Table(title=f"{extent.nodes} nodes, {3 * extent.shards} replicas, sizes log-normal 1.5")
    for column in ("case", "CPU s", "moves", "waves", "TB", "of the bound", "max/mean", "left"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for each in found.large:
        table.add_row(
            each.case,
            f"{each.seconds:.3f}",
            f"{each.moves}",
            f"{each.waves}",
            f"{each.bytes / 1e12:.2f}",
            f"{each.bytes / max(each.lower_bound, 1):.4f}",
            " ".join(f"{b:.2f}>{a:.3f}" for b, a in zip(each.before, each.after, strict=True)),
            f"{each.left}",
        )
    console.print(table)
    console.print(
        f"Targets: {SECONDS_MAX:.0f} s, {BOUND_MAX} of the lower bound, 1.05 of the mean where the"
        f" largest shard allows it; relief {RELIEF_SECONDS_MAX * 1_000:.0f} ms."
    )
    console.print(PEER_LINE)
