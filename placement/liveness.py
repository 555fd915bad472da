"""Liveness: a pure columnar table that turns a partition's log into node verdicts.

Nodes are judged at tick records, by the silence clock of the partition that their last record came
from (`silence`); those that come and go are held down (`flaps`). A node's wrong clock, a partition
that cannot be read, a jump of a broker's clock or a stopped application can delay a verdict but
never cause one, and where the log is cut into batches changes nothing.
"""

import json
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from placement.flaps import Flaps
from placement.model import Liveness, NodeView, Reporting
from placement.node_log import Beats, PartitionLog, Statement, Tick, Told
from placement.reasons import Code
from placement.silence import NO_PARTITION, Clock, SilenceClocks, Timers
from placement.verdict import Verdict, refusal

if TYPE_CHECKING:
    from numpy.typing import NDArray


class _Status(IntEnum):
    UP = 0
    SUSPECT = 1
    DEAD = 2
    UNREGISTERED = 3


_LIVENESS = (Liveness.UP, Liveness.SUSPECT, Liveness.DEAD, Liveness.UNREGISTERED)
# Nodes of one topology shard, whatever is sent: above any quota of the core (rule R4), and what a
# batch can write back in a tenth of a second.
NODES_MAX = 16_384
_COLUMNS = ("seen", "sequence", "status", "partition")


class LivenessTable:
    """Nodes of one topology shard; array columns are cut to `size`."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self._silence = SilenceClocks(timers.gap_max_ms)
        self._flaps: dict[int, Flaps] = {}
        self._sweep_at = 0
        self._reports: dict[int, tuple[int, str]] = {}
        self._ids: list[str] = []
        self._index: dict[str, int] = {}
        self._incarnations: list[str] = []
        self._hashes: list[str] = []
        self._seen = np.zeros(64, np.int64)
        self._sequence = np.zeros(64, np.int64)
        self._status = np.zeros(64, np.int8)
        self._partition = np.full(64, NO_PARTITION, np.int32)
        self._static: bytes | None = None
        self._crowded = False
        self._free: int | None = None

    @property
    def clocks(self) -> dict[int, Clock]:
        """The clocks by partition."""
        return self._silence.by_partition

    def __len__(self) -> int:
        return len(self._ids)

    def condition(self, node_id: str) -> tuple[Liveness, str, int] | None:
        """Liveness, incarnation and sequence of a node; None if it never registered."""
        node = self._index.get(node_id)
        if node is None:
            return None
        liveness = _LIVENESS[int(self._status[node])]
        return liveness, self._incarnations[node], int(self._sequence[node])

    def restore(self, nodes: Iterable[NodeView], clocks: Mapping[int, Clock]) -> None:
        """Fill an empty table with what is believed of the nodes.

        A node that was up is taken as seen just now; one that was suspect as just become so.
        """
        self._silence.restore(clocks)
        for view in nodes:
            node = self._append(view.node_id)
            self._incarnations[node] = view.incarnation
            self._hashes[node] = view.body_hash
            self._sequence[node] = view.sequence
            self._status[node] = _LIVENESS.index(view.liveness)
            silent = self.timers.suspect_after_ms if view.liveness is Liveness.SUSPECT else 0
            self._seen[node] = -silent
            if view.transitions or view.hold_down is not None:
                self._flaps[node] = Flaps(view.transitions, view.hold_down)
            if view.reporting.external:
                self._reports[node] = (view.reporting.sequence, view.reporting.said)

    def apply(self, log: PartitionLog) -> list[Verdict]:
        """Advance over a stretch of one partition; verdicts come in the order of its records."""
        clock, start = self._silence.open(log.partition, log.first_at)
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
        silent = heard[(self._status[node[heard]] != _Status.UP) & ~self._external()[node[heard]]]
        for row in np.sort(silent[np.unique(node[silent], return_index=True)[1]]).tolist():
            (beat,) = beats.select(np.array([row + run.start])).rows()
            flaps = self._turn(int(node[row]), _Status.UP, beat.at)
            life = (beat.node_id, beat.incarnation, beat.sequence)
            verdicts.append(Verdict(beat.at, beat.offset, *life, Liveness.UP, flaps=flaps))
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
        counts = self._may_come(said) if node is None else self._counts(node, said)
        if isinstance(counts, Code):
            verdicts.append(refusal(said, self._holder(node), counts))
        if counts is not True:
            return
        known = node is not None
        node = self._append(said.node_id) if node is None else node
        same = self._incarnations[node] == said.incarnation
        if not same or self._hashes[node] != said.body_hash:
            self._incarnations[node], self._hashes[node] = said.incarnation, said.body_hash
            self._static = None
        self._touch(node, said.sequence, partition, now)
        if said.told is Told.REGISTERED and not said.external:
            self._reports.pop(node, None)
        elif said.told is Told.REGISTERED and not (same and node in self._reports):
            self._reports[node] = (-1, "")
        status = _Status.UNREGISTERED if said.told is Told.UNREGISTERED else _Status.UP
        if status == _Status.UP and self._reports.get(node, ("", ""))[1] == Told.REPORTED_DOWN:
            status = _Status.DEAD
        flaps = self._turn(node, status, said.at) if known else None
        life = (said.node_id, said.incarnation, said.sequence)
        told: dict[str, Any] = {"flaps": flaps, "reporting": self._reporting(node)}
        verdicts.append(Verdict(said.at, said.offset, *life, _LIVENESS[status], said, **told))

    def _may_come(self, said: Statement) -> bool | Code:
        """Whether a node that is not known becomes known; a change of place that comes before the
        registration is refused, to be sent again, as nothing may be remembered of nodes unseen."""
        if said.told is not Told.REGISTERED:
            return Code.NODE_UNKNOWN if said.told is Told.LOCALITY_CHANGED else False
        return len(self._index) < NODES_MAX or self._vacate() or Code.QUOTA_EXCEEDED

    def _vacate(self) -> bool:
        """Forget the node that left or died first; its place is taken by the next that comes."""
        if self._crowded:
            return False
        size = len(self._ids)
        gone = np.flatnonzero(self._status[:size] >= _Status.DEAD)
        if not len(gone):
            self._crowded = True
            return False
        order = np.lexsort((self._seen[gone], -self._status[gone]))
        first = gone[order[0]]
        alike = (self._status == self._status[first]) & (self._seen == self._seen[first])
        node = min(np.flatnonzero(alike[:size]).tolist(), key=self._ids.__getitem__)
        del self._index[self._ids[node]]
        self._flaps.pop(node, None)
        self._reports.pop(node, None)
        self._free = node
        return True

    def _counts(self, node: int, said: Statement) -> bool | Code:
        """Whether what a known node says is news, or why it is refused."""
        status = self._status[node]
        if self._incarnations[node] != said.incarnation:
            if said.told is Told.REGISTERED and status == _Status.UP:
                return Code.INCARNATION_CONFLICT
            return said.told is Told.REGISTERED
        if said.sequence <= self._sequence[node]:
            again = said.sequence == self._sequence[node]
            other = said.body_hash != self._hashes[node]
            return Code.SEQUENCE_CONFLICT if again and other else False
        return bool(status != _Status.UNREGISTERED or said.told is Told.REGISTERED)

    def report(self, said: Statement) -> list[Verdict]:
        """Apply an external detector's word on a node; on a life that is not the node's it counts
        for nothing, on a node that is judged by its heartbeats it is refused."""
        node = self._index.get(said.node_id)
        if node is None or self._incarnations[node] != said.incarnation:
            return []
        if self._status[node] == _Status.UNREGISTERED:
            return []
        if node not in self._reports:
            return [refusal(said, self._holder(node), Code.NODE_NOT_EXTERNAL)]
        last, word = self._reports[node]
        if said.sequence <= last:
            if said.sequence == last and said.told != word:
                return [refusal(said, f"the last one said {word}", Code.SEQUENCE_CONFLICT)]
            return []
        self._reports[node] = (said.sequence, said.told)
        status = _Status.UP if said.told is Told.REPORTED_UP else _Status.DEAD
        if self._status[node] == status:
            return []
        flaps = self._turn(node, status, said.at)
        life = (said.node_id, said.incarnation, int(self._sequence[node]))
        told: dict[str, Any] = {"flaps": flaps, "reporting": self._reporting(node)}
        return [Verdict(said.at, said.offset, *life, _LIVENESS[status], **told)]

    def _reporting(self, node: int) -> Reporting:
        return Reporting(True, *self._reports[node]) if node in self._reports else Reporting()

    def _external(self) -> "NDArray[np.bool_]":
        """Which nodes a detector judges, and their silence does not."""
        found = np.zeros(len(self._ids), bool)
        found[list(self._reports)] = True
        return found

    def _judge(self, tick: Tick, partition: int, now: int, verdicts: list[Verdict]) -> None:
        if self._silence.repartitioned(tick.partitions):
            self._unsettle()
        size = len(self._ids)
        status, home = self._status[:size], self._partition[:size]
        silence = self._silence.silence(home, self._seen[:size], partition, now)
        if self._reports:
            silence[self._external()] = -1
        dead = (status <= _Status.SUSPECT) & (silence >= self.timers.dead_after_ms)
        suspect = (status == _Status.UP) & (silence >= self.timers.suspect_after_ms) & ~dead
        flaps: dict[int, Flaps | None] = dict.fromkeys(self._over(tick.at, partition))
        for node in flaps:
            flaps[node] = self._flaps[node] = self._flaps[node].released()
        for node in np.flatnonzero(dead | suspect).tolist():
            flaps[node] = self._turn(node, _Status.DEAD if dead[node] else _Status.SUSPECT, tick.at)
        for node in sorted(flaps, key=self._ids.__getitem__):
            life = (self._ids[node], self._incarnations[node], int(self._sequence[node]))
            liveness = _LIVENESS[int(status[node])]
            verdicts.append(Verdict(tick.at, tick.offset, *life, liveness, flaps=flaps[node]))
        self._sweep(tick.at)

    def _unsettle(self) -> None:
        """Nodes will go on in other partitions: all that is known of them counts from here."""
        size = len(self._ids)
        readings = {p: clock.reading for p, clock in self.clocks.items()}
        slowest, home = self._silence.slowest(), self._partition[:size]
        shown = np.array([readings.get(p, slowest) for p in home.tolist()], np.int64)
        self._seen[:size] -= shown
        self._partition[:size] = NO_PARTITION
        self._silence.rebase()

    def _over(self, at: int, partition: int) -> list[int]:
        """Nodes whose hold-down has run out at a tick of their partition."""
        return [
            node
            for node, flaps in self._flaps.items()
            if flaps.hold is not None
            and flaps.held
            and at >= flaps.hold.until
            and self._partition[node] in (partition, NO_PARTITION)
        ]

    def _turn(self, node: int, status: _Status, at: int) -> Flaps | None:
        """Set a node's status; its flaps, if that makes a transition."""
        if self._status[node] == status:
            return None
        self._status[node] = status
        self._crowded = False
        flaps = self._flaps.get(node, Flaps()).turned(at, _LIVENESS[status], self.timers.flaps)
        self._flaps[node] = flaps
        return flaps

    def _sweep(self, at: int) -> None:
        """Forget, once in a while, transitions that no longer matter."""
        if at < self._sweep_at:
            return
        self._sweep_at = at + self.timers.flaps.window_ms
        old = [
            node for node, flaps in self._flaps.items() if flaps.forgotten(at, self.timers.flaps)
        ]
        for node in old:
            del self._flaps[node]

    def _touch(self, node: int, sequence: int, partition: int, now: int) -> None:
        self._sequence[node], self._seen[node], self._partition[node] = sequence, now, partition

    def _holder(self, node: int | None) -> str:
        if node is None:
            # How many there are would depend on the shard of the topology that is asked.
            return f"it is none of those that are there, of which there may be {NODES_MAX}"
        status = _LIVENESS[int(self._status[node])]
        return f"incarnation {self._incarnations[node]} at {self._sequence[node]} is {status}"

    def _append(self, node_id: str) -> int:
        self._static = None
        if self._free is not None:
            node, self._free = self._free, None
            self._ids[node], self._index[node_id] = node_id, node
            self._status[node] = _Status.UP
            return node
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
        return node

    def to_bytes(self) -> bytes:
        """The whole table; `from_bytes` of it behaves the same."""
        if self._static is None:
            names = [self._ids, self._incarnations, self._hashes]
            self._static = json.dumps(names, separators=(",", ":")).encode()
        silence = self._silence
        clocks = {
            p: [clock.reading, clock.at, silence.baseline.get(p, 0)]
            for p, clock in sorted(self.clocks.items())
        }
        parts = [len(self._static), clocks, silence.partitions, silence.settling, self._sweep_at]
        flaps = {node: self._flaps[node].plain() for node in sorted(self._flaps)}
        reports = dict(sorted(self._reports.items()))
        header = json.dumps([*parts, flaps, reports], separators=(",", ":")).encode()
        size = len(self._ids)
        columns = (getattr(self, f"_{name}")[:size].tobytes() for name in _COLUMNS)
        return b"".join([len(header).to_bytes(4, "big"), header, self._static, *columns])

    @classmethod
    def from_bytes(cls, blob: bytes, timers: Timers) -> "LivenessTable":
        """Read what `to_bytes` wrote."""
        table = cls(timers)
        silence = table._silence
        start = 4 + int.from_bytes(blob[:4], "big")
        header = json.loads(blob[4:start])
        length, clocks, silence.partitions, silence.settling, table._sweep_at = header[:5]
        for partition, (reading, at, baseline) in clocks.items():
            table.clocks[int(partition)] = Clock(reading, at)
            silence.baseline[int(partition)] = baseline
        table._flaps = {int(node): Flaps.read(flaps) for node, flaps in header[5].items()}
        table._reports = {int(node): (each[0], each[1]) for node, each in header[6].items()}
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
