"""A reconciler's state on a broker: what `placer status` and its kin read, without the pipeline."""

from collections.abc import Sequence

from placement.model import Configuration, Event
from placement.reconciler import Reconciler
from placement.state import DIGEST_VERSION
from schemas.topics import CATALOGUE
from streaming.codec import log_record, ready_records
from streaming.outbox import Outbox

CELL = "main"


class Publisher:
    """Applies batches of events and commits them as the application does."""

    def __init__(self, bootstrap: str, prefix: str, configuration: Configuration) -> None:
        self._outputs = {t.name: t.partitions for t in CATALOGUE if t.direction == "out"}
        self._outbox = Outbox(bootstrap, prefix, CELL, self._outputs, {})
        self._outbox.fence()
        self._reconciler = Reconciler(configuration)
        self._sequence = 0

    def apply(self, events: Sequence[Event], now: int) -> None:
        """One batch, one transaction."""
        self._sequence += 1
        ready = self._reconciler.apply(events, now)
        records = ready_records(ready, CELL, now, self._sequence)
        marker = {
            "cell": CELL,
            "sequence": self._sequence,
            "writer_epoch": 1,
            "now": now,
            "positions": {"nodes.v1": {"0": 0}, "streams.v1": {"0": 0}, "acks.v1": {"0": 0}},
            "clocks": {},
            "output_partitions": self._outputs,
            "journal_sequence": self._sequence,
            "digest": self._reconciler.digest,
            "digest_version": DIGEST_VERSION,
        }
        records.append(log_record("CommitMarker", "commits.v1", CELL, marker, now))
        self._outbox.commit(records)
