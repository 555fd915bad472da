"""Writes where the time of micro-batches goes, Spark's parts and ours, as one JSON line each.

Nothing is kept or written unless `trace.file` is set. The application's main thread asks Spark for
its last progress now and then, beside the batches and not in them; of a busy query it sees most
batches, not all.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

# Spark reports a batch right after it ended; more than the last few are never asked for.
BATCHES_KEPT = 16


class BatchTrace:
    """Times the parts of each batch and appends them to a file.

    A line: `query`, `batch` (Spark's number), `records` read from Kafka, `parts` in ms: Spark's own
    names (`triggerExecution` is the whole, `addBatch` holds all that is ours) and `toArrow` (the
    operators' work, brought to the driver), `statements` and `nodes` (a request waits for what was
    said of nodes before it), `apply` (decode, order, plan and commit), `commit` (the transaction in
    it; absent when nothing was written).
    """

    def __init__(self, file: Path | None = None, query: str = "") -> None:
        self._file, self._query = file, query
        self._batches: dict[int, dict[str, float]] = {}
        self._parts: dict[str, float] = {}
        self._written = -1

    def begin(self, batch: int) -> None:
        """From here on parts belong to this batch."""
        if self._file is not None:
            self._parts = self._batches[batch] = {}
            self._batches.pop(batch - BATCHES_KEPT, None)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time a part of the current batch; parts of one name add up."""
        started = time.perf_counter()
        yield
        if self._file is not None:
            spent_ms = (time.perf_counter() - started) * 1000
            self._parts[name] = self._parts.get(name, 0.0) + spent_ms

    def write_last(self, query: "StreamingQuery") -> None:
        """Append the last batch that has ended, unless that was done or nothing was asked for."""
        progress = query.lastProgress if self._file is not None else None
        if progress is None or self._file is None or progress["batchId"] == self._written:
            return
        self._written = progress["batchId"]
        ours = self._batches.get(self._written)
        if ours is None:
            return
        line = {
            "query": self._query,
            "batch": self._written,
            "records": progress["numInputRows"],
            "parts": progress["durationMs"] | {name: round(ms, 2) for name, ms in ours.items()},
        }
        with self._file.open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")
