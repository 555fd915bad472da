"""The floor: the application's pipeline with its settings and without its work.

Requests: Kafka source -> `foreachBatch` with `toArrow` -> one Kafka transaction with a record per
event. Nodes, beside it and as often as in the application: Kafka source -> `mapInArrow` that drops
all -> `transformWithState` that counts under one key -> `foreachBatch` with `toArrow`. That is the
time that Spark, its Python workers and Kafka take on this machine; the difference is ours.
Heartbeats are read and carried into Python, where they are dropped: the least that can be done.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from confluent_kafka import Producer
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from schemas.topics import NODE_TOPICS, REQUEST_TOPICS, full_name
from streaming.brokers import connect
from streaming.ingest import subscribe
from streaming.observability import BatchTrace
from streaming.pipeline import HEARTBEATS_SECONDS_MAX
from streaming.settings.sections import SparkSettings
from streaming.signals import stop_on_signals
from streaming.spark import StartingSession, close_session

SCHEMA = "shard int, topic string, key binary, value binary"
LOOK_SECONDS = 0.2


class Counter(StatefulProcessor):
    """Counts the events of one key and lets them through."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the one value."""
        self._count = handle.getValueState("count", "count bigint")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterable[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Read the count, write it, and yield what came."""
        del key, timerValues
        before = self._count.get()
        events = list(rows)
        self._count.update(((before[0] if before else 0) + len(events),))
        for event in events:
            yield Row(key=event.key, value=event.value)

    def close(self) -> None:
        """Nothing is held open."""


def run(bootstrap: str, prefix: str, checkpoint: Path, trace_file: Path) -> None:
    """Run until SIGTERM."""
    trace = BatchTrace(trace_file, "requests")
    producer = _producer(bootstrap, prefix)
    defaults = SparkSettings()
    spark = StartingSession(1, defaults.driver_memory, {}, checkpoint).finish()

    def read(topics: Sequence[str]) -> DataFrame:
        positions = {full_name(topic, prefix): {0: 0} for topic in topics}
        options = {"bootstrap.servers": bootstrap}
        return subscribe(spark, options, positions, defaults.max_offsets_per_trigger)

    def dropped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, 0)

    def count(batch: DataFrame, _: int) -> None:
        batch.toArrow()

    def answer(batch: DataFrame, batch_id: int) -> None:
        trace.begin(batch_id)
        with trace.part("toArrow"):
            events = batch.toArrow().to_pylist()
        with trace.part("commit"):
            _commit(producer, full_name("decisions.v1", prefix), events)

    keyed = read(NODE_TOPICS).select(f.lit(0).alias("shard"), "topic", "key", "value")
    counted = (
        keyed.mapInArrow(dropped, SCHEMA)
        .coalesce(1)
        .groupBy("shard")
        .transformWithState(Counter(), "key binary, value binary", "Update", "None")
    )
    nodes = counted.writeStream.outputMode("update").foreachBatch(count)
    nodes = nodes.trigger(processingTime=f"{HEARTBEATS_SECONDS_MAX} seconds")
    requests = read(REQUEST_TOPICS).writeStream.foreachBatch(answer)
    try:
        with stop_on_signals() as stop:
            queries = [
                nodes.option("checkpointLocation", str(checkpoint / "nodes")).start(),
                requests.option("checkpointLocation", str(checkpoint / "requests")).start(),
            ]
            typer.echo("ready")
            _watch(stop, queries, trace)
            for query in queries:
                query.stop()
    finally:
        close_session(spark)


def _watch(stop: threading.Event, queries: Sequence[Any], trace: BatchTrace) -> None:
    while not stop.wait(LOOK_SECONDS):
        for query in queries:
            if not query.isActive:
                raise RuntimeError(f"the query ended: {query.exception()}")
        trace.write_last(queries[-1])


def _producer(bootstrap: str, prefix: str) -> Producer:
    config = {"transactional.id": f"{prefix}floor", "compression.type": "lz4", "linger.ms": 20}
    producer: Producer = connect(Producer, bootstrap, config, {})
    producer.init_transactions()
    return producer


def _commit(producer: Producer, topic: str, events: list[dict[str, Any]]) -> None:
    producer.begin_transaction()
    for event in events:
        producer.produce(topic, event["value"], event["key"])
    producer.commit_transaction()


def main(
    bootstrap: Annotated[str, typer.Option()],
    prefix: Annotated[str, typer.Option()],
    checkpoint: Annotated[Path, typer.Option()],
    trace: Annotated[Path, typer.Option()],
) -> None:
    """The command that the benchmark starts."""
    run(bootstrap, prefix, checkpoint, trace)


if __name__ == "__main__":
    typer.run(main)
