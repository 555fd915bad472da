"""Runs the queries beside each other and hands their batches to the one applier, in turn.

One query reads what is said of nodes, one the requests, a third the reports of loads. The order
between topics is that in which their batches are applied. What was said of nodes before a request
was made is applied before it: a stream that is created behind a registration finds the node.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from schemas.topics import REQUEST_TOPICS, full_name
from streaming.administration import find_missing_rights
from streaming.errors import AccessRefused, StreamingError
from streaming.ingest import pass_records
from streaming.observability import BatchTrace, LogEvent, Observer, log_event
from streaming.pipeline.arrivals import (
    SMALL_BATCH_RECORDS_MAX,
    NodeArrivals,
    Positions,
    RequestArrivals,
)
from streaming.pipeline.batch import BatchApplier
from streaming.pipeline.load_flow import LoadIntake, LoadQuery
from streaming.pipeline.queries import (
    bands_of,
    failure_text,
    source_options,
    start_node_query,
    start_request_query,
    tick_interval_seconds,
)
from streaming.pipeline.ticks import Ticker
from streaming.recovery import Recovered
from streaming.settings import Settings
from streaming.spark import (
    QueryFailed,
    check_session,
    find_disk_fault,
    hold_scratch,
    is_session_open,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

# How often the main thread looks whether a query has ended; stopping is told by an event.
WATCH_SECONDS = 0.2
# A batch under load takes a second at most; longer than this something hangs, and the transaction
# it may have open is the next writer's to abort.
_STOP_TIMEOUT_SECONDS = 30.0
# How all the clients' errors speak of a right that is missing.
_REFUSED = "authorization"
# The threads of the queries and of `NodeArrivals` take turns in Python. A request asks the JVM a
# dozen times and waits as often for its turn; with Python's own 5 ms p99 beside 20,000 heartbeats a
# second was 559 ms, with this 339.
SWITCH_INTERVAL_SECONDS = 0.0005
_NODES, _REQUESTS = "nodes", "requests"


class RunningQueries:
    """The running queries and what their batches need."""

    def __init__(
        self,
        settings: Settings,
        spark: "SparkSession",
        recovered: Recovered,
        applier: BatchApplier,
        options: dict[str, str],
        ticker: Ticker,
        observer: Observer,
    ) -> None:
        self._settings, self._spark, self._options = settings, spark, options
        self._applier, self._ticker, self._observer = applier, ticker, observer
        self._recovered = recovered
        self._at = (settings.kafka.bootstrap_servers, settings.topics.prefix, options)
        # Held by who applies a batch, waited on by who needs another query's batch first.
        self._turn = threading.Condition()
        self._first_batch = threading.Event()
        self._failure: Exception | None = None
        self._stopping = False
        self._traces = {n: BatchTrace(settings.trace.file, n) for n in (_NODES, _REQUESTS)}
        self._names = {full_name(topic, settings.topics.prefix): topic for topic in REQUEST_TOPICS}
        self._intake = LoadIntake()
        self._loads: LoadQuery | None = None
        if settings.resources:
            self._loads = LoadQuery(recovered, bands_of(settings), settings.spark.load_shards)
        self._queries: dict[str, StreamingQuery] = {}

    def run(self, on_ready: Callable[[], None], stop: threading.Event) -> bool:
        """Decide until `stop` is set or an operator asks for a handover; returns whether he has."""
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
        tick_seconds = tick_interval_seconds(self._settings)
        cell = full_name(self._settings.cell, self._settings.topics.prefix)
        assert self._settings.checkpoint is not None
        held = (self._spark, self._settings.checkpoint, cell, self._applier.writer_epoch)
        with (
            hold_scratch(*held) as self._scratch,
            closing(NodeArrivals(*self._at, self._applier.positions, tick_seconds)) as self._nodes,
            closing(RequestArrivals(*self._at)) as self._requests,
        ):
            started, ready = time.monotonic(), False
            try:
                self._start()
                while not self._applier.handed_over and not stop.wait(
                    WATCH_SECONDS if ready else WATCH_SECONDS / 4
                ):
                    self._check()
                    if not ready and self._first_batch.is_set():
                        ready = True
                        self._observer.on_ready(time.monotonic() - started)
                        on_ready()
                        self._start_loads()
            finally:
                self._observer.on_query_ended("the query has ended")
                self._stop()
        if self._applier.handed_over:
            log_event(LogEvent.HANDED_OVER, writer_epoch=self._applier.writer_epoch)
            return True
        log_event(LogEvent.STOPPED)
        return False

    def _check(self) -> None:
        """Raise what has ended a query, or what will."""
        check_session(self._spark)
        if self._nodes.fault is not None:
            raise self._nodes.fault
        for query in self._queries.values():
            if not query.isActive:
                raise self._find_failure(query)
        if self._ticker.refused and (refused := self._find_lost_rights()):
            raise refused
        for name, trace in self._traces.items():
            trace.write_last(self._queries[name])

    def _start(self) -> None:
        recovered, place = self._recovered, (self._spark, self._settings)
        positions = self._copy_positions()
        self._queries[_NODES] = start_node_query(
            *place,
            positions,
            recovered.nodes,
            recovered.clocks,
            self._scratch,
            self._apply_nodes,
        )
        self._queries[_REQUESTS] = start_request_query(
            *place, positions, self._scratch, self._apply_requests
        )

    def _start_loads(self) -> None:
        """Read loads beside the batches that decide, once these are under way."""
        if self._loads is not None:
            kafka = source_options(self._settings)
            prefix, scratch = self._settings.topics.prefix, f"{self._scratch}/loads"
            self._queries["loads"] = self._loads.start(
                self._spark, kafka, prefix, scratch, self._take_loads
            )

    def _take_loads(self, payloads: list[bytes], seconds: float) -> None:
        """Keep what a batch of reports changes for the next one that decides."""
        self._observer.on_load_batch(seconds)
        self._intake.put(payloads)

    def _apply_nodes(self, batch: "DataFrame", batch_id: int) -> None:
        """Apply one batch on nodes. An exception ends the query, and with it the process."""
        began, trace = time.monotonic(), self._traces[_NODES]
        with self._noting_failure(), self._watched(_NODES):
            trace.begin(batch_id)
            with trace.part("toArrow"):
                payloads = batch.toArrow()["payload"].to_pylist()
            with self._turn:
                if self._is_over():
                    return
                payloads += self._intake.take()
                with trace.part("apply"):
                    self._applier.apply(payloads, self._is_caught_up(), trace)
                self._turn.notify_all()
                judging, positions = self._applier.awaits_time, self._copy_positions()
        self._first_batch.set()
        # While this call has not returned, Spark does not ask for new records.
        if self._is_caught_up():
            self._nodes.wait(positions, judging, began, lambda: self._stopping)

    def _apply_requests(self, batch: "DataFrame", batch_id: int) -> None:
        """Apply one batch of requests, behind what was said of nodes before."""
        trace = self._traces[_REQUESTS]
        with self._noting_failure():
            trace.begin(batch_id)
            # Before the requests are read, so that what was said until now is found meanwhile.
            with trace.part("statements"):
                ends = self._nodes.read_ends(lambda: self._stopping)
            with trace.part("toArrow"):
                output = pass_records(batch.toArrow(), self._names)
            with trace.part("statements"):
                needed = self._nodes.find_statements(ends, lambda: self._stopping)
            with self._turn:
                # Minutes where many heartbeats are to be read first: nothing hangs meanwhile.
                with trace.part("nodes"):
                    self._turn.wait_for(lambda: self._is_over() or self._has_applied(needed))
                if self._is_over():
                    return
                with self._watched(_REQUESTS), trace.part("apply"):
                    self._applier.apply_outputs([output], self._is_caught_up(), trace)
                read, positions = self._applier.records_read, self._copy_positions()
        if read <= SMALL_BATCH_RECORDS_MAX:
            self._requests.wait(positions, lambda: self._stopping)

    def _is_over(self) -> bool:
        """Return whether no batch is to be applied any more: it ends, or a batch has failed, of
        whichever query, and what it left is not the state of the last commit."""
        return self._stopping or not self._applier.is_sound

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """Keep what a batch raises: the process ends with it."""
        try:
            yield
        except Exception as error:
            self._failure = self._failure or error
            raise

    @contextmanager
    def _watched(self, query: str) -> Iterator[None]:
        """Time a batch, and let the probes see if it hangs."""
        self._observer.on_batch_began(query)
        yield
        self._observer.on_batch_ended(query)

    def _is_caught_up(self) -> bool:
        return self._ticker.is_caught_up(self._applier.tick_seen)

    def _copy_positions(self) -> dict[str, dict[int, int]]:
        return {topic: {**offsets} for topic, offsets in self._applier.positions.items()}

    def _has_applied(self, needed: Positions) -> bool:
        reached = self._applier.positions
        return all(
            reached[topic].get(partition, 0) >= offset
            for topic, offsets in needed.items()
            for partition, offset in offsets.items()
        )

    def _find_failure(self, query: "StreamingQuery") -> Exception:
        """Return the error that ended the query. Spark repeats our own error of a failed batch in
        many words; a full or failing disk is no bug and is reported in one sentence."""
        said = failure_text(query)
        fault = find_disk_fault(self._settings.checkpoint, said)
        if fault is not None and not isinstance(self._failure, StreamingError):
            return fault
        failure = self._failure or QueryFailed(said)
        return self._find_lost_rights() or failure if _REFUSED in str(failure).lower() else failure

    def _find_lost_rights(self) -> AccessRefused | None:
        """List the rights that this principal has lost, if the brokers report any."""
        kafka = self._settings.kafka
        try:
            found = find_missing_rights(
                kafka.bootstrap_servers, self._settings.topics.prefix, self._options
            )
        except (StreamingError, KafkaException):
            return None
        if not found:
            return None
        return AccessRefused(
            f"{'; '.join(found)}. No decision is lost: grant these rights again (`placer "
            "topics acls` prints the commands), and start again"
        )

    def _stop(self) -> None:
        """Let the batch under way finish, apply no other, release the role, and end the queries."""
        self._intake.close()
        has_turn = self._turn.acquire(timeout=_STOP_TIMEOUT_SECONDS)
        self._stopping = True
        if has_turn:
            self._turn.notify_all()
            if self._applier.is_sound:
                self._release()
            self._turn.release()
        if is_session_open(self._spark):
            for query in reversed(self._queries.values()):
                query.stop()

    def _release(self) -> None:
        """Let a standby take over at once. Where that fails it waits for the silence instead."""
        try:
            self._applier.release()
        except StreamingError as error:
            log_event(LogEvent.NOT_RELEASED, logging.WARNING, why=str(error))
