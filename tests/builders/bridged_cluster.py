"""A Kafka cluster in memory, the real reconciler, and the bridge between them, in simulated time.

Faults are asked for by name: calls that fail, half of a call that is carried out, a bridge or a
reconciler that is killed, tables that lag. Records take the way of the application (`Driver`).
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from placement.liveness import Timers
from placement.model import Configuration, Limits
from schemas.acks import MoveMessage
from schemas.base import Message
from schemas.topics import CATALOGUE
from streaming.errors import BrokerUnreachable
from streaming.kafka_bridge.actions import Reassign, carry_out
from streaming.kafka_bridge.controller import BridgeOptions, Step, find_step
from streaming.kafka_bridge.membership import MembershipOptions
from streaming.kafka_bridge.memory import Memory
from streaming.kafka_bridge.observer import Observer
from streaming.kafka_bridge.tables import READ_TOPICS, Tables
from tests.builders.batches import CELL, Commit, Driver
from tests.builders.kafka_cluster import SimulatedKafka
from tests.builders.kafka_rows import raw, tick

if TYPE_CHECKING:
    from streaming.codec import RawRecord

STEP_MS = 1_000
RATE = 50_000_000
OPTIONS = BridgeOptions(membership=MembershipOptions(patience_ms=3_000, forget_after_ms=8_000))
TOPIC_OF = {
    name: topic.name for topic in CATALOGUE if topic.direction == "in" for name in topic.messages
}
TIMERS = Timers(suspect_after_ms=5_000, dead_after_ms=10_000)


class FaultyKafka(SimulatedKafka):
    """Lets changes fail: as a whole, after half of them, or one by one; `chance` by call."""

    def __init__(self, racks: Mapping[int, str | None], dice: random.Random) -> None:
        super().__init__(racks)
        self._dice, self.chance = dice, 0.0

    def alter_reassignments(self, targets: Any) -> Any:
        """Fail sometimes."""
        return self._maybe(super().alter_reassignments, targets)

    def alter_topic_entries(self, changes: Any) -> Any:
        """Fail sometimes."""
        return self._maybe(super().alter_topic_entries, changes)

    def alter_broker_rates(self, changes: Any) -> Any:
        """Fail sometimes."""
        return self._maybe(super().alter_broker_rates, changes)

    def elect_preferred(self, partitions: Any) -> Any:
        """Fail sometimes."""
        return self._maybe(super().elect_preferred, dict.fromkeys(partitions))

    def _maybe(self, call: Callable[[Any], Any], wanted: Any) -> Any:
        if self._dice.random() >= self.chance:
            return call(wanted)
        done = {key: each for key, each in wanted.items() if self._dice.random() < 0.5}
        answers = call(done)
        if self._dice.random() < 0.5:
            raise BrokerUnreachable("the call broke off")
        return answers | {key: "RequestTimedOut" for key in wanted if key not in done}


class BridgedCluster:
    """The cluster, the reconciler and the bridge; `step` lets a second pass."""

    def __init__(
        self,
        racks: Mapping[int, str | None],
        seed: int = 0,
        options: BridgeOptions = OPTIONS,
        **limits: int,
    ) -> None:
        self.dice = random.Random(seed)
        self.kafka = FaultyKafka(racks, self.dice)
        self.options = options
        self.configuration = Configuration(
            cell=CELL,
            levels=("rack",),
            rate_bytes_per_second=RATE,
            limits=Limits(**limits),
            hold_window_ms=1,
            backoff_ms=1_000,
            backoff_max_ms=5_000,
            remind_ms=5_000,
            deadline_ms=60_000,
        )
        self.commits: list[Commit] = []
        self.now, self.offsets, self.ticks = 1_000_000, Counter[str](), 0
        self.messages: list[Message] = []
        self.acknowledged: Counter[tuple[str, str]] = Counter()
        self.last: Step | None = None
        self.lag = 0
        self._waiting: list[RawRecord] = []
        self.restart_reconciler()
        self.restart_bridge()

    # What happens

    def restart_bridge(self) -> None:
        """Kill the bridge: the next one knows the topics and Kafka alone."""
        self.memory, self.observer = Memory(), Observer(self.kafka)
        self.tables, self._folded = Tables(), 0
        self._fold(len(self.commits))

    def restart_reconciler(self) -> None:
        """Kill the reconciler: the next one is rebuilt of what was committed."""
        self.driver = Driver(self.commits, TIMERS, self.configuration)
        self.commits += self.driver.commits

    def step(self, *, dies_after: str | None = None) -> Step:
        """Let a second pass: the bridge looks and acts, the reconciler reads and answers.

        `dies_after`: the bridge is killed after `look`, `actions` or `messages`.
        """
        self.now += STEP_MS
        self._fold(max(self._folded, len(self.commits) - self.lag))
        step = self.look()
        if dies_after != "look":
            carried = carry_out(step.actions, self.kafka)
            if dies_after != "actions":
                self.say(step.messages)
                self.memory = step.remember(carried)
        if dies_after is not None:
            self.restart_bridge()
        self.reconcile()
        self.last = step
        return step

    def look(self) -> Step:
        """Find what the bridge would do now."""
        interval_ms = self.memory.sizes_interval_ms
        snapshot = self.observer.look(
            self.now,
            sizes_interval_ms=interval_ms,
            expected=[each.stream for each in self.tables.living_streams()],
        )
        return find_step(snapshot, self.tables, self.memory, self.options)

    def run(self, steps: int = 120, copies: int | None = None) -> int:
        """Let time pass until nothing is to be done for a while; returns the steps taken."""
        quiet = 0
        for taken in range(steps):
            step = self.step()
            self.kafka.copy(copies)
            idle = not (step.actions or step.messages or self.open_moves or self.memory.words)
            quiet = quiet + 1 if idle else 0
            # Longer than patience, settling and a reminder, so that nothing waits for time.
            if quiet > 12:
                return taken
        raise AssertionError(f"not at rest after {steps} steps: {self.describe()}")

    def ask(self, topic: str, message: str, key: str, **body: Any) -> None:
        """Send a message of somebody else, as an operator's request."""
        self._append(topic, message, key, body)

    # What is seen

    @property
    def open_moves(self) -> list[str]:
        """The ids of the moves that have not ended."""
        return [m.move_id for m in self.tables.moves.values() if m.state in ("issued", "accepted")]

    def lists(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """Kafka's lists by partition."""
        return {
            (name, each.number): each.listed
            for name, topic in self.kafka.topics.items()
            for each in topic.partitions
        }

    def assigned(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """The reconciler's lists by partition."""
        return {
            key: tuple(map(int, each.replicas)) for key, each in self.tables.assignments.items()
        }

    def throttles(self) -> dict[str, Any]:
        """Every throttle that is set, by topic and by broker; a dead broker keeps its rates."""
        entries = {
            f"{topic} {key}": value
            for topic, configs in self.kafka.configs.items()
            for key, value in configs.items()
            if key.endswith("throttled.replicas")
        }
        live = {each.id for each in self.kafka.brokers.values() if not each.fenced}
        set_ = {broker: rates for broker, rates in self.kafka.rates.items() if rates}
        return entries | {f"broker {b}": rates for b, rates in set_.items() if b in live}

    def letters(self) -> list[str]:
        """The reasons of dead letters: what the reconciler could not use of what was said."""
        return [
            dict(record.headers)["__placement.errors.reason"].decode()  # type: ignore[union-attr]
            for commit in self.commits
            for record in commit
            if record.topic == "dlq.v1"
        ]

    def describe(self) -> str:
        """Describe what is under way, for a test that fails."""
        step = self.last
        wanted = [] if step is None else [d for d in step.desired if d.standing != "settled"]
        doing = () if step is None else (*step.actions, *step.messages, *step.notes)
        return f"moves {self.open_moves}, {wanted}, {doing}, throttles {self.throttles()}"

    # How it works

    def say(self, messages: Sequence[Message]) -> None:
        """Take the bridge's messages in; `reconcile` reads them."""
        for message in messages:
            self.messages.append(message)
            if isinstance(message, MoveMessage):
                self.acknowledged[message.move_id or "", type(message).__name__] += 1
            name, body = type(message).__name__, message.model_dump(mode="json")
            kept = {field: value for field, value in body.items() if value is not None}
            self._append(TOPIC_OF[name], name, message.record_key(), kept)

    def _append(self, topic: str, message: str, key: str, body: dict[str, Any]) -> None:
        self._waiting.append(raw(message, key, body, self._offset(topic), self.now, topic))

    def _offset(self, topic: str) -> int:
        self.offsets[topic] += 1
        return self.offsets[topic]

    def reconcile(self) -> None:
        """Let the reconciler read what has come, with a tick."""
        self.ticks += 1
        self._waiting.append(tick(self._offset("nodes.v1"), self.now, self.ticks))
        by_topic: dict[str, list[RawRecord]] = {}
        for record in self._waiting:
            by_topic.setdefault(record.topic, []).append(record)
        self._waiting = []
        self.commits += self.driver.batch(*by_topic.values())

    def _fold(self, until: int) -> None:
        self.fold(self.tables, self._folded, until)
        self._folded = until

    def fold(self, tables: Tables, begin: int, until: int) -> None:
        """Fold the commits of a range into tables; topics are fetched one by one, in any order."""
        for commit in self.commits[begin:until]:
            for topic in sorted(READ_TOPICS, key=lambda _: self.dice.random()):
                for record in commit:
                    if record.topic == topic:
                        tables.take(topic, (record.key or b"").decode(), record.value)

    def catch_up(self) -> None:
        """Fold all commits, for questions about what the reconciler wants."""
        self._fold(len(self.commits))


def reassigned(step: Step) -> dict[tuple[str, int], Any]:
    """The lists that a step asks for."""
    asked = [each.targets for each in step.actions if isinstance(each, Reassign)]
    return {key: to for targets in asked for key, to in targets.items()}
