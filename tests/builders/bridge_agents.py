"""Agents of the bridge on a cluster in memory: their topics, their lock, their time."""

from collections.abc import Sequence

from schemas.base import Message
from streaming.brokers import LeaderLock
from streaming.errors import BrokerUnreachable
from streaming.kafka_bridge.agent import Agent, Mode, Round
from streaming.kafka_bridge.monitoring import Monitoring
from streaming.kafka_bridge.tables import Tables
from tests.builders.bridged_cluster import OPTIONS, STEP_MS, BridgedCluster
from tests.builders.lock_stores import LockLog, MemoryLockStore


class MemoryTopics:
    """`ReconcilerTopics` of one agent on a `BridgedCluster`; `fails`: the next call does."""

    def __init__(self, cluster: BridgedCluster) -> None:
        self._cluster, self._folded = cluster, 0
        self._tables = Tables()
        self.opened = 0
        self.fails = ""

    def open(self) -> Tables:
        """See ReconcilerTopics."""
        self._fail("open")
        self._tables, self._folded = Tables(), 0
        self.opened += 1
        self.follow(0.0)
        return self._tables

    def follow(self, timeout_seconds: float) -> int:  # noqa: ARG002 - time is simulated
        """See ReconcilerTopics."""
        self._fail("follow")
        until = len(self._cluster.commits)
        self._cluster.fold(self._tables, self._folded, until)
        found, self._folded = until - self._folded, until
        return found

    def send(self, messages: Sequence[Message], at: int) -> None:  # noqa: ARG002 - as above
        """See ReconcilerTopics."""
        self._fail("send")
        self._cluster.say(messages)

    def close(self) -> None:
        """See ReconcilerTopics."""

    def _fail(self, call: str) -> None:
        if self.fails == call:
            self.fails = ""
            raise BrokerUnreachable(f"{call} failed")


class RunningAgent:
    """An agent with what it has said; `step` lets a second pass for it and the reconciler."""

    def __init__(
        self,
        cluster: BridgedCluster,
        log: LockLog | None = None,
        mode: Mode = Mode.ACT,
        name: str = "a",
    ) -> None:
        self.cluster, self.said = cluster, list[str]()
        self.topics = MemoryTopics(cluster)
        lock = None if log is None else LeaderLock(MemoryLockStore(log), name, self.seconds)
        self.monitoring = Monitoring(mode, clock=self.seconds)
        self.agent = Agent(
            cluster.kafka,
            self.topics,
            lock,
            self.said.append,
            mode=mode,
            options=OPTIONS,
            clock=self.seconds,
            started_at=cluster.now,
            monitoring=self.monitoring,
        )

    def seconds(self) -> float:
        """The cluster's time."""
        return self.cluster.now / 1000

    def step(self) -> Round | None:
        """Let a second pass, in which the agent goes round and the reconciler answers."""
        self.cluster.now += STEP_MS
        try:
            return self.agent.look_and_act()
        finally:
            self.cluster.reconcile()
            self.cluster.catch_up()

    def run(self, steps: int = 120) -> None:
        """Let time pass, with all copies, until nothing has been done or said for a while."""
        quiet = 0
        for _ in range(steps):
            found = self.step()
            self.cluster.kafka.copy()
            step = None if found is None else found.step
            busy = step is None or step.actions or step.messages or self.cluster.open_moves
            quiet = 0 if busy else quiet + 1
            if quiet > 12:
                return
        raise AssertionError(f"not at rest after {steps} steps: {self.said[-20:]}")
