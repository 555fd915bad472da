"""The application: the only place that wires source -> stateful operator -> batch -> transaction.

    nodes, … --> pack (executors) --> NodeLifecycle (state) --> foreachBatch (driver)
    streams, acks, operator ----------------------------------> foreachBatch (driver)
        --> Reconciler.apply --> outbox --> decisions, assignments, moves, ..., commit marker

Every start is the same: fence, rebuild from the topics, fresh checkpoint at the
marker. Every failure ends the process; a restart is the recovery. A standby does all of it but the
fencing beforehand, and follows the active one until it is gone.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient

from placement.nodes import KIND as LOCATIONS
from schemas.topics import CATALOGUE, DECIDING_TOPICS, NODES, full_name
from streaming.administration import count_partitions, diff_topics, find_missing_rights
from streaming.brokers import connect, read_end_offsets
from streaming.errors import AccessRefused, StreamingError
from streaming.locations import CloudLocator, CommandLocator, FileLocator, Locator
from streaming.observability import Endpoint, LogEvent, Observer, log_event
from streaming.outbox import Outbox, try_transaction
from streaming.pipeline import (
    WATCH_SECONDS,
    BatchApplier,
    RunningQueries,
    Ticker,
    rehearse,
    start_workers,
    tick_interval_seconds,
)
from streaming.presence import PARTITION, TickAuthor
from streaming.recovery import Recovered, recover
from streaming.settings import Settings, core_configuration, name_instance
from streaming.spark import (
    QueryFailed,
    StartingSession,
    check_session,
    close_session,
    hold_scratch,
)
from streaming.standby import Standby, StandbyOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Between a rehearsal that failed and the next one, which takes a core for seconds.
_REHEARSAL_PAUSE_SECONDS = 60.0
# Settings of topics that guarantees rest on; an operator may change the others.
_PROMISES = ("message.timestamp.type", "cleanup.policy")


def run(
    settings: Settings,
    session: StartingSession,
    *,
    on_ready: Callable[[], None],
    stop: threading.Event,
    accept_gap: bool = False,
    standby: StandbyOptions | None = None,
    on_standby: Callable[[str], None] = lambda _: None,
) -> int:
    """Run until `stop` is set; returns the exit status. `session`: Spark, which is on its way.

    `on_ready` is called each time when the first batch has been taken. `accept_gap`: start although
    input was deleted before it was read. `standby`: stand by until the role of the active one is
    free; `on_standby` is told behind whom. Raises StreamingError with what
    a person has to do about it; everything else is a bug.
    """
    options = settings.resolved_kafka_options()
    bootstrap, prefix = settings.kafka.bootstrap_servers, settings.topics.prefix
    _check_topics(bootstrap, prefix, options)
    counts = count_partitions(bootstrap, prefix, options=options)
    observer = Observer(settings.cell)
    with _endpoint(settings, observer), ThreadPoolExecutor(max_workers=2) as beside:
        process = _Process(settings, session, options, counts, observer, beside, stop, accept_gap)
        if standby is None:
            return process.run(on_ready)
        return process.run_as_standby(standby, on_ready, on_standby)


class _Process:
    """What one process of the application has, whichever role."""

    def __init__(
        self,
        settings: Settings,
        session: StartingSession,
        options: dict[str, str],
        counts: dict[str, int],
        observer: Observer,
        beside: ThreadPoolExecutor,
        stop: threading.Event,
        accept_gap: bool,
    ) -> None:
        """`counts`: partitions of all topics by short name."""
        self._settings, self._options, self._counts = settings, options, counts
        self._observer, self._beside, self._stop = observer, beside, stop
        self._accept_gap, self._session = accept_gap, session
        # What has run once has nothing to rehearse.
        self._is_warm = False
        self._instance = name_instance(settings)
        self._at = (settings.kafka.bootstrap_servers, settings.topics.prefix)
        self._outputs = {t.name: counts[t.name] for t in CATALOGUE if t.direction == "out"}
        # Read here, before another process is fenced that could go on with what it has read.
        self._mapping = _read_mapping(settings)
        self._rehearse_at = 0.0

    def run(self, on_ready: Callable[[], None]) -> int:
        """Become the writer at once, and decide until the end."""
        outbox = self._make_outbox()
        # Spark takes seconds to start; the state is read in the meantime.
        recovery = self._beside.submit(self._recover, outbox)
        spark = self._session.finish()
        try:
            self._beside.submit(start_workers, spark)
            self._decide(spark, outbox, recovery.result(), on_ready)
            return 0
        finally:
            close_session(spark)

    def run_as_standby(
        self,
        how: StandbyOptions,
        on_ready: Callable[[], None],
        on_standby: Callable[[str], None],
    ) -> int:
        """Stand by and decide in turn, until `stop` is set."""
        missing = find_missing_rights(*self._at, self._options)
        if missing:
            raise AccessRefused(
                f"{'; '.join(missing)}. A standby needs the rights of the active one; `placer "
                "topics acls` prints the commands"
            )
        try_transaction(*self._at, self._settings.cell, self._options)
        standby = self._make_standby(how)
        starting: Future[None] = self._beside.submit(standby.start)
        try:
            spark = self._session.finish()
            try:
                starting.result()
                while True:
                    on_standby(standby.describe())
                    won = self._stand_by(spark, standby)
                    standby.close()
                    if won is None:
                        log_event(LogEvent.STOPPED)
                        return 0
                    if not self._decide(spark, *won, on_ready):
                        return 0
                    # Handed over: another one is to have the role.
                    standby = self._make_standby(how)
                    standby.start()
                    standby.stand_back()
            finally:
                close_session(spark)
        finally:
            standby.close()

    def _stand_by(self, spark: "SparkSession", standby: Standby) -> tuple[Outbox, Recovered] | None:
        """Follow the active one until this process has the role; None where it was stopped."""
        # Connected beforehand: it fences nobody.
        outbox = self._make_outbox()
        failed = threading.Event()
        waiting = self._beside.submit(standby.wait, lambda: self._stop.is_set() or failed.is_set())
        try:
            standby.let_claim()
            while not waiting.done():
                check_session(spark)
                if not (self._is_warm or standby.is_due) and time.monotonic() >= self._rehearse_at:
                    self._is_warm = self._rehearse(spark, standby, waiting)
                self._stop.wait(WATCH_SECONDS / 4)
        except BaseException:
            failed.set()
            raise
        if not waiting.result():
            return None
        recovered = standby.take_over(outbox, self._outputs, self._accept_gap)
        epoch, followed = recovered.writer_epoch + 1, recovered.followed
        log_event(LogEvent.TOOK_OVER, writer_epoch=epoch, followed=followed)
        return outbox, self._note_gaps(recovered)

    def _rehearse(self, spark: "SparkSession", standby: Standby, waiting: Future[bool]) -> bool:
        """Run the query once over the newest record of the partition that this process ticks in;
        returns whether it came through before it was wanted. Where it fails the standby goes on
        without, and tries it again after a while: executors may be granted later."""
        names = {full_name(topic, self._at[1]): topic for topic in DECIDING_TOPICS}
        places = [
            TopicPartition(name, partition)
            for name, topic in names.items()
            for partition in range(self._counts[topic])
        ]
        admin = connect(AdminClient, self._at[0], {}, self._options)
        positions: dict[str, dict[int, int]] = {}
        ends = read_end_offsets(admin, places, IsolationLevel.READ_COMMITTED)
        for (name, partition), end in ends.items():
            positions.setdefault(names[name], {})[partition] = end
        positions[NODES][PARTITION] -= 1
        began = time.monotonic()

        def stopping() -> bool:
            return self._stop.is_set() or standby.is_due or waiting.done()

        checkpoint, cell = self._settings.checkpoint, full_name(self._settings.cell, self._at[1])
        assert checkpoint is not None
        with hold_scratch(spark, checkpoint, cell, None) as scratch:
            try:
                came_through = rehearse(spark, self._settings, positions, scratch, stopping)
            except QueryFailed as error:
                check_session(spark)
                log_event(LogEvent.NOT_REHEARSED, logging.WARNING, why=str(error))
                self._rehearse_at = time.monotonic() + _REHEARSAL_PAUSE_SECONDS
                return False
        if came_through:
            log_event(LogEvent.REHEARSED, seconds=round(time.monotonic() - began, 1))
        return came_through

    def _decide(
        self,
        spark: "SparkSession",
        outbox: Outbox,
        recovered: Recovered,
        on_ready: Callable[[], None],
    ) -> bool:
        """Be the active one until the end; returns whether the role was handed over."""
        settings, options = self._settings, self._options
        self._is_warm = True
        locator = _locator(settings, recovered) if self._mapping is None else self._mapping
        try:
            applier = BatchApplier(
                recovered,
                outbox,
                settings.cell,
                self._outputs,
                self._observer,
                locator,
                settings.dead_letters.per_second,
                self._instance,
            )
            applier.take_over()
            self._observer.on_active(recovered.reconciler)
            if not recovered.followed:
                epoch, records = applier.writer_epoch, recovered.records
                log_event(LogEvent.RECOVERED, records=records, writer_epoch=epoch)
            author = TickAuthor(settings.cell, self._instance, applier.writer_epoch)
            interval = tick_interval_seconds(settings)
            with Ticker(*self._at, author, self._counts[NODES], interval, options) as ticker:
                beside_it = (options, ticker, self._observer)
                queries = RunningQueries(settings, spark, recovered, applier, *beside_it)
                return queries.run(on_ready, self._stop)
        finally:
            if locator is not None:
                locator.close()

    def _recover(self, outbox: Outbox) -> Recovered:
        outbox.fence()
        core, gap = core_configuration(self._settings), self._accept_gap
        where = (*self._at, core.cell, core, self._outputs, self._options)
        return self._note_gaps(recover(*where, accept_gap=gap))

    def _note_gaps(self, recovered: Recovered) -> Recovered:
        for gap in recovered.gaps:
            log_event(LogEvent.GAP_ACCEPTED, logging.WARNING, **asdict(gap))
        return recovered

    def _make_outbox(self) -> Outbox:
        return Outbox(*self._at, self._settings.cell, self._outputs, self._options)

    def _make_standby(self, how: StandbyOptions) -> Standby:
        return Standby(
            *self._at,
            core_configuration(self._settings),
            self._counts[NODES],
            self._options,
            self._instance,
            self._settings.standby.takeover_after_seconds,
            how,
            self._observer,
        )


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


def _read_mapping(settings: Settings) -> FileLocator | None:
    """Read the mapping file, where one is the authority. Raises LocationsUnreadable."""
    location = settings.location
    if location.authority != "file":
        return None
    assert location.file is not None, "the settings ask for it"
    return FileLocator(location.file)


def _locator(settings: Settings, recovered: Recovered) -> Locator | None:
    """Make the configured locator but for a file; None where claims or the inventory decide."""
    location = settings.location
    match location.authority:
        case "cloud":
            return CloudLocator(location.cloud_form)
        case "command":
            assert location.command is not None, "the settings ask for it"
            asking = CommandLocator(location.command, location.command_timeout_seconds)
            asking.resume(recovered.nodes, recovered.reconciler.memory_of(LOCATIONS))
            return asking
    return None


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
