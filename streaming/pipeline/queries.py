"""Starts the streaming query that decides, and rehearses it on a standby.

input topics -> pack (executors) -> NodeLifecycle (state) -> foreachBatch
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from placement.liveness import Clock, Timers
from placement.load_reports import LoadBands
from placement.model import FlapPolicy, NodeView
from schemas.topics import DECIDING_TOPICS, full_name
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

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

# A batch of nothing but a tick, with all that Spark does for the first time.
REHEARSAL_TIMEOUT_SECONDS = 60.0


def start_decision_query(
    spark: "SparkSession",
    settings: Settings,
    positions: Mapping[str, Mapping[int, int]],
    nodes: list[NodeView],
    clocks: Mapping[int, Clock],
    checkpoint: str,
    apply: Callable[["DataFrame", int], None],
) -> "StreamingQuery":
    """Start the query at `positions`: next offset by short topic name and partition.

    `nodes` and `clocks` make the operator's initial state; `apply` receives each batch.
    """
    timers, shards = timers_of(settings), settings.spark.topology_shards
    prefix = settings.topics.prefix
    kafka = {
        **spark_client_options(settings.resolved_kafka_options()),
        "bootstrap.servers": settings.kafka.bootstrap_servers,
    }
    begin = {full_name(topic, prefix): dict(positions[topic]) for topic in DECIDING_TOPICS}
    records = subscribe(spark, kafka, begin, settings.spark.max_offsets_per_trigger)
    packing = make_packing_plan(prefix, shards, timers, settings.resources)
    packed = pack_stream(records, packing)
    tables = initial_liveness_tables(nodes, clocks, timers, shards)
    initial = spark.createDataFrame(tables, STATE_SCHEMA).groupBy("topology_shard")
    outputs = packed.groupBy("topology_shard").transformWithState(
        NodeLifecycle(timers), OUTPUT_SCHEMA, "Update", "None", initialState=initial
    )
    return (
        outputs.writeStream.queryName(f"placer-{settings.cell}")
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
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
    """Run the query for one batch, so that classes are loaded and workers forked.

    Nobody needs `checkpoint` afterwards. `positions`: there has to be a record behind one of them.
    Returns whether a batch came through before `stopping` said so.
    """
    done = threading.Event()

    def read(batch: "DataFrame", _: int) -> None:
        batch.toArrow()
        done.set()

    query = start_decision_query(spark, settings, positions, [], {}, checkpoint, read)
    deadline = time.monotonic() + REHEARSAL_TIMEOUT_SECONDS
    try:
        while query.isActive and not done.wait(0.05) and not stopping():
            if time.monotonic() > deadline:
                break
    finally:
        query.stop()
    return done.is_set()


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
