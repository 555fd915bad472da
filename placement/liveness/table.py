"""Turns a partition's log into verdicts on nodes, in a pure columnar table.

Silence leads to a verdict only at a tick record, by the clock of the partition of the node's last
record (`clocks`). Nodes that come and go are held down (`flaps`). A node's wrong clock, a partition
that cannot be read, a jump of a broker's clock or a stopped application can delay a verdict but
never cause one. Verdicts do not depend on how the log is cut into batches.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from placement.liveness.clocks import NO_PARTITION, Clock, Timers
from placement.liveness.incarnations import Incarnations, Mark
from placement.liveness.log import Heartbeats, PartitionLog, Statement, Tick, Verdict
from placement.liveness.node_columns import NodeColumns
from placement.liveness.node_states import LIVENESS, NodeStates, Status
from placement.liveness.statements import Statements
from placement.model import FlapHistory, Liveness, NodeView

if TYPE_CHECKING:
    from numpy.typing import NDArray


class LivenessTable:
    """Decides about the nodes of one topology shard; its state is bytes between two batches."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self._states = NodeStates(timers)
        self._statements = Statements(self._states)
        self._sweep_at = 0

    @property
    def clocks(self) -> dict[int, Clock]:
        """Return the clocks by partition."""
        return self._states.silence.by_partition

    def __len__(self) -> int:
        return len(self._states.nodes)

    def condition(self, node_id: str) -> tuple[Liveness, str, int] | None:
        """Return liveness, incarnation and sequence of a node; None if it never registered."""
        nodes = self._states.nodes
        node = nodes.index.get(node_id)
        if node is None:
            return None
        liveness = LIVENESS[int(nodes.status[node])]
        return liveness, nodes.incarnations[node], int(nodes.sequence[node])

    def restore(self, views: Iterable[NodeView], clocks: Mapping[int, Clock]) -> None:
        """Fill an empty table with what is believed of the nodes.

        A node that was up is taken as seen just now, as are the other lives of its process; one
        that was suspect as just become so.
        """
        self._states.silence.restore(clocks)
        nodes = self._states.nodes
        for view in views:
            node = nodes.append(view.node_id)
            nodes.name(node, view.incarnation, view.body_hash)
            nodes.sequence[node] = view.sequence
            nodes.status[node] = LIVENESS.index(view.liveness)
            silent = self.timers.suspect_after_ms if view.liveness is Liveness.SUSPECT else 0
            nodes.seen[node] = -silent
            if view.transitions or view.hold_down is not None:
                self._states.flaps[node] = FlapHistory(view.transitions, view.hold_down)
            if view.reporting.external:
                self._states.reports[node] = (view.reporting.sequence, view.reporting.said)
            self._states.lives.restore(node, view.lives)

    def take_ignored(self) -> Counter[str]:
        """Return the counts of records ignored since the last call."""
        found, self._states.ignored = self._states.ignored, Counter()
        return found

    def apply(self, log: PartitionLog) -> list[Verdict]:
        """Advance over a stretch of one partition; verdicts come in the order of its records."""
        clock, start = self._states.silence.open(log.partition, log.first_at)
        verdicts: list[Verdict] = []
        others: list[Statement | Tick] = [*log.statements, *log.ticks]
        others.sort(key=lambda each: each.offset)
        done = 0
        ends = np.searchsorted(log.beats.offsets, [each.offset for each in others]).tolist()
        for record, end in zip(others, ends, strict=True):
            if end > done:
                self._apply_heartbeats(log.beats, slice(done, end), log.partition, start, verdicts)
            done = end
            clock.reading = start + record.elapsed
            if isinstance(record, Tick):
                self._apply_tick(record, log.partition, clock.reading, verdicts)
            else:
                self._statements.apply(record, log.partition, clock.reading, verdicts)
        if len(log.beats) > done:
            self._apply_heartbeats(log.beats, slice(done, None), log.partition, start, verdicts)
        clock.reading, clock.at = start + log.elapsed, log.last_at
        return verdicts

    def report(self, turns: Statement) -> list[Verdict]:
        """Apply a report of an external detector; see `Statements.report`."""
        return self._statements.report(turns)

    def _apply_heartbeats(
        self, beats: Heartbeats, run: slice, partition: int, start: int, verdicts: list[Verdict]
    ) -> None:
        """Apply heartbeats with no other record between them.

        Those count that this life of the node has not sent before.
        """
        nodes, sequence, kinds = self._states.nodes, beats.sequences[run], len(beats.incarnations)
        pairs = beats.nodes[run].astype(np.int64) * kinds + beats.lives[run]
        pairs, position = np.unique(pairs, return_inverse=True)
        named = [divmod(pair, kinds) for pair in pairs.tolist()]
        holders = np.array([self._holder_row(beats, *each) for each in named], np.int64)
        node = holders[position]
        mine = node >= 0
        left = mine & (nodes.status[node] == Status.UNREGISTERED)
        known = mine & ~left & (sequence > nodes.sequence[node])
        heard = np.flatnonzero(known)
        older = int((mine & ~left & ~known).sum()) + _falling(node[heard], sequence[heard])
        self._states.ignore("unregistered_node", int(left.sum()))
        self._states.ignore("older_sequence", older)
        silent = heard[
            (nodes.status[node[heard]] != Status.UP) & ~self._states.external()[node[heard]]
        ]
        first = silent[np.unique(node[silent], return_index=True)[1]].tolist()
        turns = [(row, int(node[row]), "") for row in first]
        if len(heard) < len(node):
            spoken = (beats, run, partition, start)
            others = np.flatnonzero(holders < 0).tolist()
            turns += self._apply_other_lives({n: named[n] for n in others}, position, *spoken)
        for row, each, other in sorted(turns):
            at, offset = int(beats.at[run][row]), int(beats.offsets[run][row])
            if other:
                before = heard[(node[heard] == each) & (heard < row)]
                reached = int(sequence[before].max(initial=nodes.sequence[each]))
                mark = Mark(partition, start + int(beats.elapsed[run][row]))
                self._states.hear_earlier_life(each, other, reached, (at, offset), mark, verdicts)
            else:
                flaps = self._states.set_status(each, Status.UP, at)
                verdict = self._states.verdict(each, at, offset, flaps=flaps)
                verdicts.append(replace(verdict, sequence=int(sequence[row])))
        # Of each node the highest sequence counts, and among equals the first.
        order = heard[np.lexsort((-heard, sequence[heard], node[heard]))]
        last = order[np.append(np.diff(node[order]) != 0, True)] if len(order) else order
        nodes.record_heartbeats(
            node[last], sequence[last], start + beats.elapsed[run][last], partition
        )

    def _apply_other_lives(
        self,
        others: Mapping[int, tuple[int, int]],
        position: "NDArray[np.intp]",
        beats: Heartbeats,
        run: slice,
        partition: int,
        start: int,
    ) -> list[tuple[int, int, str]]:
        """Apply heartbeats of lives that hold no name: those of waiting lives are kept, others
        counted.

        Returns row, node and incarnation of the earlier lives' heartbeats: of each the first and
        the last.
        """
        turns = []
        order = np.argsort(position, kind="stable")
        ends = np.cumsum(np.bincount(position))
        for number, (name, life) in others.items():
            rows = order[ends[number - 1] if number else 0 : ends[number]]
            node = self._states.nodes.index.get(beats.node_ids[name])
            incarnation = beats.incarnations[life]
            if node is None:
                self._states.ignore("unknown_node", len(rows))
            elif self._states.lives.is_waiting(node, incarnation):
                for row in rows.tolist():
                    mark = Mark(partition, start + int(beats.elapsed[run][row]))
                    new = self._states.lives.record_heartbeat(
                        node, int(beats.sequences[run][row]), mark
                    )
                    self._states.ignore("older_sequence", not new)
            elif self._states.lives.is_earlier(node, incarnation):
                self._states.ignore("earlier_incarnation", len(rows))
                turns += [(int(row), node, incarnation) for row in {rows[0], rows[-1]}]
            else:
                self._states.ignore("unknown_incarnation", len(rows))
        return turns

    def _holder_row(self, beats: Heartbeats, name: int, life: int) -> int:
        """Return the row of this node if this life holds its name, else -1."""
        node = self._states.nodes.index.get(beats.node_ids[name], -1)
        same = node >= 0 and self._states.nodes.incarnations[node] == beats.incarnations[life]
        return node if same else -1

    def _apply_tick(self, tick: Tick, partition: int, now: int, verdicts: list[Verdict]) -> None:
        if self._states.silence.note_partitions(tick.partitions):
            self._rebase_clocks()
        nodes, size, moment = self._states.nodes, len(self._states.nodes), Mark(partition, now)
        nodes.sample(partition, self.timers.suspect_after_ms)
        changed, later = self._states.lives.apply_tick(
            self._states.silence, nodes.mark, self._states.conflict_reason, tick.at, moment
        )
        found = {node: self._states.take_over(node, tick.at, tick.offset, moment) for node in later}
        for node in changed:
            lives = self._states.lives.of(node)
            found[node] = self._states.verdict(node, tick.at, tick.offset, lives=lives)
        for node in self._expired_hold_downs(tick.at, partition):
            self._states.flaps[node] = self._states.flaps[node].with_release()
            found[node] = self._merge_verdict(node, tick, self._states.flaps[node], found)
        status, home = nodes.status[:size], nodes.partition[:size]
        silence = self._states.silence.silence(home, nodes.seen[:size], partition, now)
        if self._states.reports:
            silence[self._states.external()] = -1
        dead = (status <= Status.SUSPECT) & (silence >= self.timers.dead_after_ms)
        suspect = (status == Status.UP) & (silence >= self.timers.suspect_after_ms) & ~dead
        for node in np.flatnonzero(dead | suspect).tolist():
            flaps = self._states.set_status(
                node, Status.DEAD if dead[node] else Status.SUSPECT, tick.at
            )
            found[node] = self._merge_verdict(node, tick, flaps, found)
        verdicts += [found[node] for node in sorted(found, key=nodes.ids.__getitem__)]
        self._forget_old_transitions(tick.at)

    def _merge_verdict(
        self, node: int, tick: Tick, flaps: FlapHistory | None, found: Mapping[int, Verdict]
    ) -> Verdict:
        """Make the verdict on a node at a tick, with what else has changed."""
        known = found.get(node) or self._states.verdict(node, tick.at, tick.offset)
        return replace(known, liveness=LIVENESS[self._states.status(node)], flaps=flaps)

    def _rebase_clocks(self) -> None:
        """Count all that is known of the nodes from here, as they go on in other partitions."""
        nodes, size = self._states.nodes, len(self._states.nodes)
        readings = {p: clock.reading for p, clock in self.clocks.items()}
        slowest, home = self._states.silence.slowest(), nodes.partition[:size]
        shown = np.array([readings.get(p, slowest) for p in home.tolist()], np.int64)
        nodes.seen[:size] -= shown
        nodes.partition[:size] = NO_PARTITION
        self._states.lives.unsettle(lambda home: readings.get(home, slowest))
        self._states.silence.rebase()

    def _expired_hold_downs(self, at: int, partition: int) -> list[int]:
        """List the nodes whose hold-down has expired at a tick of their partition."""
        return [
            node
            for node, flaps in self._states.flaps.items()
            if flaps.hold is not None
            and flaps.is_held_down
            and at >= flaps.hold.until
            and self._states.nodes.partition[node] in (partition, NO_PARTITION)
        ]

    def _forget_old_transitions(self, at: int) -> None:
        """Forget, once in a while, transitions that no longer count as flaps."""
        if at < self._sweep_at:
            return
        self._sweep_at = at + self.timers.flaps.window_ms
        old = [
            node
            for node, flaps in self._states.flaps.items()
            if flaps.is_forgettable(at, self.timers.flaps)
        ]
        for node in old:
            del self._states.flaps[node]

    def to_bytes(self) -> bytes:
        """Write the whole table; `from_bytes` restores it."""
        silence = self._states.silence
        clocks = {
            p: [clock.reading, clock.at, silence.baseline.get(p, 0)]
            for p, clock in sorted(self.clocks.items())
        }
        parts = [clocks, silence.partitions, silence.settling, self._sweep_at]
        flaps = {node: self._states.flaps[node].plain() for node in sorted(self._states.flaps)}
        reports = dict(sorted(self._states.reports.items()))
        parts += [flaps, reports, self._states.lives.to_json()]
        header = json.dumps(parts, separators=(",", ":")).encode()
        return self._states.nodes.to_bytes(header, self._states.lives.earlier_to_json())

    @classmethod
    def from_bytes(cls, blob: bytes, timers: Timers) -> "LivenessTable":
        """Read what `to_bytes` wrote."""
        table = cls(timers)
        silence = table._states.silence
        table._states.nodes, packed, earlier = NodeColumns.from_bytes(blob)
        header = json.loads(packed)
        clocks, silence.partitions, silence.settling, table._sweep_at = header[:4]
        for partition, (reading, at, baseline) in clocks.items():
            table.clocks[int(partition)] = Clock(reading, at)
            silence.baseline[int(partition)] = baseline
        table._states.flaps = {
            int(node): FlapHistory.read(flaps) for node, flaps in header[4].items()
        }
        table._states.reports = {int(node): (each[0], each[1]) for node, each in header[5].items()}
        table._states.lives = Incarnations.from_json(header[6], earlier, timers)
        return table


def _falling(node: "NDArray[np.int64]", sequence: "NDArray[np.int64]") -> int:
    """Count the heartbeats of a run that do not rise above an earlier one of their node."""
    order = np.argsort(node, kind="stable")
    again = np.diff(node[order]) == 0
    if not (again & (np.diff(sequence[order]) <= 0)).any():
        return 0
    reached: dict[int, int] = {}
    falling = 0
    for each, number in zip(node.tolist(), sequence.tolist(), strict=True):
        falling += number <= reached.get(each, -1)
        reached[each] = max(number, reached.get(each, -1))
    return falling
