"""Liveness: a pure columnar table that turns a partition's log into node verdicts.

Silence is measured in the log, not on a wall (design section 4). Each partition of the nodes topic
has a clock that advances with every record by the gap in broker append time, but by no more than
`Timers.gap_max_ms` at once; nodes are judged at tick records, by the clock of the partition that
their last record came from. So a node's wrong clock, a partition that cannot be read, a jump of a
broker's clock or a stopped application can delay a verdict but never cause one, and where the log
is cut into batches changes nothing.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from placement.model import Liveness
from placement.node_log import Beats, PartitionLog, Statement, Tick, Told
from placement.reasons import Code, Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Ticks come every second; three of them missing is a stall of the log, not a silence of its nodes.
GAP_MAX_MS = 3_000

# Nodes restored from the topology topic: no record of theirs has been seen by this process, so
# that they are judged by the slowest of all clocks.
NO_PARTITION = -1


@dataclass(frozen=True, slots=True)
class Verdict:
    """A node's condition changed at a record of the log, or the record was refused."""

    at: int
    offset: int
    node_id: str
    incarnation: str
    sequence: int
    liveness: Liveness
    statement: Statement | None = None
    refused: Reason | None = None


@dataclass(frozen=True, slots=True)
class Timers:
    """Silence in ms after which a node takes no new replicas, and loses those it has."""

    suspect_after_ms: int
    dead_after_ms: int

    @property
    def gap_max_ms(self) -> int:
        """By how much one record may advance a clock: no single gap makes a suspect."""
        return min(GAP_MAX_MS, self.suspect_after_ms // 2)


@dataclass(slots=True)
class Clock:
    """A partition's clock in ms, and the append time of its last record."""

    reading: int
    at: int


class _Status(IntEnum):
    UP = 0
    SUSPECT = 1
    DEAD = 2
    UNREGISTERED = 3


_LIVENESS = (Liveness.UP, Liveness.SUSPECT, Liveness.DEAD, Liveness.UNREGISTERED)
_COLUMNS = ("seen", "sequence", "status", "partition")


class LivenessTable:
    """Nodes of one topology shard; array columns are cut to `size`."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self.clocks: dict[int, Clock] = {}
        self._baseline: dict[int, int] = {}
        self._ids: list[str] = []
        self._index: dict[str, int] = {}
        self._incarnations: list[str] = []
        self._hashes: list[str] = []
        self._seen = np.zeros(64, np.int64)
        self._sequence = np.zeros(64, np.int64)
        self._status = np.zeros(64, np.int8)
        self._partition = np.full(64, NO_PARTITION, np.int32)
        self._static: bytes | None = None

    def __len__(self) -> int:
        return len(self._ids)

    def condition(self, node_id: str) -> tuple[Liveness, str, int] | None:
        """Liveness, incarnation and sequence of a node; None if it never registered."""
        node = self._index.get(node_id)
        if node is None:
            return None
        liveness = _LIVENESS[int(self._status[node])]
        return liveness, self._incarnations[node], int(self._sequence[node])

    def restore(
        self, nodes: Iterable[tuple[str, str, int, str, Liveness]], clocks: Mapping[int, Clock]
    ) -> None:
        """Fill an empty table: (id, incarnation, sequence, body hash, liveness) per node.

        A node that was up is taken as seen just now; one that was suspect as just become so.
        """
        self.clocks = {p: Clock(clock.reading, clock.at) for p, clock in clocks.items()}
        self._baseline = {partition: clock.reading for partition, clock in clocks.items()}
        for node_id, incarnation, sequence, body_hash, liveness in nodes:
            node = self._append(node_id)
            self._incarnations[node] = incarnation
            self._hashes[node] = body_hash
            self._sequence[node] = sequence
            self._status[node] = _LIVENESS.index(liveness)
            silent = self.timers.suspect_after_ms if liveness is Liveness.SUSPECT else 0
            self._seen[node] = -silent

    def apply(self, log: PartitionLog) -> list[Verdict]:
        """Advance over a stretch of one partition; verdicts come in the order of its records."""
        clock = self.clocks.get(log.partition)
        if clock is None:
            clock = self.clocks[log.partition] = Clock(0, log.first_at)
            self._baseline.setdefault(log.partition, 0)
        start = clock.reading + min(max(log.first_at - clock.at, 0), self.timers.gap_max_ms)
        verdicts: list[Verdict] = []
        others: list[Statement | Tick] = [*log.statements, *log.ticks]
        others.sort(key=lambda each: each.offset)
        done = 0
        ends = np.searchsorted(log.beats.offsets, [each.offset for each in others]).tolist()
        for record, end in zip(others, ends, strict=True):
            if end > done:
                self._hear(log.beats, slice(done, end), log.partition, start, verdicts)
            done = end
            clock.reading = start + record.elapsed
            if isinstance(record, Tick):
                self._judge(record, log.partition, clock.reading, verdicts)
            else:
                self._state(record, log.partition, clock.reading, verdicts)
        if len(log.beats) > done:
            self._hear(log.beats, slice(done, None), log.partition, start, verdicts)
        clock.reading, clock.at = start + log.elapsed, log.last_at
        return verdicts

    def _hear(
        self, beats: Beats, run: slice, partition: int, start: int, verdicts: list[Verdict]
    ) -> None:
        """Heartbeats with no other record between them; those count that this life of the node
        has not sent before."""
        sequence, kinds = beats.sequences[run], len(beats.incarnations)
        pairs = beats.nodes[run].astype(np.int64) * kinds + beats.lives[run]
        pairs, position = np.unique(pairs, return_inverse=True)
        holders = [self._life(beats, *divmod(pair, kinds)) for pair in pairs.tolist()]
        node = np.array(holders, np.int64)[position]
        known = (node >= 0) & (sequence > self._sequence[node])
        known &= self._status[node] != _Status.UNREGISTERED
        heard = np.flatnonzero(known)
        if not len(heard):
            return
        silent = heard[self._status[node[heard]] != _Status.UP]
        for row in np.sort(silent[np.unique(node[silent], return_index=True)[1]]).tolist():
            self._status[node[row]] = _Status.UP
            (beat,) = beats.select(np.array([row + run.start])).rows()
            life = (beat.node_id, beat.incarnation, beat.sequence)
            verdicts.append(Verdict(beat.at, beat.offset, *life, Liveness.UP))
        # Of each node the highest sequence counts, and among equals the first.
        order = heard[np.lexsort((-heard, sequence[heard], node[heard]))]
        last = order[np.append(np.diff(node[order]) != 0, True)]
        self._sequence[node[last]] = sequence[last]
        self._seen[node[last]] = start + beats.elapsed[run][last]
        self._partition[node[last]] = partition

    def _life(self, beats: Beats, name: int, life: int) -> int:
        """The node of this name, if it lives this life; else -1."""
        node = self._index.get(beats.node_ids[name], -1)
        return node if node >= 0 and self._incarnations[node] == beats.incarnations[life] else -1

    def _state(self, said: Statement, partition: int, now: int, verdicts: list[Verdict]) -> None:
        node = self._index.get(said.node_id)
        if node is None:
            if said.told is not Told.REGISTERED:
                return
            node = self._append(said.node_id)
        elif self._incarnations[node] != said.incarnation:
            if said.told is not Told.REGISTERED:
                return
            if self._status[node] == _Status.UP:
                verdicts.append(_refusal(said, self._holder(node), Code.INCARNATION_CONFLICT))
                return
        elif said.sequence <= self._sequence[node]:
            if said.sequence == self._sequence[node] and said.body_hash != self._hashes[node]:
                verdicts.append(_refusal(said, self._holder(node), Code.SEQUENCE_CONFLICT))
            return
        elif self._status[node] == _Status.UNREGISTERED and said.told is not Told.REGISTERED:
            return
        if self._incarnations[node] != said.incarnation or self._hashes[node] != said.body_hash:
            self._incarnations[node], self._hashes[node] = said.incarnation, said.body_hash
            self._static = None
        self._touch(node, said.sequence, partition, now)
        gone = said.told is Told.UNREGISTERED
        self._status[node] = _Status.UNREGISTERED if gone else _Status.UP
        liveness = Liveness.UNREGISTERED if gone else Liveness.UP
        verdicts.append(
            Verdict(
                said.at, said.offset, said.node_id, said.incarnation, said.sequence, liveness, said
            )
        )

    def _judge(self, tick: Tick, partition: int, now: int, verdicts: list[Verdict]) -> None:
        size = len(self._ids)
        status, home = self._status[:size], self._partition[:size]
        silence = np.where(home == partition, now - self._seen[:size], -1)
        restored = home == NO_PARTITION
        if restored.any():
            slowest = min(
                clock.reading - self._baseline.get(p, 0) for p, clock in self.clocks.items()
            )
            silence = np.where(restored, slowest - self._seen[:size], silence)
        dead = (status <= _Status.SUSPECT) & (silence >= self.timers.dead_after_ms)
        suspect = (status == _Status.UP) & (silence >= self.timers.suspect_after_ms) & ~dead
        found = np.flatnonzero(dead | suspect).tolist()
        for node in sorted(found, key=self._ids.__getitem__):
            status[node] = _Status.DEAD if dead[node] else _Status.SUSPECT
            verdicts.append(
                Verdict(
                    tick.at,
                    tick.offset,
                    self._ids[node],
                    self._incarnations[node],
                    int(self._sequence[node]),
                    _LIVENESS[int(status[node])],
                )
            )

    def _touch(self, node: int, sequence: int, partition: int, now: int) -> None:
        self._sequence[node], self._seen[node], self._partition[node] = sequence, now, partition

    def _holder(self, node: int) -> str:
        status = _LIVENESS[int(self._status[node])]
        return f"incarnation {self._incarnations[node]} at {self._sequence[node]} is {status}"

    def _append(self, node_id: str) -> int:
        node = len(self._ids)
        if node == len(self._seen):
            for name in _COLUMNS:
                column: NDArray[Any] = getattr(self, f"_{name}")
                setattr(self, f"_{name}", np.concatenate([column, np.zeros_like(column)]))
        self._ids.append(node_id)
        self._index[node_id] = node
        self._incarnations.append("")
        self._hashes.append("")
        self._partition[node] = NO_PARTITION
        self._static = None
        return node

    def to_bytes(self) -> bytes:
        """The whole table; `from_bytes` of it behaves the same."""
        if self._static is None:
            names = [self._ids, self._incarnations, self._hashes]
            self._static = json.dumps(names, separators=(",", ":")).encode()
        clocks = {
            p: [clock.reading, clock.at, self._baseline.get(p, 0)]
            for p, clock in sorted(self.clocks.items())
        }
        header = json.dumps([len(self._static), clocks], separators=(",", ":")).encode()
        size = len(self._ids)
        columns = (getattr(self, f"_{name}")[:size].tobytes() for name in _COLUMNS)
        return b"".join([len(header).to_bytes(4, "big"), header, self._static, *columns])

    @classmethod
    def from_bytes(cls, blob: bytes, timers: Timers) -> "LivenessTable":
        """Read what `to_bytes` wrote."""
        table = cls(timers)
        start = 4 + int.from_bytes(blob[:4], "big")
        length, clocks = json.loads(blob[4:start])
        for partition, (reading, at, baseline) in clocks.items():
            table.clocks[int(partition)] = Clock(reading, at)
            table._baseline[int(partition)] = baseline
        table._static = blob[start : start + length]
        table._ids, table._incarnations, table._hashes = json.loads(table._static)
        table._index = {node_id: node for node, node_id in enumerate(table._ids)}
        size, place = len(table._ids), start + length
        for name in _COLUMNS:
            empty: NDArray[Any] = getattr(table, f"_{name}")
            column = np.frombuffer(blob, empty.dtype, size, place)
            place += column.nbytes
            spare = np.zeros(max(64, size) - size, empty.dtype)
            setattr(table, f"_{name}", np.concatenate([column, spare]))
        return table


def _refusal(said: Statement, holder: str, code: Code) -> Verdict:
    what = "another incarnation" if code is Code.INCARNATION_CONFLICT else "another body"
    reason = Reason(code, f"{said.node_id}: {said.told} with {what} refused, {holder}")
    return Verdict(
        said.at,
        said.offset,
        said.node_id,
        said.incarnation,
        said.sequence,
        Liveness.UP,
        said,
        reason,
    )
