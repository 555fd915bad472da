"""Feeds metrics, probes and log from the course of the batches."""

import logging
import time
from collections import Counter
from collections.abc import Mapping

from placement.model import Severity
from placement.reconciler import Reconciler
from streaming.observability.logs import LogEvent, log_event
from streaming.observability.metrics import CommitSummary, Metrics
from streaming.observability.probes import Probes

# Ticks come every second: after a batch that takes longer more than a few are waiting.
SLOW_BATCH_SECONDS = 3.0
# One slow batch costs nothing but its own time (a pause of the JVM, a storm of events); so many in
# a row are a rate that does not keep up.
SLOW_BATCHES = 3

_LEVELS = {
    Severity.INFO: logging.INFO,
    Severity.WARNING: logging.WARNING,
    Severity.CRITICAL: logging.CRITICAL,
}


class Observer:
    """Told by the application what happens; answers nothing and decides nothing."""

    def __init__(self, cell: str) -> None:
        self.metrics, self.probes = Metrics(cell), Probes()
        self._began: dict[str, float] = {}
        # The first batch starts Spark's workers and reads what has waited: it is not judged.
        self._slow_in_a_row: int | None = None

    def on_active(self, reconciler: Reconciler) -> None:
        """The process decides from here on, from this state."""
        self.metrics.start_from(reconciler.in_force(), reconciler.open_moves)
        self.probes.on_taking_over()

    def on_standing_by(self, active: str | None, writer_epoch: int, proven: int | None) -> None:
        """The process follows the active one."""
        self.metrics.stand_by()
        log_event(LogEvent.STANDING_BY, active=active, writer_epoch=writer_epoch, proven=proven)

    def on_followed(self, proven: int | None, lag_commits: int) -> None:
        """The standby has looked for commits."""
        self.metrics.set_followed(proven, lag_commits)
        self.probes.on_followed(proven, lag_commits)

    def on_state_rebuilt(self, rebuilds: int) -> None:
        """The standby has read the state from the topics, as its own was another."""
        self.metrics.count_rebuild()
        log_event(LogEvent.STATE_REBUILT, logging.WARNING, rebuilds=rebuilds)

    def on_batch_began(self, query: str) -> None:
        """A micro-batch of a query has arrived."""
        self._began[query] = time.monotonic()
        self.probes.on_batch_began(query)

    def on_records_read(self, topic: str, records: int) -> None:
        """Count the records of a topic in the batch."""
        self.metrics.count_read(topic, records)

    def on_records_ignored(self, counts: Mapping[str, int]) -> None:
        """Count the records that changed nothing, by reason."""
        self.metrics.count_ignored(counts)

    def on_load_batch(self, seconds: float) -> None:
        """A batch of reports of loads has been read and filtered, in so much time."""
        self.metrics.loads.observe_batch(seconds)

    def on_loads_read(self, lag_ms: int) -> None:
        """Reports of loads are being applied; the last of a partition are so old."""
        self.metrics.loads.observe_lag(lag_ms / 1000)

    def on_commit(self, commit: CommitSummary) -> None:
        """A part of it, or all, has been committed."""
        self.metrics.observe_commit(commit)
        for alert in commit.ready.alerts:
            why, level = alert.reason.message, _LEVELS[alert.severity]
            log_event(LogEvent.ALERT, level, kind=alert.kind, subject=alert.subject, why=why)
        for answer in commit.ready.answers:
            request, why = answer.request_id, answer.reason.message
            log_event(
                LogEvent.REQUEST_ANSWERED, request_id=request, outcome=answer.outcome, why=why
            )
        if commit.refused:
            reasons, left_out = dict(Counter(commit.refused)), sum(commit.left_out.values())
            log_event(LogEvent.DEAD_LETTERS, logging.WARNING, reasons=reasons, left_out=left_out)

    def on_batch_ended(self, query: str) -> None:
        """Note the end of the query's batch."""
        seconds = time.monotonic() - self._began[query]
        self.metrics.observe_batch(seconds)
        self.probes.on_batch_ended(query)
        if self._slow_in_a_row is None or seconds <= SLOW_BATCH_SECONDS:
            self._slow_in_a_row = 0
            return
        self._slow_in_a_row += 1
        if self._slow_in_a_row == SLOW_BATCHES:
            last, limit = round(seconds, 1), SLOW_BATCH_SECONDS
            log_event(LogEvent.SLOW_BATCH, logging.WARNING, seconds=last, limit_seconds=limit)

    def on_ready(self, seconds: float) -> None:
        """The first batch has been taken."""
        log_event(LogEvent.READY, seconds_since_start=round(seconds, 1))

    def on_query_ended(self, why: str) -> None:
        """The query has ended."""
        self.probes.on_query_ended(why)
