"""The second query of the application: reports of loads, beside the batches that decide.

A minute's reports are a hundred megabytes. Read in the same micro-batches they would make every
decision wait, so they have batches of their own, every other second, and only their events go into
the next batch that decides. Where resources are not configured there is no such query.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from placement.load_reports import LoadBands
from placement.model import Amounts, LoadsReported, NodeChanged
from schemas.topics import NODE_LOADS, full_name
from streaming.ingest import (
    LOAD_STATE_SCHEMA,
    OUTPUT_SCHEMA,
    LoadFilter,
    LoadPacking,
    initial_node_loads,
    pack_load_stream,
    subscribe,
)
from streaming.recovery import Recovered
from streaming.spark import session_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

# Often enough for disks that fill up, seldom enough to cost little.
INTERVAL = "2 seconds"
# For each shard of loads. At 100 kB each they fit into the smallest heap; a thousand nodes that
# report every 30 s send 66 in an interval.
RECORDS_PER_BATCH_MAX = 256
# Batches whose events have not been taken; with more the query waits.
BATCHES_WAITING_MAX = 8
# How soon a query that waits notices that it is to stop.
_LOOK_SECONDS = 0.2
# Figures that are kept of nodes that have not registered yet, until they do.
UNHEARD_MAX = 100_000


class LoadIntake:
    """Hands batches of load events from their query to the one that decides."""

    def __init__(self) -> None:
        self._waiting: deque[list[bytes]] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, payloads: list[bytes]) -> None:
        """Add a batch; wait while too many have not been taken."""
        with self._changed:
            while len(self._waiting) >= BATCHES_WAITING_MAX and not self._closed:
                self._changed.wait(_LOOK_SECONDS)
            if not self._closed:
                self._waiting.append(payloads)

    def take(self) -> list[bytes]:
        """Return all that has come since the last call, in order."""
        with self._changed:
            taken = [payload for batch in self._waiting for payload in batch]
            self._waiting.clear()
            self._changed.notify_all()
        return taken

    def close(self) -> None:
        """Take nothing any more, and let nobody wait."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()


class UnheardLoads:
    """Keeps what was reported of nodes that are not known yet, until they register.

    A node registers on one topic and reports on another, and its first report may come first. It
    would be said again only after minutes.
    """

    def __init__(self) -> None:
        self._by_node: dict[str, list[LoadsReported]] = {}
        self._ready: list[LoadsReported] = []
        self._figures = 0

    def keep(self, event: LoadsReported) -> None:
        """Keep an event of a node that is not known, as long as there is room."""
        if self._figures + len(event.loads) <= UNHEARD_MAX:
            self._figures += len(event.loads)
            self._by_node.setdefault(event.node_id, []).append(event)

    def note_change(self, event: NodeChanged) -> None:
        """Let the events of a node go on that is known now."""
        self._ready += self._by_node.pop(event.node_id, [])

    def take(self) -> list[LoadsReported]:
        """Return the events that may be applied now, in the order of their nodes' changes."""
        taken, self._ready = self._ready, []
        self._figures -= sum(len(each.loads) for each in taken)
        return taken


def known_loads(recovered: Recovered) -> dict[str, list[tuple[str, int, Amounts]]]:
    """List by node what is known of the shards that it holds.

    The word of one node serves for all that hold the shard, without what only its leader bears: a
    follower that agrees says nothing new.
    """
    state = recovered.reconciler.state
    ids, led = state.topology.ids, {r.name for r in recovered.configuration.resources if r.led}
    found: dict[str, list[tuple[str, int, Amounts]]] = {}
    for load in recovered.loads:
        shared = tuple(pair for pair in load.amounts if pair[0] not in led)
        shard = state.streams[load.stream].shards[load.shard]
        holders = {ids[node] for node in state.current_replicas(shard) if node >= 0}
        for name in sorted(holders | {load.node_id}):
            amounts = load.amounts if name == load.node_id else shared
            found.setdefault(name, []).append((load.stream, load.shard, amounts))
    return found


class LoadQuery:
    """The query that reads loads.v1; made before the state that it begins with changes."""

    def __init__(self, recovered: Recovered, bands: LoadBands, load_shards: int) -> None:
        self._bands, self._load_shards = bands, load_shards
        self._name = f"placer-{recovered.configuration.cell}-loads"
        self._resources = frozenset(each.name for each in recovered.configuration.resources)
        self._positions = dict(recovered.positions[NODE_LOADS])
        self._known, self._now = known_loads(recovered), recovered.now
        self._capacities = {v.node_id: v.attributes.capacities or () for v in recovered.nodes}

    def start(
        self,
        spark: "SparkSession",
        kafka: Mapping[str, str],
        prefix: str,
        checkpoint: str,
        put: Callable[[list[bytes], float], None],
    ) -> "StreamingQuery":
        """Start; `put` receives the payloads of each batch, and the seconds that it took."""
        positions = {full_name(NODE_LOADS, prefix): self._positions}
        most = RECORDS_PER_BATCH_MAX * self._load_shards
        # What is lost is said anew: it is no reason to end what decides.
        records = subscribe(spark, kafka, positions, most, fail_on_loss=False)
        packing = LoadPacking(self._resources, self._load_shards, self._bands)
        packed = pack_load_stream(records, packing)
        outputs = packed.groupBy("load_shard").transformWithState(
            LoadFilter(self._bands),
            OUTPUT_SCHEMA,
            "Update",
            "None",
            initialState=spark.createDataFrame(self._rows(), LOAD_STATE_SCHEMA).groupBy(
                "load_shard"
            ),
        )

        def hand_over(batch: "DataFrame", _: int) -> None:
            began = time.perf_counter()
            payloads = batch.toArrow()["payload"].to_pylist()
            put(payloads, time.perf_counter() - began)

        # A query keeps what the session says at its start.
        with session_options(spark, {"spark.sql.shuffle.partitions": str(self._load_shards)}):
            return (
                outputs.writeStream.queryName(self._name)
                .outputMode("update")
                .trigger(processingTime=INTERVAL)
                .option("checkpointLocation", checkpoint)
                .foreachBatch(hand_over)
                .start()
            )

    def _rows(self) -> list[tuple[int, str, bytes]]:
        """Make the operator's initial state; what it is made of is needed no longer."""
        known, self._known = self._known, {}
        return initial_node_loads(
            known, self._capacities, self._bands, self._load_shards, self._now
        )
