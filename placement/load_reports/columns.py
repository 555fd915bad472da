"""The loads of one node's shards as sorted columns, which are bytes between two batches.

A column is a shard, in the order of a number made of its stream's code and its own; a row is a
resource. Three figures are kept of each: the smoothed load, the one that was passed on last, and
when it was reported. A thousand shards with three resources take 80 kB.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Figures = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Numbers of shards are below this.
_SHARD_BITS = 32
# More than any node holds; what is reported beyond is not kept, so that nobody can fill the state.
SHARDS_MAX = 50_000


class ReportColumns:
    """Holds the loads of a node's shards."""

    def __init__(self) -> None:
        self.resources: list[str] = []
        self.streams: list[str] = []
        self.uids: list[str | None] = []
        self._codes: dict[str, int] = {}
        self.keys: Integers = np.zeros(0, np.int64)
        self.smoothed: Figures = np.zeros((0, 0))
        self.told: Figures = np.zeros((0, 0))
        self.at: Integers = np.zeros((0, 0), np.int64)

    def __len__(self) -> int:
        return len(self.keys)

    def rows_of(self, resources: Iterable[str]) -> list[int]:
        """Return the row of each resource; new ones get one."""
        for name in resources:
            if name not in self.resources:
                self.resources.append(name)
                unknown = np.full((1, len(self)), np.nan)
                self.smoothed = np.vstack([self.smoothed, unknown])
                self.told = np.vstack([self.told, unknown])
                self.at = np.vstack([self.at, np.zeros((1, len(self)), np.int64)])
        return [self.resources.index(name) for name in resources]

    def codes_of(self, streams: Sequence[str], uids: Sequence[str | None]) -> Integers:
        """Return the code of each stream; of one with another uid the shards are forgotten."""
        found = []
        for stream, uid in zip(streams, uids, strict=True):
            code = self._codes.get(stream)
            if code is None:
                code = self._codes[stream] = len(self.streams)
                self.streams.append(stream)
                self.uids.append(uid)
            elif uid is not None and self.uids[code] != uid:
                if self.uids[code] is not None:
                    self.keep(self.keys >> _SHARD_BITS != code)
                self.uids[code] = uid
            found.append(code)
        return np.array(found, np.int64)

    def columns_of(self, codes: Integers, shards: Integers) -> tuple[Integers, Mask]:
        """Return the columns of shards, and which of them have one; new ones get one as long as
        there is room."""
        wanted = codes << _SHARD_BITS | shards
        missing = np.setdiff1d(wanted, self.keys, assume_unique=True)
        missing = missing[: max(SHARDS_MAX - len(self), 0)]
        if len(missing):
            keys = np.concatenate([self.keys, missing])
            order = np.argsort(keys, kind="stable")
            self.keys = keys[order]
            unknown = np.full((len(self.resources), len(missing)), np.nan)
            self.smoothed = np.hstack([self.smoothed, unknown])[:, order]
            self.told = np.hstack([self.told, unknown])[:, order]
            never = np.zeros(unknown.shape, np.int64)
            self.at = np.hstack([self.at, never])[:, order]
        columns: Integers = np.minimum(np.searchsorted(self.keys, wanted), max(len(self) - 1, 0))
        known: Mask = (self.keys[columns] == wanted) if len(self) else np.zeros(len(wanted), bool)
        return columns, known

    def keep(self, mask: Mask) -> None:
        """Keep the columns of `mask`, and the streams that still have one."""
        if mask.all():
            return
        self.keys = self.keys[mask]
        self.smoothed, self.told = self.smoothed[:, mask], self.told[:, mask]
        self.at = self.at[:, mask]

    def drop_idle_streams(self) -> None:
        """Forget the names of streams that have no shard left."""
        used, codes = np.unique(self.keys >> _SHARD_BITS, return_inverse=True)
        if len(used) == len(self.streams):
            return
        self.streams = [self.streams[code] for code in used.tolist()]
        self.uids = [self.uids[code] for code in used.tolist()]
        self._codes = {stream: code for code, stream in enumerate(self.streams)}
        self.keys = codes.astype(np.int64) << _SHARD_BITS | self.shards(slice(None))

    def shards(self, columns: Integers | slice) -> Integers:
        """Return the numbers of the shards of columns."""
        numbers: Integers = self.keys[columns] & ((1 << _SHARD_BITS) - 1)
        return numbers

    def place(self, column: int) -> tuple[str, str | None, int]:
        """Return stream, uid and number of the shard of a column."""
        code, shard = divmod(int(self.keys[column]), 1 << _SHARD_BITS)
        return self.streams[code], self.uids[code], shard

    def to_bytes(self, header: Any) -> bytes:
        """Write the columns and `header`, which is any JSON."""
        names = [header, self.resources, self.streams, self.uids, len(self)]
        packed = json.dumps(names, separators=(",", ":")).encode()
        columns = (self.keys, self.smoothed, self.told, self.at)
        arrays = (np.ascontiguousarray(column).tobytes() for column in columns)
        return b"".join([len(packed).to_bytes(4, "big"), packed, *arrays])

    @classmethod
    def from_bytes(cls, blob: bytes) -> tuple["ReportColumns", Any]:
        """Read what `to_bytes` wrote, with the header."""
        found = cls()
        place = 4 + int.from_bytes(blob[:4], "big")
        header, found.resources, found.streams, found.uids, size = json.loads(blob[4:place])
        found._codes = {stream: code for code, stream in enumerate(found.streams)}
        shape = (len(found.resources), size)
        figures = np.frombuffer(blob, np.float64, 2 * shape[0] * size, place + 8 * size)
        found.keys = np.frombuffer(blob, np.int64, size, place).copy()
        found.smoothed, found.told = figures.reshape(2, *shape).copy()
        place += found.keys.nbytes + figures.nbytes
        found.at = np.frombuffer(blob, np.int64, shape[0] * size, place).reshape(shape).copy()
        return found, header
