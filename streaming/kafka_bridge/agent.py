"""Drives a Kafka cluster live: looks, reads the reconciler's topics, carries out what a step says.

Nothing is kept on disk. A round that fails has decided nothing: the next one begins with a look of
its own. Admin calls, reads and deliveries have timeouts, so that none of them holds the loop.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from threading import Event

from schemas.base import Message
from schemas.inputs import NodeLoadReported
from streaming.brokers import LEASE_SECONDS, LeaderLock, LockLost
from streaming.errors import AccessRefused, StreamingError
from streaming.kafka_bridge.actions import Action, Carried, carry_out
from streaming.kafka_bridge.admin_client import ClusterAdmin
from streaming.kafka_bridge.controller import BridgeOptions, Step, find_step
from streaming.kafka_bridge.memory import Memory
from streaming.kafka_bridge.monitoring import Monitoring
from streaming.kafka_bridge.observer import Observer
from streaming.kafka_bridge.reconciler_topics import ReconcilerTopics
from streaming.kafka_bridge.report import describe_action, describe_message
from streaming.kafka_bridge.snapshot import Snapshot
from streaming.kafka_bridge.tables import Tables

# Kafka itself needs 9 s to fence a broker: a look a second adds little to that.
LOOK_SECONDS = 1.0
# A record of the reconciler is answered by a look at once, but looks leave the brokers some rest.
LOOK_SECONDS_MIN = 0.2
# A look at many topics takes longer: looking takes at most a third of the time.
REST_PER_LOOK = 2.0
# After a failure: soon, for what passes. While a broker dies, looks may fail for the seconds until
# it is fenced, and a longer pause would only be added to them.
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.5, 5.0
# How soon a stop is noticed.
POLL_SECONDS = 0.2


class BridgeRefused(StreamingError):
    """The cluster cannot be driven: its brokers are too old, or a right is missing."""


class Mode(StrEnum):
    """Says what an agent may do.

    `observe`: tell the reconciler what is there, and change nothing in Kafka. `dry-run`: write
    nothing at all, and say what would be done. `act`: tell and do.
    """

    OBSERVE = "observe"
    DRY_RUN = "dry-run"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Round:
    """A look with what followed from it. `look_seconds`: how long the look took; `carried` is None
    where the actions were not carried out."""

    snapshot: Snapshot
    step: Step
    look_seconds: float
    carried: Carried | None


class Agent:
    """The loop of the bridge; `run` ends when its event is set.

    Time for the reconciler is that of the wall at the start, plus what has passed since by a clock
    that never jumps.
    """

    def __init__(
        self,
        admin: ClusterAdmin,
        topics: ReconcilerTopics,
        lock: LeaderLock | None,
        tell: Callable[[str], None],
        *,
        mode: Mode = Mode.OBSERVE,
        options: BridgeOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
        started_at: int | None = None,
        monitoring: Monitoring | None = None,
    ) -> None:
        """`lock`: None in a dry run, which writes nothing. `tell` takes a sentence for people.
        `clock` counts seconds; `started_at` is the time of the wall in ms when it was made."""
        self._monitoring = monitoring or Monitoring(mode)
        self._admin = admin = self._monitoring.count_calls(admin)
        self._topics, self._lock = topics, lock
        self._tell, self._mode = tell, mode
        self._options = options or BridgeOptions()
        self._clock, self._begun = clock, clock()
        self._started_at = time.time_ns() // 1_000_000 if started_at is None else started_at
        self._observer = Observer(admin)
        self._tables: Tables | None = None
        self._memory = Memory()
        self._said: dict[str, None] = {}
        self._waits_for: str | None = None
        self._failures = 0
        # Whether throttles are read in each look: they matter while something is copied.
        self._is_busy = True
        self._next_look = self._begun

    @property
    def now_ms(self) -> int:
        """The time in ms that looks carry."""
        return self._started_at + int((self._clock() - self._begun) * 1000)

    def check(self) -> None:
        """Ask whether the cluster can be driven, and whether the reconciler's topics can be read.

        Raises BridgeRefused with what is missing, and the StreamingError of either side.
        """
        obstacles = self._admin.find_obstacles(alters=self._mode is Mode.ACT)
        if obstacles:
            raise BridgeRefused("\n".join(obstacles))
        self._read()

    def run(self, stop: Event) -> None:
        """Go round until `stop` is set.

        Raises AccessRefused in the first round; later, and of every other failure, a sentence is
        told and the round tried again.
        """
        try:
            while not stop.is_set():
                pause = self._try_round()
                self._rest(stop, LOOK_SECONDS_MIN if pause is None else pause)
        finally:
            self._end()

    def look_and_act(self) -> Round | None:
        """Go round once; None where another agent holds the lock."""
        self._monitoring.on_round_began()
        if not self._holds_lock():
            self._monitoring.on_standby()
            return None
        tables = self._read()
        began = self._clock()
        snapshot, step = self._find_step(tables, fresh=self._is_busy)
        if step.actions and not self._is_busy:
            # Somebody else may have set a throttle since it was read.
            snapshot, step = self._find_step(tables, fresh=True)
        look_seconds = self._clock() - began
        self._is_busy = bool(step.actions or step.memory.claims.entries) or any(
            True for _ in snapshot.reassigned()
        )
        self._tell_news([*step.notes, *self._describe_omitted(step)])
        carried = self._act(step)
        acts = carried is not None
        self._monitoring.on_worked(snapshot, step, tables, look_seconds, acts=acts)
        return Round(snapshot, step, look_seconds, carried)

    # A round

    def _find_step(self, tables: Tables, *, fresh: bool) -> tuple[Snapshot, Step]:
        snapshot = self._observer.look(
            self.now_ms,
            fresh=fresh,
            sizes_interval_ms=self._memory.sizes_interval_ms,
            expected=[each.stream for each in tables.living_streams()],
        )
        return snapshot, find_step(snapshot, tables, self._memory, self._options)

    def _act(self, step: Step) -> Carried | None:
        if self._mode is Mode.DRY_RUN:
            self._memory = step.remember_look(self._memory)
            return None
        if self._lock is not None and (step.messages or step.actions):
            # The last moment at which an agent that was replaced meanwhile learns of it.
            self._lock.renew()
        carried = self._carry_out(step.actions) if self._mode is Mode.ACT else None
        # Where they do not arrive, the earlier memory stays, and they are said again.
        self._send(step.messages)
        self._memory = step.remember(carried or Carried())
        return carried

    def _describe_omitted(self, step: Step) -> list[str]:
        """Describe what the mode forbids."""
        actions = [f"would {describe_action(each)}" for each in step.actions]
        messages = [f"would say {describe_message(each)}" for each in step.messages]
        match self._mode:
            case Mode.ACT:
                return []
            case Mode.OBSERVE:
                return actions
            case Mode.DRY_RUN:
                return [*actions, *messages]

    def _carry_out(self, actions: Sequence[Action]) -> Carried:
        if not actions:
            return Carried()
        carried = carry_out(actions, self._admin)
        for action in actions:
            self._tell(describe_action(action))
        for failure in carried.failures:
            self._tell(f"failed: {failure}")
        return carried

    def _send(self, messages: Sequence[Message]) -> None:
        if messages:
            self._topics.send(messages, self.now_ms)
            self._monitoring.on_sent(messages)
        # Loads are reported all the time.
        for message in messages:
            if not isinstance(message, NodeLoadReported):
                self._tell(f"said {describe_message(message)}")

    def _read(self) -> Tables:
        """Read what is new of the reconciler's topics, or all of it."""
        if self._tables is None:
            self._tables = self._topics.open()
        else:
            self._follow(0.0)
        return self._tables

    def _follow(self, timeout_seconds: float) -> int:
        assert self._tables is not None
        try:
            return self._topics.follow(timeout_seconds)
        except StreamingError:
            # A reader that failed may have missed something: the next one begins anew.
            self._tables = None
            self._topics.close()
            raise

    def _holds_lock(self) -> bool:
        if self._lock is None:
            return True
        held = self._lock.is_held()
        if held and self._waits_for is not None:
            self._tell(f"{self._waits_for} has let go: this agent takes over")
        if not held and self._lock.holder != self._waits_for:
            self._tell(
                f"{self._lock.holder} holds the lock of the bridge; waiting until it lets go, or "
                f"shows no sign of life for {LEASE_SECONDS:g} s"
            )
        self._waits_for = None if held else self._lock.holder
        if not held:
            self._forget()
        return held

    # Around it

    def _try_round(self) -> float | None:
        """Go round; return the pause in seconds after it, None for a full round."""
        try:
            found = self.look_and_act()
        except LockLost as error:
            self._tell(str(error))
            self._monitoring.on_standby()
            self._forget()
            return PAUSE_SECONDS_MIN
        except StreamingError as error:
            if isinstance(error, AccessRefused) and self._memory.looked_at is None:
                raise
            return self._back_off(error)
        if found is None:
            return LOOK_SECONDS
        if self._failures:
            self._tell("it works again")
        self._failures = 0
        self._next_look = self._clock() + max(LOOK_SECONDS, REST_PER_LOOK * found.look_seconds)
        return None

    def _back_off(self, error: StreamingError) -> float:
        pause = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN * 2 ** min(self._failures, 10))
        self._failures += 1
        self._monitoring.on_failed()
        for line in str(error).splitlines():
            self._tell(f"{line}; nothing is decided, next try in {pause:g} s")
        return pause

    def _rest(self, stop: Event, least_seconds: float) -> None:
        """Wait until the next look is due, or until a record of the reconciler has come."""
        stop.wait(least_seconds)
        if self._failures or self._tables is None:
            return
        while not stop.is_set() and (left := self._next_look - self._clock()) > 0:
            try:
                if self._follow(min(left, POLL_SECONDS)):
                    return
            except StreamingError as error:
                stop.wait(self._back_off(error))
                return

    def _tell_news(self, sentences: Sequence[str]) -> None:
        """Tell what was not said in the round before."""
        for each in sentences:
            if each not in self._said:
                self._tell(each)
        self._said = dict.fromkeys(sentences)

    def _forget(self) -> None:
        """Drop what was known: whoever holds the lock next begins with the topics and a look."""
        self._memory, self._observer = Memory(), Observer(self._admin)
        if self._tables is not None:
            self._tables = None
            self._topics.close()

    def _end(self) -> None:
        self._topics.close()
        if self._lock is not None:
            try:
                self._lock.release()
            except StreamingError as error:
                self._tell(f"the lock was not released, and ends by itself: {error}")
