"""Records the loads of shards: what nodes report, and what follows from it for the others.

A shard has the load that was reported; else what its stream expects; else the mean of its stream's
reported shards; else the mean of all. The columns of the assignment table hold the result, so that
totals of nodes are always at hand. Reported loads are published (`load.v1`) and in the digest.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY, AssignmentTable
from placement.hashing import digest64
from placement.model import Amounts, ReportedLoad, Resource, ShardLoad, StreamSpec
from placement.state import digest
from placement.state.publisher import Publisher
from placement.state.stream_catalog import Stream, StreamCatalog
from placement.topology import Topology

Integers = NDArray[np.int64]

# The most that a shard can have of a resource, 64 TiB where it is counted in bytes. As many
# replicas as a node can hold add up to less than 2^63.
LOAD_MAX = 1 << 46

UNKNOWN = -1


class LoadLog:
    """Holds the reported loads of shards, with the writes of them."""

    def __init__(
        self,
        resources: Sequence[Resource],
        topology: Topology,
        table: AssignmentTable,
        streams: StreamCatalog,
        publisher: Publisher,
        current_replicas: Callable[[int], Sequence[int]],
    ) -> None:
        """Begin without reports; `current_replicas`: the nodes with a whole replica of a shard."""
        self.resources = tuple(resources)
        self._names = [each.name for each in resources]
        self._topology, self._table = topology, table
        self._streams, self._publisher = streams, publisher
        self._current_replicas = current_replicas
        rows = len(self.resources)
        self._reported = np.full((rows, 0), UNKNOWN, np.int64)
        # Whose word a shard's load is, as a hash of the node's id: an index may get another node.
        self._speakers = np.zeros(0, np.uint64)
        self._hashes = np.zeros(0, np.uint64)
        self._total, self._count = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        # What is known of shards that are yet to be placed, by stream and shard.
        self._foreseen: dict[str, dict[int, Integers]] = {}

    # Questions

    def reported(self, shard: int) -> Integers:
        """Read what was reported of a shard by resource, UNKNOWN where nothing was."""
        self._reserve(shard + 1)
        found: Integers = self._reported[:, shard]
        return found

    def amounts(self, given: Amounts | None) -> Integers:
        """Make a column of amounts by name, UNKNOWN where there is none."""
        found = dict(given or ())
        amounts = [min(found.get(name, UNKNOWN), LOAD_MAX) for name in self._names]
        return np.asarray(amounts, np.int64)

    def of_new_shard(self, spec: StreamSpec) -> Integers:
        """Compute the load with which a shard of the stream counts until it is reported."""
        columns = self._table.loads
        if columns is None:
            return np.zeros(0, np.int64)
        stream = self._streams.get(spec.stream)
        known, unknown = self._derive(spec, () if stream is None else stream.shards)
        return known + unknown * columns.mean

    def of_new_shards(self, spec: StreamSpec) -> Integers:
        """Compute the loads with which the shards of a stream are placed, by resource.

        A column for each shard where something is foreseen of them, else one for all.
        """
        base, foreseen = self.of_new_shard(spec)[:, None], self._foreseen.get(spec.stream)
        if not foreseen:
            return base
        said = np.full((len(self._names), spec.shards), UNKNOWN, np.int64)
        for shard, amounts in foreseen.items():
            if shard < spec.shards:
                said[:, shard] = amounts
        known = said != UNKNOWN
        count = known.sum(axis=1, keepdims=True)
        mean = np.where(known, said, 0).sum(axis=1, keepdims=True) // np.maximum(count, 1)
        expected = self.amounts(spec.expected_load)[:, None]
        return np.where(known, said, np.where((expected == UNKNOWN) & (count > 0), mean, base))

    def lacks(self, node: int, load: ReportedLoad) -> bool:
        """Return whether a node's word on a shard counts and says what is not known yet.

        A word that a leader said before it led counts once; one of two other replicas only if it is
        larger, so that they do not take turns.
        """
        shard, said = self._shard_of(load), self.amounts(load.amounts)
        if shard == EMPTY or not self._takes(node, shard, said):
            return False
        own = int(self._speakers[shard]) == int(self._topology.digests[node])
        if not own and node == self._current_replicas(shard)[0]:
            return True
        before = self.reported(shard)
        differs = (said != UNKNOWN) & (said != before) if own else said > before
        return bool(differs.any())

    # Writes

    def enter(self, stream: Stream) -> None:
        """Count the stream's shards that are not reported by what its spec and its others say."""
        if self.resources and stream.shards:
            self._count_stream(stream)

    def report(self, node: int, loads: Iterable[ReportedLoad]) -> int:
        """Record a node's word on shards that it holds; return how many words were ignored.

        The word of a shard's leader counts, or the largest while the leader has said nothing.
        """
        ignored, taken = 0, dict[str, list[int]]()
        for each in loads:
            shard = self._shard_of(each)
            amounts = self.amounts(each.amounts)
            if shard == EMPTY or not self._takes(node, shard, amounts):
                ignored += 1
                continue
            self._publish(each, shard, node, amounts)
            taken.setdefault(each.stream, []).append(shard)
        for name, shards in taken.items():
            self._count_stream(self._streams[name], shards)
        self._count_fleet()
        return ignored

    def foresee(self, records: Iterable[ShardLoad]) -> None:
        """Note what is known of shards of streams that are yet to be placed."""
        for each in records:
            stream = self._foreseen.setdefault(each.stream, {})
            stream[each.shard] = self.amounts(each.amounts)

    def learn(self, records: Sequence[ShardLoad]) -> None:
        """Record what is known of shards of which nothing was known, from elsewhere than a node."""
        self.load(records)
        for name in dict.fromkeys(each.stream for each in records):
            self._count_stream(self._streams[name])
        self._count_fleet()

    def forget(self, stream: Stream) -> None:
        """Forget what was reported of a stream's shards, which are dropped."""
        shards = np.asarray(stream.shards, np.int64)
        if not len(self._hashes) or not len(shards):
            return
        self._reserve(int(shards.max()) + 1)
        for number in np.flatnonzero(self._hashes[shards]).tolist():
            self._publisher.publish_load(stream.name, number, None)
        self._publisher.exchange_loads(self._hashes[shards], np.zeros(0, np.uint64))
        self._add_up(shards, -1)
        self._hashes[shards], self._speakers[shards] = 0, 0
        self._reported[:, shards] = UNKNOWN
        self._count_fleet()

    def load(self, records: Iterable[ShardLoad]) -> None:
        """Restore what was published.

        Raises KeyError for a stream that is not known, and IndexError for a shard.
        """
        # Topics are read partition by partition, in which the streams alternate.
        by_stream: dict[str, list[ShardLoad]] = {}
        for each in records:
            by_stream.setdefault(each.stream, []).append(each)
        for name, mine in by_stream.items():
            of = self._streams[name].shards
            shards = np.asarray([of[each.shard] for each in mine], np.int64)
            self._reserve(int(shards.max()) + 1)
            hashes = np.fromiter(map(digest.of_load, mine), np.uint64, len(mine))
            self._publisher.exchange_loads(self._hashes[shards], hashes)
            self._hashes[shards] = hashes
            self._speakers[shards] = [digest64("node", each.node_id) for each in mine]
            self._reported[:, shards] = np.stack([self.amounts(e.amounts) for e in mine], axis=1)
            self._add_up(shards, 1)

    def resume(self) -> None:
        """Count all streams, once everything is restored."""
        if self.resources:
            for stream in self._streams.values():
                self.enter(stream)
            self._count_fleet()

    def _shard_of(self, load: ReportedLoad) -> int:
        stream = self._streams.get(load.stream)
        if stream is None or load.shard >= len(stream.shards):
            return EMPTY
        if self._streams.other_uid(load.stream, load.uid) is not None:
            return EMPTY
        return stream.shards[load.shard]

    def _takes(self, node: int, shard: int, amounts: Integers) -> bool:
        """Return whether the node's word on the shard is to be believed."""
        nodes, before = self._current_replicas(shard), self.reported(shard)
        if node not in nodes or (amounts == UNKNOWN).all():
            return False
        speaker, names = int(self._speakers[shard]), self._topology.digests
        if node == nodes[0] or speaker in (0, int(names[node])):
            return True
        led = nodes[0] != EMPTY and speaker == int(names[nodes[0]])
        return not led and bool((amounts >= before).all())

    def _publish(self, load: ReportedLoad, shard: int, node: int, amounts: Integers) -> None:
        one = np.asarray([shard], np.int64)
        self._add_up(one, -1)
        said = np.where(amounts == UNKNOWN, self._reported[:, shard], amounts)
        self._reported[:, shard], self._speakers[shard] = said, self._topology.digests[node]
        self._add_up(one, 1)
        pairs = zip(self._names, said.tolist(), strict=True)
        known = tuple(sorted((name, amount) for name, amount in pairs if amount != UNKNOWN))
        node_id, now = self._topology.ids[node], self._publisher.now
        record = ShardLoad(load.stream, load.shard, known, node_id, now)
        hashed = np.asarray([digest.of_load(record)], np.uint64)
        self._publisher.exchange_loads(self._hashes[one], hashed)
        self._hashes[one] = hashed
        self._publisher.publish_load(load.stream, load.shard, record)

    def _add_up(self, shards: Integers, by: int) -> None:
        """Count what was reported of the shards into the fleet's sums, or take it out."""
        said = self._reported[:, shards]
        self._total += by * np.where(said == UNKNOWN, 0, said).sum(axis=1)
        self._count += by * (said != UNKNOWN).sum(axis=1)

    def _count_fleet(self) -> None:
        if self._table.loads is not None:
            self._table.loads.mean = self._total // np.maximum(self._count, 1)

    def _derive(self, spec: StreamSpec, shards: Sequence[int]) -> tuple[Integers, Integers]:
        """Compute the load of the stream's shards that are not reported.

        Returns it by resource, and 1 for each resource of which nothing is known but the mean of
        the fleet.
        """
        expected = self.amounts(spec.expected_load)
        index = np.asarray(shards, np.int64)
        self._reserve(int(index.max(initial=-1)) + 1)
        said = self._reported[:, index]
        count = (said != UNKNOWN).sum(axis=1)
        mean = np.where(said == UNKNOWN, 0, said).sum(axis=1) // np.maximum(count, 1)
        known = np.where(expected != UNKNOWN, expected, np.where(count > 0, mean, 0))
        return known, ((expected == UNKNOWN) & (count == 0)).astype(np.int64)

    def _count_stream(self, stream: Stream, reported: Sequence[int] | None = None) -> None:
        """Put the loads of the stream's shards into the columns.

        `reported`: the shards of which something was said; the others need a look only while some
        are not reported.
        """
        every = np.asarray(stream.shards, np.int64)
        self._reserve(int(every.max()) + 1)
        whole = (self._reported[:, every] != UNKNOWN).all()
        shards = np.asarray(reported, np.int64) if whole and reported is not None else every
        base, unknown = self._derive(stream.spec, stream.shards)
        said = self._reported[:, shards]
        silent = said == UNKNOWN
        self._table.change_loads(
            shards,
            np.where(silent, base[:, None], said),
            np.where(silent, unknown[:, None], 0),
        )

    def _reserve(self, shards: int) -> None:
        if shards > len(self._hashes):
            more = max(shards - len(self._hashes), len(self._hashes))
            self._hashes = np.pad(self._hashes, (0, more))
            self._speakers = np.pad(self._speakers, (0, more))
            self._reported = np.pad(self._reported, ((0, 0), (0, more)), constant_values=UNKNOWN)
