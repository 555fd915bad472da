"""Starts the streaming queries that decide, and rehearses them on a standby.

nodes, detector, inventory -> pack (executors) -> NodeLifecycle (state) -> foreachBatch
streams, acks, operator    ------------------------------------------> foreachBatch

Heartbeats are many, and a batch of them takes a stage of Python and a state store. What is asked
for goes past both.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from placement.liveness import Clock, Timers
from placement.load_reports import LoadBands
from placement.model import FlapPolicy, NodeView
from schemas.topics import DECIDING_TOPICS, NODE_TOPICS, REQUEST_TOPICS, full_name
from streaming.ingest import (
    OUTPUT_SCHEMA,
    STATE_SCHEMA,
    NodeLifecycle,
    initial_liveness_tables,
    make_packing_plan,
    pack_stream,
    subscribe,
)
from streaming.settings import Settings, spark_client_options
from streaming.spark import QueryFailed, find_disk_fault, session_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

# Between batches of requests Spark is asked once one has come; this is for the time before the
# first.
REQUESTS_POLLING_DELAY = "50ms"
# A batch of nothing but a tick, with all that Spark does for the first time.
REHEARSAL_TIMEOUT_SECONDS = 60.0


def start_node_query(
    spark: "SparkSession",
    settings: Settings,
    positions: Mapping[str, Mapping[int, int]],
    nodes: list[NodeView],
    clocks: Mapping[int, Clock],
    checkpoint: str,
    apply: Callable[["DataFrame", int], None],
) -> "StreamingQuery":
    """Start the query on nodes at `positions`: next offset by short topic name and partition.

    `nodes` and `clocks` make the operator's initial state; `apply` receives each batch.
    """
    timers, shards = timers_of(settings), settings.spark.topology_shards
    records = _subscribe(spark, settings, positions, NODE_TOPICS)
    packing = make_packing_plan(settings.topics.prefix, shards, timers, settings.resources)
    packed = pack_stream(records, packing)
    tables = initial_liveness_tables(nodes, clocks, timers, shards)
    initial = spark.createDataFrame(tables, STATE_SCHEMA).groupBy("topology_shard")
    outputs = packed.groupBy("topology_shard").transformWithState(
        NodeLifecycle(timers), OUTPUT_SCHEMA, "Update", "None", initialState=initial
    )
    return _start(outputs, settings, "nodes", checkpoint, apply)


def start_request_query(
    spark: "SparkSession",
    settings: Settings,
    positions: Mapping[str, Mapping[int, int]],
    checkpoint: str,
    apply: Callable[["DataFrame", int], None],
    topics: Sequence[str] = REQUEST_TOPICS,
) -> "StreamingQuery":
    """Start the query on requests; `apply` receives the records of each batch as they are."""
    records = _subscribe(spark, settings, positions, topics)
    with session_options(spark, {"spark.sql.streaming.pollingDelay": REQUESTS_POLLING_DELAY}):
        return _start(records, settings, "requests", checkpoint, apply)


def _subscribe(
    spark: "SparkSession",
    settings: Settings,
    positions: Mapping[str, Mapping[int, int]],
    topics: Sequence[str],
) -> "DataFrame":
    begin = {full_name(topic, settings.topics.prefix): dict(positions[topic]) for topic in topics}
    kafka = source_options(settings)
    return subscribe(spark, kafka, begin, settings.spark.max_offsets_per_trigger)


def source_options(settings: Settings) -> dict[str, str]:
    """Kafka's options for Spark's source, as all queries have them."""
    return {
        **spark_client_options(settings.resolved_kafka_options()),
        "bootstrap.servers": settings.kafka.bootstrap_servers,
    }


def _start(
    outputs: "DataFrame",
    settings: Settings,
    name: str,
    checkpoint: str,
    apply: Callable[["DataFrame", int], None],
) -> "StreamingQuery":
    return (
        outputs.writeStream.queryName(f"placer-{settings.cell}-{name}")
        .outputMode("update")
        .option("checkpointLocation", f"{checkpoint}/{name}")
        .foreachBatch(apply)
        .start()
    )


def rehearse(
    spark: "SparkSession",
    settings: Settings,
    positions: Mapping[str, Mapping[int, int]],
    checkpoint: str,
    stopping: Callable[[], bool],
) -> bool:
    """Run both queries for one batch, so that classes are loaded and workers forked.

    Nobody needs `checkpoint` afterwards. `positions`: there has to be a record about a node behind
    one of them. Returns whether the batches came through before `stopping` said so. Raises
    QueryFailed where Spark ended a query, or its batch takes too long.
    """
    done = [threading.Event(), threading.Event()]

    def read_nodes(batch: "DataFrame", _: int) -> None:
        batch.toArrow()
        done[0].set()

    def read_requests(batch: "DataFrame", _: int) -> None:
        batch.toArrow()
        done[1].set()

    place = (spark, settings, positions)
    queries = [
        start_node_query(*place, [], {}, checkpoint, read_nodes),
        start_request_query(*place, checkpoint, read_requests, DECIDING_TOPICS),
    ]
    deadline = time.monotonic() + REHEARSAL_TIMEOUT_SECONDS
    try:
        for query, event in zip(queries, done, strict=True):
            while not event.wait(0.05) and not stopping():
                if not query.isActive:
                    said = failure_text(query)
                    fault = find_disk_fault(settings.checkpoint, said)
                    raise fault or QueryFailed(said.splitlines()[0])
                if time.monotonic() > deadline:
                    raise QueryFailed(
                        f"no batch came through within {REHEARSAL_TIMEOUT_SECONDS:g} s"
                    )
    finally:
        for query in queries:
            query.stop()
    return all(event.is_set() for event in done)


def failure_text(query: "StreamingQuery") -> str:
    """Say why Spark ended a query, in its own words, of which there are many lines."""
    error = query.exception()
    text = str(error) if error else "no error was reported"
    return f"Spark ended the query: {text.strip()}"


def start_workers(spark: "SparkSession") -> None:
    """Run a job of nothing through a Python worker: the daemon that forks them imports for a
    second, in which the driver has other things to do."""
    spark.range(1).mapInArrow(lambda batches: batches, "id long").toArrow()


def timers_of(settings: Settings) -> Timers:
    """The liveness timers in ms."""
    liveness = settings.liveness
    flaps = FlapPolicy(
        liveness.flap_transitions,
        round(liveness.flap_window_seconds * 1000),
        round(liveness.hold_down_seconds * 1000),
        round(liveness.hold_down_max_seconds * 1000),
    )
    return Timers(
        round(liveness.suspect_after_seconds * 1000),
        round(liveness.dead_after_seconds * 1000),
        flaps,
        round(liveness.incarnation_grace_seconds * 1000),
    )


def bands_of(settings: Settings) -> LoadBands:
    """The bands of the filter of loads."""
    loads = settings.loads
    return LoadBands(
        round(loads.half_life_seconds * 1000),
        loads.band_relative,
        loads.band_capacity,
        loads.suspicion_factor,
        loads.agreeing_reports,
    )


def tick_interval_seconds(settings: Settings) -> float:
    """Return the pause between ticks. Short timers need more ticks, as a silence clock advances by
    at most `gap_max_ms` with each."""
    return min(settings.tick.interval_seconds, timers_of(settings).gap_max_ms / 2000)
