"""A reconciler's state as records: what `placer status` and its kin read, without the pipeline."""

from collections.abc import Iterable, Sequence

from placement.model import Configuration, Event, Liveness, NodeAttributes, NodeChanged
from placement.reconciler import Reconciler
from placement.state import DIGEST_VERSION
from schemas.topics import CATALOGUE
from streaming.brokers import RecordBytes
from streaming.codec import OutRecord, log_record, ready_records
from streaming.outbox import Outbox

CELL = "main"
OUTPUTS = {t.name: t.partitions for t in CATALOGUE if t.direction == "out"}


class Committer:
    """Applies batches of events; each gives the records of one commit, its marker last."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        self.reconciler = Reconciler(configuration or Configuration())
        self.sequence = 0

    def apply(self, events: Sequence[Event], now: int) -> list[OutRecord]:
        """One batch."""
        self.sequence += 1
        ready = self.reconciler.apply(events, now)
        records = ready_records(ready, CELL, now, self.sequence)
        marker = {
            "cell": CELL,
            "sequence": self.sequence,
            "writer_epoch": 1,
            "now": now,
            "positions": {"nodes.v1": {"0": 0}, "streams.v1": {"0": 0}, "acks.v1": {"0": 0}},
            "clocks": {},
            "output_partitions": OUTPUTS,
            "journal_sequence": self.sequence,
            "digest": self.reconciler.digest,
            "digest_version": DIGEST_VERSION,
        }
        return [*records, log_record("CommitMarker", "commits.v1", CELL, marker, now)]


class Publisher:
    """Applies batches of events and commits them as the application does."""

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        configuration: Configuration,
        committer: Committer | None = None,
    ) -> None:
        """`committer`: that of a publisher before this one, to go on with."""
        self._outbox = Outbox(bootstrap, prefix, CELL, OUTPUTS, {})
        self._outbox.fence()
        self.committer = committer or Committer(configuration)

    def apply(self, events: Sequence[Event], now: int) -> None:
        """One batch, one transaction."""
        self._outbox.commit(self.committer.apply(events, now))


def as_read(records: Iterable[OutRecord], offset: int = 0) -> list[RecordBytes]:
    """The records as a reader sees them, from an offset on."""
    return [
        RecordBytes(each.topic, 0, offset + n, each.key, each.value)
        for n, each in enumerate(records)
    ]


def nodes_up(count: int, at: int = 1, racks: int = 3) -> list[NodeChanged]:
    """Nodes `n1`, `n2`, ... that are up, in racks `/a/r1`, `/a/r2`, ... in turn."""
    return [
        NodeChanged(at, f"n{n}", "a", 1, Liveness.UP, NodeAttributes(f"/a/r{1 + (n - 1) % racks}"))
        for n in range(1, count + 1)
    ]
