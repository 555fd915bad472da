"""The floor: the application's pipeline with its settings and without its work.

Kafka source -> `mapInArrow` that changes nothing -> `transformWithState` that counts under one key
-> `foreachBatch` with `toArrow` -> one Kafka transaction with a record per event. What it takes is
what Spark, its Python workers and Kafka take on this machine; the difference is ours. Heartbeats
are read and carried into Python, where they are dropped: the least that can be done with them.
"""

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import typer
from confluent_kafka import Producer
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from schemas.topics import INPUT_TOPICS, full_name
from streaming.brokers import connect
from streaming.cli.signals import stop_on_signals
from streaming.ingest import subscribe
from streaming.observability import BatchTrace
from streaming.settings.sections import SparkSettings
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
    streams = full_name("streams.v1", prefix)
    trace = BatchTrace(trace_file)
    producer = _producer(bootstrap, prefix)
    defaults = SparkSettings()
    spark = StartingSession(1, defaults.driver_memory, {}, checkpoint).finish()

    def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.filter(pc.equal(batch["topic"], streams))

    def apply(batch: DataFrame, batch_id: int) -> None:
        trace.begin(batch_id)
        with trace.part("toArrow"):
            events = batch.toArrow().to_pylist()
        if events:
            with trace.part("commit"):
                _commit(producer, full_name("decisions.v1", prefix), events)

    positions = {full_name(topic, prefix): {0: 0} for topic in INPUT_TOPICS}
    records = subscribe(
        spark, {"bootstrap.servers": bootstrap}, positions, defaults.max_offsets_per_trigger
    )
    keyed = records.select(f.lit(0).alias("shard"), "topic", "key", "value")
    counted = (
        keyed.mapInArrow(passed, SCHEMA)
        .coalesce(1)
        .groupBy("shard")
        .transformWithState(Counter(), "key binary, value binary", "Update", "None")
    )
    writer = counted.writeStream.outputMode("update").foreachBatch(apply)
    try:
        with stop_on_signals() as stop:
            query = writer.option("checkpointLocation", str(checkpoint / "floor")).start()
            typer.echo("ready")
            _watch(stop, query, trace)
            query.stop()
    finally:
        close_session(spark)


def _watch(stop: threading.Event, query: Any, trace: BatchTrace) -> None:
    while not stop.wait(LOOK_SECONDS):
        if not query.isActive:
            raise RuntimeError(f"the query ended: {query.exception()}")
        trace.write_last(query)


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
