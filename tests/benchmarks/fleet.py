"""Fleets of any size with everything placed, put together without a broker.

What takes long in building one, a record for every shard, matters to no figure of planning and is
left out: streams are placed by the strategy's own bulk placement and entered into the columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from placement.allocator import Placement, View
from placement.model import (
    Configuration,
    Decision,
    Limits,
    Liveness,
    NodeAttributes,
    NodeChanged,
    Outcome,
    StreamSpec,
)
from placement.planning import StreamSnapshot
from placement.policy import Policy
from placement.reconciler import Reconciler
from placement.state import ClusterState
from placement.strategies import STRATEGIES
from tests.benchmarks.placing import REPLICATION_FACTOR, SHARDS
from tests.benchmarks.processes import BenchmarkFailed

ASKED = {"strategy": "spread"}


@dataclass(frozen=True)
class Site:
    """Nodes by their locations, all of weight 1 but those in `heavy`, which have `weight`."""

    levels: tuple[str, ...]
    locations: Sequence[str]
    heavy: Sequence[int] = ()
    weight: float = 1.0

    def events(self) -> Iterator[NodeChanged]:
        """The registrations of all nodes."""
        for number, location in enumerate(self.locations):
            weight = self.weight if number in self.heavy else 1.0
            attributes = NodeAttributes(location, weight=weight)
            yield NodeChanged(0, f"n{number}", "i", 0, Liveness.UP, attributes)


def registered(site: Site, limits: Limits) -> tuple[ClusterState, Reconciler]:
    """A state that knows the nodes and no stream, and the reconciler that goes on with it."""
    state = ClusterState(Configuration(levels=site.levels, limits=limits))
    core = Reconciler(state.configuration, state)
    core.apply([*site.events()], 0)
    return state, core


def policy_of(state: ClusterState) -> Policy:
    """What all streams ask for."""
    policy = state.streams.compile(None, ASKED)
    if not isinstance(policy, Policy):
        raise BenchmarkFailed(policy.message)
    return policy


def placed(state: ClusterState, shards: int, view: View | None = None) -> Iterator[StreamSnapshot]:
    """Streams of so many shards together, the largest there are, and where `spread` puts them."""
    policy = policy_of(state)
    view = View(state.topology, state.table) if view is None else view
    for number, first in enumerate(range(0, shards, SHARDS)):
        size = min(SHARDS, shards - first)
        spec = StreamSpec(f"s{number}", size, REPLICATION_FACTOR, ASKED)
        found = STRATEGIES["spread"].place(spec, policy, view)
        if not isinstance(found, Placement):
            raise BenchmarkFailed(found.message)
        yield StreamSnapshot(spec, policy, np.asarray(found.shards, np.int32))


def enter(state: ClusterState, shards: int) -> None:
    """Give the state so many shards, placed."""
    everything = []
    for each in placed(state, shards):
        decision = Decision(
            each.spec.stream, 0, 1, Outcome.PLACED, each.spec, "", "spread",
            each.spec.shards, 0, (), (), 0,
        )  # fmt: skip
        state.allocate_slots(state.upsert_stream(decision, each.policy))
        everything.append(np.asarray(each.shards, np.int32))
    rows = np.concatenate(everything)
    counts = np.full(len(rows), REPLICATION_FACTOR, np.int64)
    shards, nodes = np.arange(len(rows)), rows.ravel().astype(np.int64)
    state.load_replicas(shards, counts, nodes)
    state.publisher.load_assignments(
        shards, np.ones(len(rows), np.int64), counts, nodes, np.uint64(0)
    )
