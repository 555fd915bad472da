"""Keeps a read model at the last commit: reads the topics at the start, then follows them.

It runs in a thread of its own. While no broker answers the model stays as it was and says how stale
it is; the client reconnects by itself and loses nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from schemas.topics import ALERTS, COMMITS, STATE_TOPICS
from streaming import gc_pause
from streaming.brokers import CommittedReader, Reachability, RecordBytes
from streaming.errors import BrokerUnreachable, StreamingError
from streaming.live import ALERTS_KEPT
from streaming.read_model.commit_cut import CommitCuts, Place
from streaming.read_model.fold import Fold, parse_records
from streaming.read_model.read_model import ReadModel
from streaming.settings import Settings

LOGGER = "placer.read_model"

TOPICS = (*STATE_TOPICS, COMMITS, ALERTS)
# How long it waits for a record before it looks whether it is to stop.
POLL_SECONDS = 0.2
# An open transaction closes within milliseconds; so soon the ends are asked for again.
OPEN_POLL_SECONDS = 0.01
# Where nothing comes the ends are asked for all the same, as proof that nothing was missed: often
# against the 15 s from which on answers are refused, seldom against the cost of two requests.
CONFIRM_SECONDS = 1.0
# Before the topics are read again after a fault that reading on does not mend.
RETRY_SECONDS = 5.0
# Without a record for so long before a known end the broker has gone.
STALL_SECONDS = 30.0
# A tombstone is kept for a day (`delete.retention.ms`): who was away for longer may have missed
# one and reads all topics again. Half of it, as the two clocks need not agree.
AWAY_SECONDS_MAX = 43_200.0


class TopicsReplaced(StreamingError):
    """The topics end before what was read of them: they were deleted and made anew."""


class ModelFollower:
    """Follows the topics of the settings for a model."""

    def __init__(self, settings: Settings, model: ReadModel, tell: Callable[[str], None]) -> None:
        """`tell` takes a sentence for people when the brokers go and come back, and when the topics
        have to be read again."""
        self._at = (settings.kafka.bootstrap_servers, settings.topics.prefix)
        self._options = settings.resolved_kafka_options()
        self._model, self._tell = model, tell
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="read-model", daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Follow while the block runs."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except StreamingError as error:
                self._begin_anew(str(error))
            except Exception as error:
                # A thread that dies would leave a model that grows stale without a reason.
                logging.getLogger(LOGGER).exception("the read model met a fault of its own")
                self._begin_anew(f"this is a bug of placer: {error!r}")

    def _begin_anew(self, why: str) -> None:
        self._model.note_fault(why)
        self._tell(f"{why}; the topics are read again in {RETRY_SECONDS:g} s")
        self._stop.wait(RETRY_SECONDS)

    def _follow(self) -> None:
        """Read the topics from the beginning and follow them until it is to stop. Raises
        StreamingError where they have to be read again."""
        bootstrap, prefix = self._at
        reachability = Reachability(bootstrap, self._tell)
        cuts = CommitCuts(bootstrap, prefix, TOPICS, self._options)
        cut = self._first_cut(cuts)
        alerts = {
            partition: max(end - ALERTS_KEPT, 0)
            for (topic, partition), end in cut.items()
            if topic == ALERTS
        }
        with CommittedReader(
            bootstrap,
            prefix,
            TOPICS,
            positions={ALERTS: alerts},
            options=self._options,
            reachability=reachability,
        ) as reader:
            following = _Following(reader, cuts, self._model, self._stop, prefix)
            following.read(cut)
            while not self._stop.is_set():
                try:
                    following.step()
                except BrokerUnreachable as error:
                    reachability.doubt()
                    self._model.note_fault(str(error))
                    self._stop.wait(CONFIRM_SECONDS)

    def _first_cut(self, cuts: CommitCuts) -> dict[Place, int]:
        while not self._stop.is_set():
            cut = cuts.find()
            if cut is not None:
                return cut
            self._stop.wait(OPEN_POLL_SECONDS)
        return {}


def _split(
    records: list[RecordBytes], cut: dict[Place, int]
) -> tuple[list[RecordBytes], list[RecordBytes]]:
    """Part records into those before the cut and those behind it."""
    whole: list[RecordBytes] = []
    later: list[RecordBytes] = []
    for each in records:
        (whole if each.offset < cut[each.topic, each.partition] else later).append(each)
    return whole, later


class _Following:
    """One reading of the topics: where it stands, and what is read but not part of a whole commit
    yet."""

    def __init__(
        self,
        reader: CommittedReader,
        cuts: CommitCuts,
        model: ReadModel,
        stop: threading.Event,
        prefix: str,
    ) -> None:
        self._reader, self._cuts, self._model, self._stop = reader, cuts, model, stop
        self._prefix = prefix
        self._staged: list[RecordBytes] = []
        self._applied: dict[Place, int] = {}
        self._confirmed_at = time.monotonic()

    @gc_pause.pause_gc()
    def read(self, cut: dict[Place, int]) -> None:
        """Read from the beginning to the cut, and let the model begin there."""
        fold = Fold()
        for records in self._read_to(cut):
            whole, later = _split(records, cut)
            self._staged += later
            fold.apply(parse_records(whole, self._prefix))
        if self._stop.is_set():
            return
        self._applied = cut
        # What was committed while it read is staged, or comes with the first step.
        self._model.begin(fold, self._confirmed_at)

    def step(self) -> None:
        """Take in what has been committed. Waits for a record no longer than `POLL_SECONDS`.

        Raises BrokerUnreachable, TopicsReplaced, RecordUnreadable.
        """
        self._staged += self._reader.poll_bytes(OPEN_POLL_SECONDS if self._staged else POLL_SECONDS)
        now = time.monotonic()
        if not self._staged and now - self._confirmed_at < CONFIRM_SECONDS:
            return
        cut = self._cuts.find()
        if cut is None:
            return
        self._refuse_gap(cut, now)
        for records in self._read_to(cut):
            self._staged += records
        whole, later = _split(self._staged, cut)
        if self._stop.is_set():
            return
        if whole:
            self._model.commit(whole)
        self._staged, self._applied, self._confirmed_at = later, cut, now
        self._model.confirm(now)

    def _refuse_gap(self, cut: dict[Place, int], now: float) -> None:
        shrunk = [place for place, end in cut.items() if end < self._applied.get(place, 0)]
        if shrunk:
            topic, partition = shrunk[0]
            raise TopicsReplaced(
                f"{self._prefix}{topic}-{partition} ends at {cut[shrunk[0]]} and was read up to "
                f"{self._applied[shrunk[0]]}: the topics were made anew"
            )
        away = now - self._confirmed_at
        if away > AWAY_SECONDS_MAX:
            raise TopicsReplaced(f"nothing was read for {away:.0f} s: tombstones may be gone")

    def _read_to(self, cut: dict[Place, int]) -> Iterator[list[RecordBytes]]:
        """Yield records until every partition is read to the cut, or it is to stop. Raises
        BrokerUnreachable."""
        deadline = time.monotonic() + STALL_SECONDS
        while not self._stop.is_set():
            positions = self._reader.positions
            if all(positions[topic][partition] >= end for (topic, partition), end in cut.items()):
                return
            records = self._reader.poll_bytes(POLL_SECONDS)
            if self._reader.positions != positions:
                deadline = time.monotonic() + STALL_SECONDS
            elif time.monotonic() > deadline:
                raise BrokerUnreachable(
                    f"the broker returned no record for {STALL_SECONDS:g} s before the end of the "
                    "topics was reached"
                )
            yield records
