"""Runs an executor: reads commands, lets the store carry them out, acknowledges.

The thread of `Executor` reads `moves.v1` and `assignments.v1`, asks `schedule.py` what follows, and
starts a thread for each task (`carrying.py`). It alone speaks on `acks.v1`.
"""

from __future__ import annotations

import logging
import queue
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from schemas import acks
from schemas.topics import ACKS, ASSIGNMENTS, MOVES
from streaming.brokers import CommittedReader, Reachability
from streaming.client import metrics
from streaming.client.carrying import Carrier, Result, Retries
from streaming.client.moves import Move, ShardAssignment, parse_shard_key
from streaming.client.schedule import CallOff, Ending, Limits, Say, Schedule, Start, Task, TaskKind
from streaming.client.sender import Sender, make_message, now_ms
from streaming.client.store import Progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.brokers import Record
    from streaming.client.schedule import Effect
    from streaming.client.store import ReplicaStore

LOG = logging.getLogger("streaming.client")
# How long the thread waits for records before it looks whether a task has ended.
POLL_SECONDS = 0.05
# A report of progress each quarter of the time that a move has, and at least so often: each gives
# it three quarters, so that two may be late.
PROGRESS_SHARE = 0.25
PROGRESS_INTERVAL_SECONDS_MAX = 30.0
# A copy looks at its progress every few seconds; one that does not is left behind.
CLOSE_TIMEOUT_SECONDS = 30.0


class _Running:
    """A task under way: its thread's link to it, and what was reported of it."""

    def __init__(self) -> None:
        self.progress = Progress()
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


class Executor:
    """Carries out the moves of some nodes, or of all, on a store, and acknowledges them.

    At most one executor may act for a node: two would copy everything twice. A new one goes on
    where the last one ended; what was under way it asks of the topics and the store. It works
    between `start` and `close`, on threads of its own.

    Raises BrokerUnreachable, TopicMissing, AccessRefused or ConnectionUntrusted when it is made.
    """

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        store: ReplicaStore,
        *,
        nodes: Iterable[str] | None = None,
        limits: Limits | None = None,
        retries: Retries | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`nodes`: the nodes whose moves it carries out; None: all. `options`: of librdkafka."""
        self._store = store
        self._schedule = Schedule(nodes, limits)
        self._reachability = Reachability(bootstrap, LOG.warning)
        # Moves first: an assignment is then at least as new as the moves that were read.
        self._reader = CommittedReader(
            bootstrap,
            prefix,
            [MOVES, ASSIGNMENTS],
            options=options,
            reachability=self._reachability,
        )
        self._sender = Sender(bootstrap, prefix, "executor", options)
        self._closing = threading.Event()
        self._carrier = Carrier(store, retries or Retries(), self._closing)
        self._running: dict[Task, _Running] = {}
        self._ended: queue.SimpleQueue[tuple[Task, Result]] = queue.SimpleQueue()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="executor", daemon=True)

    @property
    def running(self) -> bool:
        """False before `start`, after `close`, and when its thread has failed."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin; moves that are open already are taken on."""
        self._thread.start()

    def wait_ready(self, timeout_seconds: float) -> bool:
        """Wait until all that was on the topics at the start is read; returns whether it is."""
        return self._ready.wait(timeout_seconds)

    def serve(self) -> None:
        """Run until SIGINT or SIGTERM: the whole main program of an executor. To be called in the
        main thread. Raises what went wrong."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._closing.set())
        with self:
            # What has failed in the thread sets the event too, and is raised by close.
            self._closing.wait()

    def close(self) -> None:
        """Stop. What is under way is left as it is for the next start. Raises what went wrong
        meanwhile, and NotDelivered."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._reader.close()
        if self._failure is not None:
            raise self._failure
        self._sender.flush()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            for record in self._reader.records_to_end():
                self._see(record)
            for replica in self._schedule.begin(self._store.list_replicas()):
                LOG.warning(
                    "the store has %s on %s, of which the topics say nothing; it is kept: look "
                    "whether the prefix is right, then delete it by hand",
                    replica.shard_id,
                    replica.node_id,
                )
            self._ready.set()
            while not self._closing.is_set():
                self._apply(self._schedule.advance(now_ms()))
                for record in self._reader.poll(POLL_SECONDS):
                    self._see(record)
                self._take_ends()
                self._report_progress()
                self._sender.poll()
                self._measure()
            self._leave()
        except BaseException as error:  # noqa: BLE001 - shown by close(), in the caller's thread
            LOG.error("the executor has stopped: %s", error)
            self._failure = error
            self._closing.set()
            self._leave()

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
            LOG.error("the record at %s cannot be read and is left out: %s", place, error)
            metrics.UNREADABLE.labels(record.topic).inc()

    def _measure(self) -> None:
        carried = sum(task.kind is TaskKind.CARRY_OUT for task in self._running)
        metrics.MOVES_UNDER_WAY.set(carried)
        metrics.UNCONFIRMED.set(self._sender.unconfirmed)
        metrics.BROKER_AWAY.labels("executor").set(self._reachability.is_away)

    def _apply(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Start):
                self._begin(effect.task)
            elif isinstance(effect, CallOff):
                self._running[effect.task].progress.call_off()
            else:
                self._say(effect)

    def _begin(self, task: Task) -> None:
        LOG.info("%s of %s begins", task.kind, task.shard_id)
        running = self._running[task] = _Running()

        def work() -> None:
            result = Result(Ending.ABANDONED)
            try:
                result = self._carrier.run(task, running.progress)
            finally:
                self._ended.put((task, result))

        threading.Thread(target=work, name=f"executor-{task.shard_id}", daemon=True).start()

    def _take_ends(self) -> None:
        while not self._ended.empty():
            task, (ending, reason) = self._ended.get()
            LOG.info("%s of %s has ended: %s", task.kind, task.shard_id, ending)
            metrics.TASKS.labels(task.kind, ending).inc()
            metrics.BYTES_COPIED.inc(self._running.pop(task).count_rest())
            self._apply(self._schedule.finish(task, ending, reason))

    def _report_progress(self) -> None:
        for task, running in self._running.items():
            metrics.BYTES_COPIED.inc(running.count_rest())
            if task.kind is not TaskKind.CARRY_OUT or task.move is None:
                continue
            move = self._schedule.latest(task.move)
            lease_seconds = (move.deadline_ms - move.issued_at_ms) / 1000
            interval = min(lease_seconds * PROGRESS_SHARE, PROGRESS_INTERVAL_SECONDS_MAX)
            report = running.take_report(interval)
            if report is not None and not running.progress.is_called_off:
                done, total = report
                fields = {"bytes_done": done, "bytes_total": total}
                self._say(Say.of("MoveProgressed", move), f":{now_ms()}", fields)

    def _say(self, said: Say, occasion: str = "", details: Mapping[str, Any] | None = None) -> None:
        move, (stream, shard) = said.move, said.shard_id
        fields = {"stream": stream, "shard": shard, "node_id": said.node_id, "reason": said.reason}
        about = f"{said.shard_id}:{said.node_id}:{now_ms()}"
        if move is not None:
            fields |= {"move_id": move.move_id, "uid": move.uid}
            about = f"{move.move_id}:{move.reminded}"
        LOG.info("%s of %s", said.message, said.shard_id)
        message = make_message(getattr(acks, said.message), {**fields, **(details or {})})
        self._sender.send(ACKS, message, f"{said.message}:{about}{occasion}")
        metrics.ACKNOWLEDGEMENTS.labels(said.message).inc()

    def _leave(self) -> None:
        """Let everything under way stop where it is, and wait for it a while."""
        for running in self._running.values():
            running.progress.call_off()
        deadline = time.monotonic() + CLOSE_TIMEOUT_SECONDS
        while self._running and time.monotonic() < deadline:
            try:
                self._ended.put(self._ended.get(timeout=POLL_SECONDS))
            except queue.Empty:
                continue
            self._take_ends()
        for task in self._running:
            LOG.warning("%s of %s does not stop and is left behind", task.kind, task.shard_id)
