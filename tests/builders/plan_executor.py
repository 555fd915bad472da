"""A cluster in memory with a plan for it, an executor that copies as it waits, and crashes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streaming.kafka_bridge.admin_client import (
    FOLLOWER_ENTRIES,
    FOLLOWER_RATE,
    LEADER_ENTRIES,
    LEADER_RATE,
    PartitionId,
)
from streaming.kafka_bridge.apply import Executor, Outcome
from streaming.kafka_bridge.copying import Progress
from streaming.kafka_bridge.journal import Direction, JournalInMemory
from streaming.kafka_bridge.waves import Change, ReassignmentPlan
from tests.builders.kafka_cluster import SimulatedKafka

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b"}
RATE = 1_000_000
# Two waves: the second moves t-0 on and changes the order of u-0; both change leaders.
PLAN = ReassignmentPlan(
    "plan",
    (
        {
            ("t", 0): Change((1, 2, 3), (4, 2, 3)),
            ("t", 1): Change((2, 3, 1), (2, 3, 4)),
        },
        {
            ("t", 0): Change((4, 2, 3), (4, 5, 3)),
            ("u", 0): Change((3, 1), (1, 3)),
            ("u", 1): Change((1, 2), (1, 2, 5)),
        },
    ),
)


class Crash(BaseException):
    """The process is gone."""


class CrashingKafka(SimulatedKafka):
    """Crashes in the call with the number `crash_at`, counted from 0: `before` it does anything,
    after a `part` of the items of a change, or `after` all of it."""

    def __init__(self) -> None:
        super().__init__(RACKS)
        self.calls = 0
        self.crash_at: int | None = None
        self.how = "after"

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not name.startswith(("describe_", "list_", "alter_", "elect_")):
            return found

        def call(*values: Any) -> Any:
            number, self.calls = self.calls, self.calls + 1
            if number != self.crash_at:
                return found(*values)
            if self.how == "part" and values and isinstance(values[0], Mapping):
                first = dict(list(values[0].items())[:1])
                found(first)
            elif self.how == "after":
                found(*values)
            raise Crash

        return call


@dataclass
class Bench:
    """A cluster, the plan's journal and what the executor has told; each wait completes copies."""

    kafka: CrashingKafka = field(default_factory=CrashingKafka)
    store: JournalInMemory = field(default_factory=JournalInMemory)
    plan: ReassignmentPlan = PLAN
    told: list[str] = field(default_factory=list)
    shown: list[Progress] = field(default_factory=list)
    on_pause: Callable[[int], None] | None = None
    stopping: bool = False
    pauses: int = 0

    def __post_init__(self) -> None:
        self.kafka.create("t", [(1, 2, 3), (2, 3, 1)], size=100)
        self.kafka.create("u", [(3, 1), (1, 2)], size=10)

    def run(self, direction: Direction = Direction.FORWARD, rate: int | None = RATE) -> Outcome:
        """Run an executor of its own, as a command does."""
        return Executor(self.kafka, self.plan, self.store, self, rate).run(direction)

    def now_ms(self) -> int:
        """See Surroundings."""
        return self.pauses * 1000

    def pause(self, seconds: float) -> None:
        """See Surroundings."""
        assert seconds > 0
        self.pauses += 1
        assert self.pauses < 500, "the executor waits for ever"
        if self.on_pause is not None:
            self.on_pause(self.pauses)
        self.kafka.copy(1)

    def is_stopping(self) -> bool:
        """See Surroundings."""
        return self.stopping

    def tell(self, message: str) -> None:
        """See Surroundings."""
        self.told.append(message)

    def show(self, progress: Progress) -> None:
        """See Surroundings."""
        self.shown.append(progress)

    def lists(self) -> dict[PartitionId, tuple[int, ...]]:
        """The replicas of every partition; a reassignment that runs is an error."""
        found = {}
        for name, topic in self.kafka.topics.items():
            for each in topic.partitions:
                assert not each.is_reassigned, (name, each)
                found[name, each.number] = each.listed
        return found

    def leaders(self) -> dict[PartitionId, int | None]:
        """Who leads each partition."""
        return {
            (name, each.number): each.leader
            for name, topic in self.kafka.topics.items()
            for each in topic.partitions
        }

    def settings(self) -> tuple[dict[int, dict[str, int]], dict[str, dict[str, str]]]:
        """The throttles that are set: rates by broker, entries by topic."""
        rates = {broker: dict(each) for broker, each in self.kafka.rates.items() if each}
        throttled = (LEADER_ENTRIES, FOLLOWER_ENTRIES)
        entries = {
            topic: {key: value for key, value in configs.items() if key in throttled}
            for topic, configs in self.kafka.configs.items()
        }
        return rates, {topic: configs for topic, configs in entries.items() if configs}


FOREIGN = ({2: {LEADER_RATE: 7, FOLLOWER_RATE: 7}}, {"t": {LEADER_ENTRIES: "0:2,9:9"}})


def throttle_as_others_do(bench: Bench) -> None:
    """Set what FOREIGN holds."""
    bench.kafka.rates = {2: dict(FOREIGN[0][2])}
    bench.kafka.configs["t"] |= FOREIGN[1]["t"]
