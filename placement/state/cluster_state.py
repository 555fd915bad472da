"""Holds the facts that the reconciler decides from, and alone writes them.

Each write changes a fact and has the publisher make a record of the change, so that what is
published always is what is known: everything can be rebuilt from it. Data flows one
way: controllers -> `ClusterState`, its `moves` and `memory` -> `Publisher` -> `Ready`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from itertools import chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from placement.allocator import View
from placement.assignments import EMPTY, AssignmentTable
from placement.model import COPIED_RESOURCE, Configuration, Decision, NodeView, Ready
from placement.moves import Ledger
from placement.policy import Policy
from placement.rules import NodeLoads
from placement.state.load_log import LoadLog
from placement.state.memory_store import MemoryStore
from placement.state.move_log import MoveLog
from placement.state.publisher import Publisher
from placement.state.stream_catalog import Stream, StreamCatalog
from placement.state.sync_log import SyncLog
from placement.topology import Topology

_NO_NODES: frozenset[int] = frozenset()

# Where the highest epoch of all dropped streams is remembered.
_EPOCH_FLOOR = ("epochs", "highest")


class ReadModel(Protocol):
    """Shows the facts to readers: tests, benchmarks, people's questions."""

    @property
    def configuration(self) -> Configuration:
        """Return the settings that the reconciler decides by."""

    @property
    def now(self) -> int:
        """Return the time of the core in ms."""

    @property
    def nodes(self) -> Mapping[str, NodeView]:
        """Return the view of each node, by its id."""

    @property
    def topology(self) -> Topology:
        """Return the fleet as columns."""

    @property
    def streams(self) -> StreamCatalog:
        """Return the streams with their shards."""

    @property
    def table(self) -> AssignmentTable:
        """Return the planned replicas of every shard."""

    @property
    def ledger(self) -> Ledger:
        """Return the open moves, and the ended ones that are still known."""

    @property
    def memory(self) -> MemoryStore:
        """Return the memory, by kind and name."""

    @property
    def publisher(self) -> Publisher:
        """Return the last publications: epochs, violations, digest."""

    def current_replicas(self, shard: int) -> list[int]:
        """List the nodes that hold a whole replica of a shard, by slot."""

    def node_loads(self) -> NodeLoads | None:
        """Make the loads of the nodes by resource; None where no resource is counted."""


class ClusterState:
    """Holds nodes, streams, planned replicas, moves and memory, and alone changes them."""

    def __init__(self, configuration: Configuration, topology: Topology | None = None) -> None:
        """Begin with an empty state; `topology`: the fleet, where it is known already."""
        self.configuration = configuration
        self.topology = Topology(configuration.levels) if topology is None else topology
        self.table = AssignmentTable([each.led for each in configuration.resources])
        self.ledger = Ledger()
        self.nodes: dict[str, NodeView] = {}
        # Domains by path, with how many nodes stand in each whose location is trusted.
        self.domain_paths: Counter[str] = Counter()
        # Nodes whose location is in doubt or not agreed to.
        self.undecided_locations: set[str] = set()
        # Shards whose replicas are to be observed before anything is done for them.
        self.awaited: set[int] = set()
        self.now = 0
        names = [each.name for each in configuration.resources]
        self._copied_row = names.index(COPIED_RESOURCE) if COPIED_RESOURCE in names else None
        self.streams = StreamCatalog(configuration.default_policy, self.topology, self.table)
        self.publisher = Publisher(self.topology, self.table, self.ledger, self.streams)
        self.memory = MemoryStore(self.publisher)
        known = (self.table, self.ledger, self.streams, self.publisher, self.memory)
        self.moves = MoveLog(configuration, *known)
        self.sync = SyncLog(self.topology, self.streams, self.memory)
        counted = (self.topology, self.table, self.streams, self.publisher)
        self.loads = LoadLog(configuration.resources, *counted, self.current_replicas)

    def begin(self, now: int) -> None:
        """Begin a batch at `now` (ms); the core's time never goes back."""
        self.now = max(self.now, now)
        self.publisher.begin(self.now)

    def finish(self) -> Ready:
        """Publish the shards that changed, and hand the batch over."""
        for shard in self.sync.shards & self.publisher.changed_shards:
            # A replica that has left the shard is another one when it comes back.
            self.sync.note(
                shard, self.sync.nodes_of(shard).intersection(self.current_replicas(shard))
            )
        return self.publisher.finish()

    # Questions

    def with_topology(self, topology: Topology) -> "ClusterState":
        """Make a view of the same facts in another topology, for forecasts and trials.

        It shares everything else, so it is there to be asked and never to be written through.
        """
        made = copy(self)
        made.topology, made.streams = topology, self.streams.with_topology(topology)
        return made

    def view(self) -> View:
        """Make the view of topology and load in which the next plan places.

        Where no node says what it has of any resource, the view counts replicas alone.
        """
        known = self.topology, self.table, self.streams.policy_of, self.streams.spec_of
        loads = self.node_loads()
        return View(*known, None if loads is None or not loads.is_bounded else loads)

    def node_loads(self) -> NodeLoads | None:
        """Make the loads of the nodes by resource; None where no resource is counted."""
        borne, resources = self.borne(), self.configuration.resources
        if borne is None:
            return None
        return NodeLoads(self.topology, resources, borne, np.zeros(len(resources), np.int64))

    def borne(self) -> NDArray[np.int64] | None:
        """Sum what the nodes bear by resource: planned replicas, and those still to leave."""
        if self.table.loads is None:
            return None
        borne = self.table.loads.on_nodes(self.topology.size)
        for node in self.ledger.leaving:
            if node != EMPTY:
                borne[:, node] += self._leaving_from(node)
        return borne

    def borne_by(self, node: int) -> NDArray[np.int64]:
        """Sum what one node bears by resource; see `borne`."""
        assert self.table.loads is not None, "no resource is counted"
        found: NDArray[np.int64] = self.table.loads.on_node(node) + self._leaving_from(node)
        return found

    def bytes_of(self, shard: int) -> int | None:
        """Return the bytes that a copy of the shard transfers; None where they are not counted."""
        row = self._copied_row
        return (
            None if row is None or self.table.loads is None else self.table.loads.load(row, shard)
        )

    def _leaving_from(self, node: int) -> NDArray[np.int64]:
        """Sum the loads of the replicas that moves under way take off a node; followers' loads."""
        resources, columns = self.configuration.resources, self.table.loads
        assert columns is not None, "no resource is counted"
        found = np.zeros(len(resources), np.int64)
        for opened in self.ledger.moves_of_node(node):
            if opened.removed == node and not opened.is_hand_over:
                found += columns.of_shard(opened.shard)
        return np.where([each.led for each in resources], 0, found)

    def current_replicas(self, shard: int) -> list[int]:
        """List the nodes that hold a whole replica, by slot: while a move runs, its source."""
        nodes, opened = self.table.nodes(shard), self.ledger.by_shard.get(shard)
        if opened:
            opened.put_source_back(nodes)
        return nodes

    def in_sync_replicas(self, shard: int) -> list[int]:
        """List the nodes that hold a replica that is complete and in sync, by slot.

        EMPTY stands for those that are not.
        """
        nodes, behind = self.current_replicas(shard), self.sync.nodes_of(shard)
        return [EMPTY if node in behind else node for node in nodes] if behind else nodes

    def backed_off_targets(self, shard: int) -> frozenset[int]:
        """Find the nodes on which a move of the shard has failed just now."""
        backoff, index = self.moves.backoff, self.topology.index
        if not backoff.known:
            return _NO_NODES
        pauses = backoff.pauses_of(self.streams.key(shard), self.now)
        return frozenset(index[node_id] for node_id in pauses if node_id in index)

    # Nodes

    def upsert_node(self, view: NodeView) -> int:
        """Add a node or replace its record; return its index in the topology."""
        condition = (view.liveness, view.administrative, view.guard)
        node = self.topology.upsert(view.node_id, view.attributes, *condition)
        before = self.nodes.get(view.node_id)
        self._count_domains(before, -1)
        self._count_domains(view, 1)
        if view.pending is not None or view.quarantine is not None:
            self.undecided_locations.add(view.node_id)
        else:
            self.undecided_locations.discard(view.node_id)
        self.nodes[view.node_id] = view
        self.publisher.publish_node(view, before)
        return node

    def forget_node(self, node_id: str) -> None:
        """Forget a node that is gone and holds nothing."""
        view = self.nodes.pop(node_id)
        self._count_domains(view, -1)
        self.undecided_locations.discard(node_id)
        self.topology.forget(node_id)
        self.publisher.retract_node(view)

    def _count_domains(self, view: NodeView | None, by: int) -> None:
        """Count the domains around a node whose location is trusted."""
        if view is None or view.quarantine is not None:
            return
        path = view.attributes.location
        while path:
            self.domain_paths[path] += by
            if not self.domain_paths[path]:
                del self.domain_paths[path]
            path = path.rpartition("/")[0]

    # Streams and their shards

    def upsert_stream(self, decision: Decision, policy: Policy | None) -> Stream:
        """Add a stream with the answer to its event, or replace its decision by a revision."""
        known = self.streams.get(decision.stream)
        before = None if known is None else known.decision
        stream = self.streams.upsert(decision, policy)
        self.publisher.publish_decision(decision, before)
        if before is not None and before.spec.expected_load != decision.spec.expected_load:
            self.loads.enter(stream)
        return stream

    def forget_stream(self, name: str) -> None:
        """Forget a stream that has no shards any more."""
        self.publisher.retract_decision(self.streams.forget(name).decision)

    def allocate_slots(
        self, stream: Stream, shards: Iterable[Sequence[object]] = ()
    ) -> Sequence[int]:
        """Add the shards of a stream that is being placed, with empty slots; return their indexes.

        Each gets as many slots as it has replicas to have, and as many as the longest of `shards`,
        which an adopted surplus makes longer than that.
        """
        slots = max(stream.copies, *map(len, shards), 1)
        return self.add_shards(stream, stream.spec.shards, slots)

    def add_slots(self, stream: Stream, slots: int) -> None:
        """Widen the stream's shards to at least this many slots."""
        if stream.shards and self.table.factor(stream.shards[0]) < slots:
            self.table.widen(stream.index, slots)

    def add_shards(self, stream: Stream, count: int, slots: int = 0) -> Sequence[int]:
        """Add `count` shards with empty slots to a stream; return their indexes.

        They have as many slots as the others where `slots` is 0. Their epochs begin above those of
        all streams that were dropped: a stream of the same name may have been, and no epoch of a
        shard comes twice.
        """
        slots = slots or self.table.factor(stream.shards[0])
        added = self.streams.add_shards(stream, count, slots)
        self.publisher.enter_shards(added, self._epoch_floor)
        self.loads.enter(stream)
        return added

    def await_replicas(self, shards: Iterable[int]) -> None:
        """Leave shards, of which nothing is published yet, alone until they have been observed."""
        self.awaited.update(shards)

    def adopt_replicas(self, shards: Sequence[int], lists: Sequence[Sequence[int]]) -> None:
        """Put the replicas of awaited shards where they were observed, by shard, leader first."""
        self.awaited.difference_update(shards)
        index = np.asarray(shards, np.int64)
        # Streams may have been dropped since the shards were entered.
        self.publisher.begin_epochs(index, self._epoch_floor)
        counts = np.fromiter(map(len, lists), np.int64, len(lists))
        nodes = np.fromiter(chain.from_iterable(lists), np.int64, int(counts.sum()))
        self.place_replicas(index, counts, nodes)

    @property
    def _epoch_floor(self) -> int:
        known = self.memory.get(_EPOCH_FLOOR)
        return int(known.body["epoch"]) if known else 0

    def drop_shards(self, stream: Stream) -> None:
        """Remove a stream's assignments and violations, and free its shards."""
        self.sync.forget(stream.shards)
        self.loads.forget(stream)
        self.awaited.difference_update(stream.shards)
        highest = self.publisher.retract_shards(stream)
        if stream.shards:
            self.memory.remember(*_EPOCH_FLOOR, {"epoch": max(highest, self._epoch_floor)})
        self.streams.drop_shards(stream)

    # Replicas as planned

    def load_replicas(
        self, shards: NDArray[np.int64], counts: NDArray[np.int64], nodes: NDArray[np.int64]
    ) -> None:
        """Put the replicas of empty shards where they are already, see `AssignmentTable.fill`."""
        self.table.fill(shards, counts, nodes)

    def load_shard(self, shard: int, nodes: Sequence[int]) -> None:
        """Put a shard's nodes where they are already, by slot; EMPTY leaves a gap."""
        for slot, node in enumerate(nodes):
            self.table.set(shard, slot, node)

    def place_replicas(
        self, shards: NDArray[np.int64], counts: NDArray[np.int64], nodes: NDArray[np.int64]
    ) -> None:
        """Put the first replicas into empty shards, see `AssignmentTable.fill`."""
        self.table.fill(shards, counts, nodes)
        self.publisher.mark_all_changed(shards.tolist())

    def lay_out(self, shard: int, nodes: Sequence[int]) -> None:
        """Put these nodes into the shard's slots, and empty those behind them."""
        self.table.lay_out(shard, nodes)
        self.publisher.mark_changed(shard)

    def clear_slot(self, shard: int, slot: int) -> None:
        """Remove the replica in a slot from the plan; the replicas behind it move up."""
        self.lay_out(shard, self.streams.nodes_without(shard, slot))

    def change_leader(self, shard: int, slot: int) -> None:
        """Make the replica in `slot` the leader, and put the former leader into that slot."""
        self.table.swap(shard, 0, slot)
        self.publisher.mark_changed(shard)

    def change_leaders(self, slots: Mapping[int, int]) -> None:
        """Make the replica in a slot, given by shard, the leader; the shards have no open move."""
        self.table.lead(slots)
        self.publisher.mark_all_changed(slots)
