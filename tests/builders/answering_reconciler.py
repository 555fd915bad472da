"""A reconciler that answers on a broker, without Spark: what commands ask for goes through packing,
liveness and core, and what is decided is committed as the application does."""

import threading
from collections import defaultdict
from types import TracebackType
from typing import Self

from placement.model import Configuration
from schemas.topics import CATALOGUE, INPUT_TOPICS
from streaming.brokers import CommittedReader
from streaming.codec import RawRecord
from streaming.outbox import Outbox
from tests.builders.batches import CELL, Driver

POLL_SECONDS = 0.05


class AnsweringReconciler:
    """Takes what is on the input topics, a batch each time something has come, until it is left."""

    def __init__(self, bootstrap: str, prefix: str, configuration: Configuration) -> None:
        outputs = {t.name: t.partitions for t in CATALOGUE if t.direction == "out"}
        self._outbox = Outbox(bootstrap, prefix, CELL, outputs, {})
        self._reader = CommittedReader(bootstrap, prefix, INPUT_TOPICS)
        self.driver = Driver(configuration=configuration)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self.failed: BaseException | None = None

    def __enter__(self) -> Self:
        self._outbox.fence()
        self._outbox.commit(self.driver.commits[-1])
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()
        self._reader.close()
        assert self.failed is None, self.failed

    def _answer(self) -> None:
        try:
            while not self._end.is_set():
                self._batch()
        except BaseException as error:
            self.failed = error
            raise

    def _batch(self) -> None:
        parts: defaultdict[tuple[str, int], list[RawRecord]] = defaultdict(list)
        for each in self._reader.poll(POLL_SECONDS):
            place = (each.topic, each.partition, each.offset, each.timestamp_ms)
            record = RawRecord(*place, each.raw_key, each.raw, [*each.raw_headers])
            parts[each.topic, each.partition].append(record)
        if parts:
            for commit in self.driver.batch(*parts.values()):
                self._outbox.commit(commit)
