"""Runs an executor: waits until it holds the locks of its nodes, and acts while it does.

The thread of `Executor` acquires the locks (`node_locks.py`), and runs a `Term` (`term.py`) each
time that it has them. An executor that was replaced waits for them again.
"""

from __future__ import annotations

import logging
import threading
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from schemas.access import ALL_NODES
from schemas.topics import ACKS, ASSIGNMENTS, MOVES, full_name
from streaming.brokers import (
    LEASE_SECONDS,
    CommittedReader,
    LockLost,
    Reachability,
    make_reader,
    present_partitions,
)
from streaming.client import metrics
from streaming.client.carrying import Retries
from streaming.client.node_locks import make_node_locks
from streaming.client.schedule import Limits, Schedule
from streaming.client.term import Term
from streaming.errors import BrokerUnreachable, StreamingError
from streaming.signals import StopEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.client.store import ReplicaStore

LOG = logging.getLogger("streaming.client")
# How often an executor that waits looks who holds its locks.
LOOK_SECONDS = 1.0
# How soon a look that failed is tried again; the group of a lock that is new has no coordinator for
# a moment, so that only failures for the second time are told.
RETRY_SECONDS, TELL_SECONDS = 0.5, 5.0


class ExecutorState(StrEnum):
    """Says what an executor does: `waiting` for the locks of its nodes, `reading` the topics at the
    beginning of a term, `acting`, `stopped` before the start and after the end."""

    STOPPED = "stopped"
    WAITING = "waiting"
    READING = "reading"
    ACTING = "acting"


class Executor:
    """Carries out the moves of some nodes, or of all, on a store, and acknowledges them.

    At most one acts for a node: it holds a lock for each of its nodes, or one for all. Another one
    waits, and takes over when the holder closes or is gone; what was under way it asks of the
    topics and the store. One that was replaced, as after it was suspended, stops what it does, says
    nothing more and waits. It works between `start` and `close`, on threads of its own.

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
        self._bootstrap, self._prefix, self._options = bootstrap, prefix, options
        self._store, self._limits, self._retries = store, limits, retries or Retries()
        self._nodes = None if nodes is None else frozenset(nodes)
        self._reachability = Reachability(bootstrap, LOG.warning)
        self._check_topics()
        self._locks = make_node_locks(bootstrap, prefix, self._nodes, options)
        self._state = ExecutorState.STOPPED
        self._closing = StopEvent()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="executor", daemon=True)

    @property
    def running(self) -> bool:
        """False before `start`, after `close`, and when its thread has failed."""
        return self._thread.is_alive()

    @property
    def state(self) -> ExecutorState:
        """What it does now."""
        return self._state if self.running else ExecutorState.STOPPED

    @property
    def waits_for(self) -> str | None:
        """The name of the other executor that holds a lock it waits for, if any."""
        found = self._locks.waits_for
        return None if found is None else found[1]

    def start(self) -> None:
        """Begin; moves that are open already are taken on."""
        self._thread.start()

    def wait_ready(self, timeout_seconds: float) -> bool:
        """Wait until it acts: until it holds its locks, and all that was on the topics then is
        read; returns whether it does."""
        return self._ready.wait(timeout_seconds)

    def serve(self) -> None:
        """Run until SIGINT or SIGTERM: the whole main program of an executor. To be called in the
        main thread. Raises what went wrong."""
        self._closing.set_on_signals()
        with self:
            # What has failed in the thread sets the event too, and is raised by close.
            self._closing.wait()

    def close(self) -> None:
        """Stop, and let the locks go. What is under way is left as it is for the next start. Raises
        what went wrong meanwhile, and NotDelivered."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_topics(self) -> None:
        """Raise what keeps it from its topics, before anything is begun."""
        reader = make_reader(self._bootstrap, self._options)
        try:
            for topic in (MOVES, ASSIGNMENTS, ACKS):
                present_partitions(reader, full_name(topic, self._prefix))
        finally:
            reader.close()

    def _run(self) -> None:
        try:
            while self._wait_for_locks():
                try:
                    self._serve_term()
                except BrokerUnreachable as error:
                    LOG.warning("%s; the executor waits, and tries again", error)
                    self._closing.wait(RETRY_SECONDS)
        except BaseException as error:  # noqa: BLE001 - shown by close(), in the caller's thread
            LOG.error("the executor has stopped: %s", error)
            self._failure = error
        finally:
            self._closing.set()
            self._release()

    def _wait_for_locks(self) -> bool:
        """Wait until all locks are held; False when it closes first."""
        self._state = ExecutorState.WAITING
        told: object = None
        failing_since: float | None = None
        while not self._closing.is_set():
            pause = LOOK_SECONDS
            try:
                if self._locks.acquire():
                    return True
                failing_since = None
            except LockLost as error:
                LOG.info("%s", error)
            except BrokerUnreachable as error:
                now, pause = time.monotonic(), RETRY_SECONDS
                failing_since = failing_since or now
                if now - failing_since >= TELL_SECONDS and told != "failing":
                    told = "failing"
                    LOG.warning("%s; the executor waits, and tries again", error)
                    metrics.BROKER_AWAY.labels("executor").set(True)
            else:
                metrics.BROKER_AWAY.labels("executor").set(False)
                found = self._locks.waits_for
                if found is not None and told != found:
                    told = found
                    self._tell_holder(*found)
            self._closing.wait(pause)
        return False

    def _tell_holder(self, node_id: str, holder: str) -> None:
        served = "all nodes" if node_id == ALL_NODES else f"node {node_id}"
        LOG.warning(
            "another executor acts for %s: %s; this one waits until it closes, its process has "
            "ended, or it shows no sign of life for %g s",
            served,
            holder,
            LEASE_SECONDS,
        )

    def _serve_term(self) -> None:
        """Act until a lock is lost, or until it closes."""
        self._state = ExecutorState.READING
        # Moves first: an assignment is then at least as new as the moves that were read.
        reader = CommittedReader(
            self._bootstrap,
            self._prefix,
            [MOVES, ASSIGNMENTS],
            options=self._options,
            reachability=self._reachability,
        )
        with reader:
            schedule = Schedule(self._nodes, self._limits)
            term = Term(reader, schedule, self._store, self._locks, self._prefix, self._retries)
            try:
                self._act(term)
            except (LockLost, BrokerUnreachable) as error:
                LOG.warning("%s; the executor stops what it does, and waits", error)
                term.stop(is_holding=False)
                term.wait_stopped(self._closing)
            except BaseException:
                term.stop(is_holding=False)
                raise

    def _act(self, term: Term) -> None:
        try:
            term.begin()
            self._state = ExecutorState.ACTING
            self._ready.set()
            while not self._closing.is_set():
                term.step()
                metrics.BROKER_AWAY.labels("executor").set(self._reachability.is_away)
        finally:
            self._ready.clear()
        term.stop(is_holding=True)
        term.flush()

    def _release(self) -> None:
        try:
            self._locks.release()
        except StreamingError as error:
            LOG.warning("a lock is not released, and ends by itself: %s", error)
