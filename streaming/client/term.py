"""Acts while the locks are held: reads commands, lets the store carry them out, acknowledges.

A `Term` begins with all that is on `moves.v1` and `assignments.v1`, asks `schedule.py` what
follows, and starts a thread for each task (`carrying.py`). It alone speaks on `acks.v1`, by the
producers of the locks (`node_locks.py`). `executor.py` makes one each time that it has acquired the
locks, and runs it on its thread.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from schemas import acks
from schemas.topics import ACKS, MOVES
from streaming.client import metrics
from streaming.client.carrying import Carrier, Result, Retries
from streaming.client.moves import Move, ShardAssignment, log_extra, parse_shard_key
from streaming.client.permit import Permit
from streaming.client.schedule import CallOff, Ending, Say, Schedule, Start, Task, TaskKind
from streaming.client.sender import NotDelivered, encode_record, make_message, now_ms
from streaming.client.store import Progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.brokers import CommittedReader, Record
    from streaming.client.moves import Replica
    from streaming.client.node_locks import NodeLocks
    from streaming.client.schedule import Effect
    from streaming.client.store import ReplicaStore

LOG = logging.getLogger("streaming.client")
# How long the thread waits for records before it looks whether a task has ended.
POLL_SECONDS = 0.05
# Read in a fraction of a second: the locks are renewed while many records are read.
RECORDS_PER_PROOF, PROOF_SECONDS = 1000, 0.5
# A copy looks at its progress every few seconds; of one that does not it is told.
STOP_TIMEOUT_SECONDS = 30.0
# A broker that restarts is back well before.
FLUSH_TIMEOUT_SECONDS = 30.0


class _Running:
    """A task under way: its thread's link to it, and what was reported of it."""

    def __init__(self, permit: Permit) -> None:
        self.progress = Progress(permit)
        self.reported_at = time.monotonic()
        self.bytes_done = -1
        self._counted = 0

    def take_report(self, interval_seconds: float) -> tuple[int | None, int | None] | None:
        """Hand out what is worth a report: news, and the last ones are a while ago. What has not
        grown is none, as it extends nothing."""
        if time.monotonic() - self.reported_at < interval_seconds:
            return None
        report = self.progress.take()
        if report is None or (
            report.bytes_done is not None and report.bytes_done <= self.bytes_done
        ):
            return None
        self.reported_at = time.monotonic()
        self.bytes_done = self.bytes_done if report.bytes_done is None else report.bytes_done
        return report.bytes_done, report.bytes_total

    def count_rest(self) -> int:
        """Return the bytes that were copied since the last call, by the newest report."""
        report = self.progress.newest
        done = 0 if report is None or report.bytes_done is None else report.bytes_done
        new, self._counted = max(0, done - self._counted), max(done, self._counted)
        return new


class Term:
    """One time that an executor holds its locks, from the reading of the topics to its end.

    What is under way when it ends is left as it is: the next term, here or in another process,
    derives it again from the topics and the store.
    """

    def __init__(
        self,
        reader: CommittedReader,
        schedule: Schedule,
        store: ReplicaStore,
        locks: NodeLocks,
        prefix: str,
        retries: Retries,
    ) -> None:
        """`reader` stands at the beginning of moves and assignments, `schedule` has seen nothing;
        the locks are held."""
        self._reader, self._schedule, self._store = reader, schedule, store
        self._locks, self._prefix = locks, prefix
        self._permit = Permit()
        self._carrier = Carrier(store, retries, self._permit)
        self._running: dict[Task, _Running] = {}
        # Tasks that begin once what was said before them is committed.
        self._to_start: list[Task] = []
        self._ended: queue.SimpleQueue[tuple[Task, Result]] = queue.SimpleQueue()

    def begin(self) -> None:
        """Read all that is on the topics, and what the store has. Raises BrokerUnreachable,
        AccessRefused, LockLost, and what the store raises."""
        for number, record in enumerate(self._reader.records_to_end()):
            self._see(record)
            if number % RECORDS_PER_PROOF == 0:
                self._locks.commit()
        for replica in self._schedule.begin(self._list_replicas()):
            LOG.warning(
                "the store has %s on %s, of which the topics say nothing; it is kept: look "
                "whether the prefix is right, then delete it by hand",
                replica.shard_id,
                replica.node_id,
                extra=log_extra(replica.shard_id, node_id=replica.node_id),
            )
        self._commit()

    def step(self) -> None:
        """Do what follows from the records and the ends of tasks that have come. Raises LockLost,
        AccessRefused."""
        self._apply(self._schedule.advance(now_ms()))
        self._commit()
        for record in self._reader.poll(POLL_SECONDS):
            self._see(record)
        self._take_ends()
        self._report_progress()
        self._tell_unlisted()
        self._measure()

    def _measure(self) -> None:
        carried = sum(task.kind is TaskKind.CARRY_OUT for task in self._running)
        metrics.MOVES_UNDER_WAY.set(carried)
        metrics.UNCONFIRMED.set(self._locks.unconfirmed)
        for topic, records in self._reader.lag.items():
            metrics.LAG.labels(topic).set(records)

    def stop(self, *, is_holding: bool) -> None:
        """Let everything under way stop where it is, and wait for it a while. `is_holding`: the
        locks are kept meanwhile. Raises LockLost, AccessRefused then."""
        self._permit.end()
        for running in self._running.values():
            running.progress.call_off()
        for task in self._to_start:
            self._ended.put((task, Result(Ending.ABANDONED)))
        self._to_start.clear()
        deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
        while self._running and time.monotonic() < deadline:
            self._wait_for_end()
            if is_holding:
                self._locks.commit()
        for task in self._running:
            LOG.warning(
                "%s of %s does not stop: a copy has to call its progress every few seconds",
                task.kind,
                task.shard_id,
                extra=task.log_extra,
            )

    def wait_stopped(self, closing: threading.Event) -> None:
        """Wait for what has not stopped in time, at most until the executor closes: nothing may be
        begun beside it."""
        while self._running and not closing.is_set():
            self._wait_for_end()

    def flush(self) -> None:
        """Say what is left to be said. Raises NotDelivered, LockLost, AccessRefused."""
        deadline = time.monotonic() + FLUSH_TIMEOUT_SECONDS
        while self._locks.unconfirmed and time.monotonic() < deadline:
            if not self._locks.commit():
                time.sleep(POLL_SECONDS)
        if self._locks.unconfirmed:
            raise NotDelivered(
                f"{self._locks.unconfirmed} acknowledgements have not reached a broker within "
                f"{FLUSH_TIMEOUT_SECONDS:g} s; the next start says what still holds of them"
            )

    def _commit(self) -> None:
        """Say what is to be said, and begin what follows it. While no broker answers, nothing is
        begun."""
        if not self._locks.commit():
            return
        self._permit.extend(self._locks.act_until)
        starting, self._to_start = self._to_start, []
        for task in starting:
            self._start(task)

    def _see(self, record: Record) -> None:
        """Give a record to the schedule; one that cannot be read is told and left out."""
        try:
            key = record.key or ""
            if record.topic == MOVES:
                move = None if record.raw is None else Move.parse(record.value or {})
                self._schedule.see_move(key, move)
            else:
                seen = None if record.raw is None else ShardAssignment.parse(record.value or {})
                self._schedule.see_assignment(parse_shard_key(key), seen)
        except (KeyError, ValueError) as error:
            place = f"{record.topic} partition {record.partition} offset {record.offset}"
            what = f"it lacks {error}" if isinstance(error, KeyError) else error
            LOG.error(
                "the record at %s cannot be read and is left out: %s; the executor may be older "
                "than the reconciler: upgrade it",
                place,
                what,
            )
            metrics.UNREADABLE.labels(record.topic).inc()

    def _list_replicas(self) -> list[Replica]:
        """List what the store has, however long it takes, and keep the locks meanwhile."""
        with ThreadPoolExecutor(1, "executor-list") as pool:
            listing = pool.submit(lambda: [*self._store.list_replicas()])
            while not wait([listing], PROOF_SECONDS).done:
                self._locks.commit()
            return listing.result()

    def _apply(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Start):
                self._running[effect.task] = _Running(self._permit)
                self._to_start.append(effect.task)
            elif isinstance(effect, CallOff):
                self._running[effect.task].progress.call_off()
            else:
                self._say(effect)

    def _start(self, task: Task) -> None:
        LOG.info("%s of %s begins", task.kind, task.shard_id, extra=task.log_extra)
        running = self._running[task]

        def work() -> None:
            result = Result(Ending.ABANDONED)
            try:
                result = self._carrier.run(task, running.progress)
            finally:
                self._ended.put((task, result))

        threading.Thread(target=work, name=f"executor-{task.shard_id}", daemon=True).start()

    def _wait_for_end(self) -> None:
        """Wait a moment for the end of a task, and take it in."""
        try:
            self._ended.put(self._ended.get(timeout=POLL_SECONDS))
        except queue.Empty:
            return
        self._take_ends()

    def _take_ends(self) -> None:
        while not self._ended.empty():
            task, (ending, reason) = self._ended.get()
            shown = (task.kind, task.shard_id, ending)
            LOG.info("%s of %s has ended: %s", *shown, extra=task.log_extra)
            metrics.TASKS.labels(task.kind, ending).inc()
            metrics.BYTES_COPIED.inc(self._running.pop(task).count_rest())
            self._apply(self._schedule.finish(task, ending, reason))

    def _report_progress(self) -> None:
        for task, running in self._running.items():
            metrics.BYTES_COPIED.inc(running.count_rest())
            if task.kind is not TaskKind.CARRY_OUT or task.move is None:
                continue
            move = self._schedule.latest(task.move)
            report = running.take_report(move.progress_interval_seconds)
            if report is not None and not running.progress.is_called_off:
                done, total = report
                fields = {"bytes_done": done, "bytes_total": total}
                self._say(Say.of("MoveProgressed", move), f":{now_ms()}", fields)

    def _tell_unlisted(self) -> None:
        """Tell of each move, once, that cannot begin as its assignment does not come."""
        for move in self._schedule.find_unlisted(now_ms()):
            metrics.MOVES_WITHOUT_ASSIGNMENT.inc()
            LOG.warning(
                "move %s is not begun: the assignment of %s with epoch %d has not come; look "
                "whether both topics are of one reconciler",
                move.move_id,
                move.shard_id,
                move.expected_epoch,
                extra=log_extra(move.shard_id, move),
            )

    def _say(self, said: Say, occasion: str = "", details: Mapping[str, Any] | None = None) -> None:
        move, (stream, shard) = said.move, said.shard_id
        fields = {
            "stream": stream,
            "shard": shard,
            "node_id": said.node_id,
            "reason": said.reason,
            "uid": said.uid,
        }
        about = f"{said.shard_id}:{said.node_id}:{now_ms()}"
        if move is not None:
            fields["move_id"] = move.move_id
            about = f"{move.move_id}:{move.reminded}"
        level = LOG.warning if said.message == "ReplicaLost" else LOG.info
        why = f": {said.reason}" if said.reason else ""
        shown = (said.message, said.shard_id, why)
        level("%s of %s%s", *shown, extra=log_extra(said.shard_id, move, said.node_id))
        message = make_message(getattr(acks, said.message), {**fields, **(details or {})})
        identity = f"{said.message}:{about}{occasion}"
        record = encode_record(self._prefix, "executor", ACKS, message, identity)
        self._locks.put(said.node_id, record)
        metrics.ACKNOWLEDGEMENTS.labels(said.message).inc()
