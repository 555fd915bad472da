"""Random histories of a small fleet, judged by the oracle after every batch.

Goal: whatever happens in whatever order, and wherever the log is cut into batches, nothing that is
published is ever wrong; once the fleet is whole again and executors answer, all is as was asked.
Method: a seeded generator plays nodes, executors and users; at random steps the reconciler is
rebuilt from its records, and from then on a twin must publish exactly what the original does.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from placement.events import AckKind, Event, MoveAcked, NodeChanged, StreamCreated
from placement.limits import Limits
from placement.model import AdministrativeState, Liveness, Move, NodeAttributes, Ready
from placement.reconcile import Reconciler
from placement.state import Configuration
from tests.oracle import Log, records_of
from tests.placement.records import Records

SEEDS = 300
STEPS = 30

POLICIES: tuple[dict[str, Any], ...] = (
    {"placement_policies": ""},
    {"placement_policies": "shard=exclusive"},
    {"placement_policies": "shard=balanced"},
    {"placement_policies": "node=exclusive"},
    {"placement_policies": "node=exclusive;shard=exclusive"},
    {"placement_policies": "node=exclusive;shard=balanced"},
    {"placement_policies": "node=colocated"},
    {"placement_policies": "node=colocated;shard=exclusive"},
    {"placement_policies": "preferred_nodes=n1,n2"},
    {"policy": {"strategy": "affinity", "node": "exclusive", "on_infeasible": "wait"}},
    {"policy": {"strategy": "affinity", "level": "site", "node": "exclusive"}},
    {"policy": {"strategy": "spread"}},
    {"policy": {"strategy": "spread", "rules": [{"at_most": 1, "per": "site"}]}},
    {"policy": {"strategy": "spread", "rules": [{"at_most": "share", "per": "site"}]}},
    {"policy": {"strategy": "spread", "rules": [{"even": "tag:disk", "strength": "preferred"}]}},
    {"policy": {"strategy": "spread", "rules": [{"exclusive": "nodes"}]}},
    {"policy": {"strategy": "spread", "avoid": ["/s1"]}},
    {"policy": {"strategy": "ring"}},
    {"policy": {"strategy": "ring", "strict": True, "on_infeasible": "wait"}},
    {"policy": {"strategy": "hdfs", "writer": "n1"}},
    {"policy": {"strategy": "hdfs", "variant": "rack_fault_tolerant"}},
    {"policy": {"strategy": "network_topology", "replication": {"s1": 1, "s2": 2}}},
    {"policy": {"strategy": "nonsense"}},
    {},
)


def none(found: list[str]) -> None:
    assert not found, "\n".join(found)


class History:
    """A fleet, its users and its executors, drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.configuration = Configuration(
            levels=("site",),
            limits=rng.choice((Limits(), Limits(1, 1, 3, 2), Limits(2, 2, 200, 500))),
            acked=rng.random() < 0.85,
            deadline_ms=rng.choice((30_000, 600_000)),
            retention_ms=100_000,
        )
        self.relocates = rng.random() < 0.3
        self.orders = rng.random() < 0.4
        self.now = 1_000
        self.reconciler = Reconciler(self.configuration)
        self.twin: Reconciler | None = None
        self.records = Records()
        self.log = Log(levels=self.configuration.levels)
        self.sequence = 0
        self.homes = {
            f"n{number}": NodeAttributes(
                location=rng.choice(("/s1/r1", "/s1/r2", "/s2/r1", "/s2/r2", "/s3", "/s4/r1/c1")),
                tags=rng.choice(((), (("disk", "ssd"),), (("disk", "hdd"),))),
                weight=rng.choice((1.0, 1.0, 2.0)),
                capacity=rng.choice((None, None, None, 4)),
                leader=rng.random() < 0.9,
            )
            for number in range(1, rng.randint(4, 10))
        }
        self.streams = 0

    def play(self) -> None:
        """Some batches of anything, then rest."""
        for _ in range(STEPS):
            self.step([event for _ in range(self.rng.randint(0, 4)) for event in self.draw()])
        self.rest()

    def step(self, events: list[Event], caught_up: bool | None = None) -> Ready:
        """One batch through the reconciler, its twin and the oracle."""
        if caught_up is None:
            caught_up = self.rng.random() < 0.9
        self.now += self.rng.choice((10, 1_000, 20_000))
        ready = self.reconciler.apply(events, self.now, caught_up)
        self.records.commit(ready)
        self.log.feed_ready(ready, caught_up)
        if self.twin is not None:
            again = self.twin.apply(events, self.now, caught_up)
            assert list(records_of(again)) == list(records_of(ready))
            assert self.twin.digest == self.reconciler.digest
            self.reconciler, self.twin = self.twin, None
        if self.rng.random() < 0.3:
            self.twin = self.records.rebuild(self.configuration, self.now, self.rng)
            assert self.twin.digest == self.reconciler.digest
            assert self.twin.now == self.reconciler.now
            assert self.twin.open_moves == self.reconciler.open_moves
        return ready

    def rest(self) -> None:
        """Every node comes back to its home, every move is completed: nothing is left to do."""
        self.step([event for node_id in self.homes for event in self.heal(node_id)], True)
        for _ in range(300):
            moves = self.records.open_moves()
            ready = self.step([self.ack(move, AckKind.COMPLETED) for move in moves], True)
            if not moves and not (ready.moves or ready.assignments):
                break
        # What no single move mends is reported.
        none(self.log.final_violations(reported_is_enough=True))
        if not any(attributes.capacity for attributes in self.homes.values()):
            reported = [v for found in self.records.violations.values() for v in found]
            apart = [v.stream for v in reported if v.rule == "colocate slots"]
            assert all(self.records.decisions[name].spec.repair for name in apart)
        ready = self.reconciler.apply([], self.now, True)
        assert ready.empty, f"at rest, and yet {ready}"
        # A second opinion by one that has no idea what was tried before and is said to be hopeless.
        self.records.violations.clear()
        again = self.records.rebuild(self.configuration, self.now, self.rng)
        looked_at = [event for node_id in self.homes for event in self.heal(node_id)]
        ready = again.apply(looked_at, self.now)
        assert not ready.moves, f"repairs were missed: {ready.moves}"
        assert not ready.assignments, f"promotions were missed: {ready.assignments}"

    def draw(self) -> Iterator[Event]:
        """One or a few related events."""
        roll = self.rng.random()
        if roll < 0.45:
            yield from self.draw_node()
        elif roll < 0.6 and self.streams < 8:
            yield self.draw_stream()
        else:
            yield from self.draw_acks()

    def draw_node(self) -> Iterator[Event]:
        node_id = self.rng.choice(list(self.homes))
        known = self.records.nodes.get(node_id)
        if known is None or self.rng.random() < 0.3:
            yield from self.heal(node_id)
        elif self.relocates and self.rng.random() < 0.2:
            place = self.rng.choice(("/s1/r1", "/s2/r9", "/s5", ""))
            yield self.change(node_id, known.liveness, location=place)
        elif self.orders and self.rng.random() < 0.4:
            draining, states = AdministrativeState.DRAINING, [*AdministrativeState]
            ordered = self.rng.choice((draining, self.rng.choice(states)))
            yield self.change(node_id, known.liveness, administrative=ordered)
        else:
            kinds = (Liveness.SUSPECT, Liveness.DEAD, Liveness.DEAD, Liveness.UNREGISTERED)
            yield self.change(node_id, self.rng.choice(kinds))

    def heal(self, node_id: str) -> Iterator[NodeChanged]:
        """The node is up where it belongs."""
        ordered = AdministrativeState.NONE
        more = {"attributes": self.homes[node_id], "administrative": ordered}
        yield self.change(node_id, Liveness.UP, **more)

    def change(self, node_id: str, liveness: Liveness, **more: Any) -> NodeChanged:
        self.sequence += 1
        return NodeChanged(self.now, node_id, "i", self.sequence, liveness, **more)

    def draw_stream(self) -> StreamCreated:
        self.sequence += 1
        name = f"t{self.streams}"
        if self.streams == 0 or self.rng.random() < 0.8:
            self.streams += 1
            name = f"t{self.streams}"
        return StreamCreated(
            self.now,
            name,
            self.sequence,
            self.rng.randint(1, 4),
            self.rng.randint(1, 4),
            replicas=self.draw_replicas() if self.rng.random() < 0.15 else None,
            body_hash=str(self.sequence),
            repair="dead_only" if self.rng.random() < 0.1 else None,
            **self.rng.choice(POLICIES),
        )

    def draw_replicas(self) -> tuple[tuple[str, ...], ...]:
        """An existing placement to adopt; it may name too many, dead or unknown nodes."""
        ids = list(self.homes)
        shards = self.rng.randint(0, 4)
        return tuple(tuple(self.rng.sample(ids, self.rng.randint(0, 3))) for _ in range(shards))

    def draw_acks(self) -> Iterator[MoveAcked]:
        """Executors accept, complete, fail, repeat themselves, come late, or keep silent."""
        moves = list(self.records.moves.values())
        if not moves:
            yield MoveAcked(self.now, AckKind.COMPLETED, "unheard-of", "t1", 0)
            return
        for move in self.rng.sample(moves, min(len(moves), self.rng.randint(1, 4))):
            kinds = (AckKind.ACCEPTED, AckKind.COMPLETED, AckKind.COMPLETED, AckKind.FAILED)
            ack = self.ack(move, self.rng.choice(kinds))
            yield from [ack] * self.rng.choice((1, 1, 1, 2))

    def ack(self, move: Move, kind: AckKind) -> MoveAcked:
        return MoveAcked(self.now, kind, move.move_id, move.stream, move.shard)


@pytest.mark.parametrize("first", range(0, SEEDS, 25))
def test_histories(first: int) -> None:
    for seed in range(first, first + 25):
        try:
            History(seed).play()
        except Exception as error:
            error.add_note(f"seed {seed}: History({seed}).play() repeats it")
            raise
