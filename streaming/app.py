"""The application: the only place that wires source -> stateful operator -> batch -> transaction.

    nodes, streams, acks, … --> pack (executors) --> NodeLifecycle (state) --> foreachBatch (driver)
        --> Reconciler.apply --> outbox --> decisions, assignments, moves, ..., commit marker

Every start is the same: fence, rebuild from the topics, fresh checkpoint at the
marker. Every failure ends the process; a restart is the recovery.
"""

import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict
from errno import EACCES, EDQUOT, EFBIG, EIO, ENOSPC, EROFS, ESTALE
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from placement.liveness import Timers
from placement.load_reports import LoadBands
from placement.model import FlapPolicy
from placement.nodes import KIND as LOCATIONS
from schemas.topics import CATALOGUE, DECIDING_TOPICS, NODES, full_name
from streaming.administration import count_partitions, diff_topics, find_missing_rights
from streaming.errors import AccessRefused, StreamingError
from streaming.ingest import (
    OUTPUT_SCHEMA,
    STATE_SCHEMA,
    NodeLifecycle,
    initial_liveness_tables,
    make_packing_plan,
    pack_stream,
    subscribe,
)
from streaming.locations import CloudLocator, CommandLocator, FileLocator, Locator
from streaming.observability import BatchTrace, Endpoint, LogEvent, Observer, log_event
from streaming.outbox import Outbox
from streaming.pipeline import (
    SMALL_BATCH_RECORDS_MAX,
    Arrivals,
    BatchApplier,
    LoadIntake,
    LoadQuery,
    Ticker,
    close_session,
    open_session,
)
from streaming.recovery import Recovered, recover
from streaming.settings import Settings, core_configuration, spark_client_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

# How often the main thread looks whether the query has ended; stopping is told by an event.
_WATCH_SECONDS = 0.2
# A batch under load takes a second at most; longer than this something hangs, and the transaction
# it may have open is the next writer's to abort.
_STOP_TIMEOUT_SECONDS = 30.0
# Settings of topics that guarantees rest on; an operator may change the others.
_PROMISES = ("message.timestamp.type", "cleanup.policy")

# How the system says that a disk does not serve, in whatever Spark makes of it.
_DISK_FAULTS = tuple(
    os.strerror(number) for number in (ENOSPC, EDQUOT, EFBIG, EIO, EROFS, EACCES, ESTALE)
)
# How all the clients' errors speak of a right that is missing.
_REFUSED = "authorization"
# A page: as little as the scratch directory has to have room for, for a start to be tried.
_PROBE_BYTES = 4096


class QueryFailed(StreamingError):
    """The streaming query ended by itself."""


def run(
    settings: Settings,
    *,
    on_ready: Callable[[], None],
    stop: threading.Event,
    accept_gap: bool = False,
) -> int:
    """Run until `stop` is set; returns the exit status.

    `on_ready` is called once, when the first batch has been taken. `accept_gap`: start although
    input was deleted before it was read. Raises StreamingError with what
    a person has to do about it; everything else is a bug.
    """
    assert settings.checkpoint is not None, "the command line asks for it"
    check_scratch(settings.checkpoint)
    options = settings.resolved_kafka_options()
    bootstrap, prefix = settings.kafka.bootstrap_servers, settings.topics.prefix
    _check_topics(bootstrap, prefix, options)
    counts = count_partitions(bootstrap, prefix, options=options)
    outputs = {t.name: counts[t.name] for t in CATALOGUE if t.direction == "out"}
    outbox = Outbox(bootstrap, prefix, settings.cell, outputs, options)
    observer = Observer(settings.cell)
    with _endpoint(settings, observer), ThreadPoolExecutor(max_workers=1) as beside:
        # Spark takes seconds to start; the state is read in the meantime.
        recovery = beside.submit(_recover, settings, outbox, outputs, options, accept_gap)
        spark = open_session(
            settings.spark.topology_shards,
            settings.spark.driver_memory,
            settings.resolved_spark_options(),
            settings.checkpoint,
            reads_loads=bool(settings.resources),
        )
        locator = None
        try:
            recovered = recovery.result()
            trace = BatchTrace(settings.trace.file)
            locator = _locator(settings, recovered)
            applier = BatchApplier(
                recovered,
                outbox,
                settings.cell,
                outputs,
                trace,
                observer,
                locator,
                settings.dead_letters.per_second,
            )
            applier.take_over()
            observer.on_recovered(recovered.reconciler, recovered.records, applier.writer_epoch)
            with (
                Ticker(
                    bootstrap,
                    prefix,
                    settings.cell,
                    applier.writer_epoch,
                    counts[NODES],
                    tick_interval_seconds(settings),
                    options,
                ) as ticker,
                closing(Arrivals(bootstrap, prefix, options)) as arrivals,
            ):
                beside_it = (ticker, arrivals, trace, observer)
                flow = RunningQuery(settings, spark, recovered, applier, options, *beside_it)
                return flow.run(on_ready, stop)
        finally:
            if locator is not None:
                locator.close()
            close_session(spark)


class RunningQuery:
    """The running query and what its batches need."""

    def __init__(
        self,
        settings: Settings,
        spark: "SparkSession",
        recovered: Recovered,
        applier: BatchApplier,
        options: dict[str, str],
        ticker: Ticker,
        arrivals: Arrivals,
        trace: BatchTrace,
        observer: Observer,
    ) -> None:
        self._settings, self._spark, self._options = settings, spark, options
        self._trace, self._observer = trace, observer
        self._applier, self._ticker, self._arrivals = applier, ticker, arrivals
        self._recovered = recovered
        self._between = threading.Lock()
        self._first_batch = threading.Event()
        self._failure: Exception | None = None
        self._stopping = False
        self._kafka = {
            **spark_client_options(options),
            "bootstrap.servers": settings.kafka.bootstrap_servers,
        }
        assert settings.checkpoint is not None
        self._scratch = _make_scratch(settings.checkpoint, applier.writer_epoch)
        self._intake = LoadIntake()
        self._loads: LoadQuery | None = None
        if settings.resources:
            self._loads = LoadQuery(recovered, bands_of(settings), settings.spark.load_shards)
        self._load_query: StreamingQuery | None = None

    def run(self, on_ready: Callable[[], None], stop: threading.Event) -> int:
        query = self._start()
        started, ready = time.monotonic(), False
        try:
            while not stop.wait(_WATCH_SECONDS if ready else _WATCH_SECONDS / 4):
                for each in filter(None, (query, self._load_query)):
                    if not each.isActive:
                        raise self._find_failure(each)
                if self._ticker.refused and (refused := self._find_lost_rights()):
                    raise refused
                self._trace.write_last(query)
                if not ready and self._first_batch.is_set():
                    ready = True
                    self._observer.on_ready(time.monotonic() - started)
                    on_ready()
                    self._start_loads()
        finally:
            self._observer.on_query_ended("the query has ended")
            self._stop(query)
        log_event(LogEvent.STOPPED)
        return 0

    def _start(self) -> "StreamingQuery":
        settings = self._settings
        timers = timers_of(settings)
        shards = settings.spark.topology_shards
        prefix = settings.topics.prefix
        packing = make_packing_plan(prefix, shards, timers, settings.resources)
        positions = {
            full_name(topic, prefix): dict(self._recovered.positions[topic])
            for topic in DECIDING_TOPICS
        }
        records = subscribe(
            self._spark, self._kafka, positions, settings.spark.max_offsets_per_trigger
        )
        packed = pack_stream(records, packing)
        tables = initial_liveness_tables(
            self._recovered.nodes, self._recovered.clocks, timers, shards
        )
        initial = self._spark.createDataFrame(tables, STATE_SCHEMA).groupBy("topology_shard")
        outputs = packed.groupBy("topology_shard").transformWithState(
            NodeLifecycle(timers), OUTPUT_SCHEMA, "Update", "None", initialState=initial
        )
        checkpoint = self._scratch
        return (
            outputs.writeStream.queryName(f"placer-{settings.cell}")
            .outputMode("update")
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(self._apply)
            .start()
        )

    def _start_loads(self) -> None:
        """Read loads beside the batches that decide, once these are under way."""
        if self._loads is not None:
            scratch = self._scratch.with_name(f"{self._scratch.name}-loads")
            prefix = self._settings.topics.prefix
            self._load_query = self._loads.start(
                self._spark, self._kafka, prefix, scratch, self._take_loads
            )

    def _take_loads(self, payloads: list[bytes], seconds: float) -> None:
        """Keep what a batch of reports changes for the next one that decides."""
        self._observer.on_load_batch(seconds)
        self._intake.put(payloads)

    def _apply(self, batch: "DataFrame", batch_id: int) -> None:
        """Apply one batch. An exception ends the query, and with it the process."""
        try:
            self._apply_batch(batch, batch_id)
        except Exception as error:
            self._failure = error
            raise

    def _find_failure(self, query: "StreamingQuery") -> Exception:
        """Return the error that ended the query. Spark repeats our own error of a failed batch in
        many words; a full or failing disk is no bug and is reported in one sentence."""
        said = _failure_text(query)
        fault = next((fault for fault in _DISK_FAULTS if fault in said), None)
        if fault is not None and not isinstance(self._failure, StreamingError):
            return _make_scratch_failure(self._settings.checkpoint, fault)
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

    def _apply_batch(self, batch: "DataFrame", batch_id: int) -> None:
        self._trace.begin(batch_id)
        self._observer.on_batch_began()
        with self._trace.part("toArrow"):
            payloads = batch.toArrow()["payload"].to_pylist()
        with self._between:
            if self._stopping:
                return
            caught_up = self._ticker.is_caught_up(self._applier.tick_seen)
            with self._trace.part("apply"):
                self._applier.apply([*payloads, *self._intake.take()], caught_up)
        self._observer.on_batch_ended()
        self._first_batch.set()
        if self._applier.records_read <= SMALL_BATCH_RECORDS_MAX:
            # While this call has not returned, Spark does not ask for new records.
            judging = self._applier.awaits_time
            positions = {t: self._applier.positions[t] for t in DECIDING_TOPICS}
            self._arrivals.wait(positions, judging, lambda: self._stopping)

    def _stop(self, query: "StreamingQuery") -> None:
        """Let the batch under way finish, apply no other, and end the query."""
        self._intake.close()
        if self._load_query is not None:
            self._load_query.stop()
        if self._between.acquire(timeout=_STOP_TIMEOUT_SECONDS):
            self._stopping = True
            self._between.release()
        query.stop()


@contextmanager
def _endpoint(settings: Settings, observer: Observer) -> Iterator[None]:
    """Serve metrics and probes from the first moment, where a port is set."""
    at = settings.metrics
    if at.port is None:
        yield
        return
    registry, probes = observer.metrics.registry, observer.probes
    with Endpoint(at.host, at.port, registry, probes.check_live, probes.check_ready) as endpoint:
        log_event(LogEvent.SERVING, address=endpoint.address)
        yield


def _locator(settings: Settings, recovered: Recovered) -> Locator | None:
    """Make the configured locator; None where claims or the inventory decide."""
    location = settings.location
    match location.authority:
        case "file":
            assert location.file is not None, "the settings ask for it"
            return FileLocator(location.file)
        case "cloud":
            return CloudLocator(location.cloud_form)
        case "command":
            assert location.command is not None, "the settings ask for it"
            asking = CommandLocator(location.command, location.command_timeout_seconds)
            asking.resume(recovered.nodes, recovered.reconciler.memory_of(LOCATIONS))
            return asking
    return None


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


def _recover(
    settings: Settings,
    outbox: Outbox,
    outputs: dict[str, int],
    options: dict[str, str],
    accept_gap: bool,
) -> Recovered:
    outbox.fence()
    recovered = recover(
        settings.kafka.bootstrap_servers,
        settings.topics.prefix,
        settings.cell,
        core_configuration(settings),
        outputs,
        options,
        accept_gap=accept_gap,
    )
    for gap in recovered.gaps:
        log_event(LogEvent.GAP_ACCEPTED, logging.WARNING, **asdict(gap))
    return recovered


def check_scratch(checkpoint: Path) -> None:
    """Make the scratch directory and write to it. Raises QueryFailed when it does not serve, before
    anything else is begun: another writer may be at work meanwhile."""
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=checkpoint) as probe:
            probe.write(bytes(_PROBE_BYTES))
    except OSError as error:
        raise _make_scratch_failure(checkpoint, error.strerror or str(error)) from error


def _make_scratch_failure(checkpoint: Path | None, fault: str) -> QueryFailed:
    return QueryFailed(
        f"{checkpoint}: {fault}. No decision is lost: free space or repair the disk, or "
        "name another scratch directory with --checkpoint, and start again"
    )


def _check_topics(bootstrap: str, prefix: str, options: dict[str, str]) -> None:
    """Refuse to start on topics that are missing or whose settings would break a promise."""
    changes = diff_topics(bootstrap, prefix, options=options)
    wrong = [
        change
        for change in changes
        if change.action == "create"
        or (change.action == "configure" and any(name in change.detail for name in _PROMISES))
    ]
    if wrong:
        listed = "; ".join(f"{change.topic}: {change.action} {change.detail}" for change in wrong)
        raise StreamingError(f"{listed}. Correct this with: placer topics apply")


def _make_scratch(checkpoint: Path, writer_epoch: int) -> Path:
    """An empty directory for this writer; those of earlier ones are scratch and go."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    for old in checkpoint.glob("epoch-*"):
        shutil.rmtree(old, ignore_errors=True)
    return checkpoint / f"epoch-{writer_epoch}-{time.time_ns()}"


def _failure_text(query: "StreamingQuery") -> str:
    error = query.exception()
    text = str(error) if error else "no error was reported"
    return f"Spark ended the query: {text.strip()}"
