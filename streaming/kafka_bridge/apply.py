"""Carries a plan out on a cluster, wave after wave, forward or back.

Level-triggered: each round looks at the cluster and does what is missing, so that it begins in the
middle as well as at the start. The journal is written before each change. Every ending takes the
throttles back that are ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from streaming.errors import BrokerUnreachable, StreamingError
from streaming.kafka_bridge.admin_client import (
    ClusterAdmin,
    DescribedLogs,
    PartitionId,
)
from streaming.kafka_bridge.copying import Progress, Sizes, arrived_bytes, copied_bytes
from streaming.kafka_bridge.journal import Direction, Journal, JournalStore, turn
from streaming.kafka_bridge.observer import Observer
from streaming.kafka_bridge.snapshot import Snapshot, find_elections
from streaming.kafka_bridge.throttling import (
    OwnThrottles,
    find_missing,
    find_removable,
    find_throttles,
    find_unreachable,
)
from streaming.kafka_bridge.waves import (
    ReassignmentPlan,
    Standing,
    Wave,
    find_foreign_reassignments,
    find_partition,
    find_strangers,
    name_partition,
    name_some,
    sort_wave,
)

# Copies take seconds at least; a look at 2,279 partitions took a quarter of a second.
ROUND_SECONDS = 1.0
# A controller change takes seconds, and a broker that dies is fenced after its session of 9 s: as
# many rounds may fail one after the other, each of which takes a second or its time limit of 20 s.
FAILED_ROUNDS_MAX = 30


class ApplyRefused(StreamingError):
    """A plan that is not carried out, because the cluster or the journal does not fit it."""

    exit_code = 1


class Surroundings(Protocol):
    """The clock and the person of an executor: it reports to them and may be stopped by them."""

    def now_ms(self) -> int:
        """Return the time."""

    def pause(self, seconds: float) -> None:
        """Wait, less where a stop is asked for."""

    def is_stopping(self) -> bool:
        """Return whether a person has asked to stop."""

    def tell(self, message: str) -> None:
        """Tell a person."""

    def show(self, progress: Progress) -> None:
        """Show how far it is."""


@dataclass(slots=True)
class Outcome:
    """How a direction ended: what did not come about, by partition, and what is left behind."""

    failures: dict[PartitionId, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    stopped: bool = False

    @property
    def is_complete(self) -> bool:
        """Return whether everything is as the plan has it and nothing is left behind."""
        return not (self.failures or self.left or self.stopped)


class Executor:
    """Carries out one plan; `rate` is the throttle in bytes a second, None for none."""

    def __init__(
        self,
        admin: ClusterAdmin,
        plan: ReassignmentPlan,
        store: JournalStore,
        around: Surroundings,
        rate: int | None = None,
    ) -> None:
        self._admin, self._plan, self._store = admin, plan, store
        self._around, self._rate = around, rate
        self._observer = Observer(admin)
        self._sizes: Sizes = {}
        self._failures: dict[PartitionId, str] = {}
        self._refused: set[PartitionId] = set()

    def begins_anew(self, direction: Direction) -> bool:
        """Return whether nothing was begun, so that the cluster has to be as it was planned on.

        Raises ApplyRefused where there is nothing to go back from, JournalInvalid.
        """
        journal = self._store.load()
        if journal is not None and journal.plan != self._plan.hash:
            message = f"the journal is of plan {journal.plan}, this is plan {self._plan.hash}: "
            message += "give the plan's own file, or finish that plan first"
            raise ApplyRefused(message)
        undone = journal is None or (journal.ended and journal.direction is Direction.BACK)
        if direction is Direction.FORWARD:
            return undone
        if journal is None:
            raise ApplyRefused("nothing to roll back: the plan has no journal, nothing was begun")
        return False

    def run(self, direction: Direction) -> Outcome:
        """Go on in a direction to its end, or until a stop is asked for.

        Raises ApplyRefused before anything is changed, BrokerUnreachable where the cluster answers
        no more, and AccessRefused; then the journal leads back to where it was.
        """
        seen, journal = self.check(direction)
        self._sizes = {key: seen.size_of(*key) or 0 for key in self._plan.partitions()}
        self._failures, self._refused = {}, set()
        self._store.save(journal)
        journal, stopped = self._carry_out_all(journal)
        outcome = Outcome(dict(self._failures), stopped=stopped)
        seen = self._observer.look(self._around.now_ms())
        if not stopped:
            for key, why in self._verify(direction, seen, journal.uids).items():
                outcome.failures.setdefault(key, why)
            gone = {key for key in outcome.failures if _is_gone(seen, key, journal.uids)}
            if outcome.failures.keys() <= gone:
                journal = replace(journal, ended=True)
                self._store.save(journal)
        outcome.left = _name_left(journal.own, seen)
        return outcome

    def check(self, direction: Direction) -> tuple[Snapshot, Journal]:
        """Look at the cluster and return the journal to go on with; nothing is changed or written.

        Raises ApplyRefused where somebody else has changed what the plan changes.
        """
        anew = self.begins_anew(direction)
        found = self._store.load()
        seen = self._observer.look(self._around.now_ms())
        if found is not None and found.cluster != seen.cluster_id:
            message = f"the plan was begun on cluster {found.cluster}, this is {seen.cluster_id}"
            raise ApplyRefused(message)
        if anew or found is None:
            refused = [*find_foreign_reassignments(self._plan, seen)]
            named = {topic for topic, _ in self._plan.partitions()} & seen.topics.keys()
            uids = {topic: seen.topics[topic].uid for topic in sorted(named)}
            own = OwnThrottles() if found is None else found.own
            journal = Journal(self._plan.hash, seen.cluster_id, uids, own=own)
        else:
            refused = [*find_strangers(self._plan, seen, found.uids)]
            journal = turn(found, direction)
        if refused:
            raise ApplyRefused("\n".join(["nothing was changed:", *refused]))
        return seen, journal

    def _carry_out_all(self, journal: Journal) -> tuple[Journal, bool]:
        """Carry out the waves that are left; the second value tells whether it was stopped."""
        last = len(self._plan.waves) - 1 if journal.direction is Direction.FORWARD else 0
        step = 1 if journal.direction is Direction.FORWARD else -1
        while True:
            if 0 <= journal.wave < len(self._plan.waves):
                journal = self._carry_out(journal)
            if self._around.is_stopping():
                return journal, True
            if journal.wave == last or not self._plan.waves or self._has_failed(journal):
                return journal, False
            journal = replace(journal, wave=journal.wave + step)
            self._store.save(journal)

    def _has_failed(self, journal: Journal) -> bool:
        return any(key in self._plan.waves[journal.wave] for key in self._failures)

    def _carry_out(self, journal: Journal) -> Journal:
        """Carry one wave out: copy, take the throttles back, elect. Rounds in which the brokers do
        not answer are done again."""
        copied, failed = False, 0
        while True:
            try:
                if not copied:
                    journal, copied = self._do_round(journal)
                if copied:
                    journal = self._take_back(journal)
                    self._elect(journal)
                    return journal
                failed = 0
            except BrokerUnreachable as error:
                failed += 1
                if failed == FAILED_ROUNDS_MAX:
                    message = f"{error}; gave up after {failed} times: copies that run go on, "
                    message += "throttled; run the same command again, or with --rollback"
                    raise BrokerUnreachable(message) from error
                self._around.tell(f"{error}; trying again")
                journal = self._store.load() or journal
            self._around.pause(ROUND_SECONDS)

    def _do_round(self, journal: Journal) -> tuple[Journal, bool]:
        """Look, call off, start; the second value tells whether the wave's copies are at an end."""
        # Configurations of all topics cost most of a look: they are read where something starts.
        seen = self._observer.look(self._around.now_ms(), throttles=False)
        wave = self._plan.wave(journal.wave, journal.direction)
        standing = sort_wave(wave, seen, journal.uids)
        self._note_failures(standing)
        stopping = self._around.is_stopping()
        called_off = {*standing.stuck, *(standing.running if stopping else ())}
        cancelled = {*called_off, *standing.superseded} - self._refused
        self._cancel(sorted(cancelled))
        wanted = [] if stopping else [k for k in standing.startable if k not in self._failures]
        if wanted:
            journal = self._throttle(journal, standing, wanted)
            self._alter({key: wave[key].after for key in wanted})
        restored = {*standing.disordered} - {*wanted} - self._refused
        self._restore({key: wave[key].before for key in sorted(restored)})
        self._show(journal, wave, standing, seen)
        running = {*standing.running} - self._refused
        return journal, not (cancelled or wanted or restored or running)

    def _note_failures(self, standing: Standing) -> None:
        for key, why in {**standing.stuck, **standing.hindered}.items():
            if key not in self._failures:
                self._around.tell(f"{name_partition(key)} is not moved: {why}")
            self._failures.setdefault(key, why)

    def _cancel(self, keys: list[PartitionId]) -> None:
        """Cancel reassignments; the replicas that they added are gone then.

        To state the old list instead leaves a reassignment that never ends.
        """
        if not keys:
            return
        self._around.tell(f"cancelling the reassignment of {name_some(keys)}")
        for key, error in self._admin.alter_reassignments(dict.fromkeys(keys)).items():
            # It may have ended since the look.
            if error not in (None, "NoReassignmentInProgress", "UnknownTopicOrPartition"):
                self._refused.add(key)
                self._failures[key] = f"Kafka does not cancel its reassignment: {error}"
                self._around.tell(f"{name_partition(key)}: {self._failures[key]}")

    def _restore(self, lists: Mapping[PartitionId, tuple[int, ...]]) -> None:
        """Give partitions the order back that a cancel has changed; nothing is copied."""
        if not lists:
            return
        for key, error in self._admin.alter_reassignments(lists).items():
            if error is not None:
                self._refused.add(key)
                self._around.tell(f"{name_partition(key)} is not put in its order: {error}")

    def _throttle(self, journal: Journal, standing: Standing, wanted: list[PartitionId]) -> Journal:
        """Set the throttles of what is to be started. Raises BrokerUnreachable where one could not
        be set: no copy starts without its throttle."""
        if self._rate is None:
            return journal
        copied = [standing.startable[key] for key in wanted if standing.startable[key].targets]
        if not copied:
            return journal
        seen = self._observer.look(self._around.now_ms())
        own = find_throttles(copied, seen, journal.own, self._rate)
        if own != journal.own:
            journal = replace(journal, own=own)
            self._store.save(journal)
        self._change(find_missing(own, seen), add=True)
        return journal

    def _alter(self, targets: Mapping[PartitionId, tuple[int, ...]]) -> None:
        for key, error in self._admin.alter_reassignments(targets).items():
            # The next look tells of a topic that is gone.
            if error is not None and error != "UnknownTopicOrPartition":
                self._failures[key] = f"Kafka refuses {list(targets[key])}: {error}"
                self._around.tell(f"{name_partition(key)}: {self._failures[key]}")

    def _take_back(self, journal: Journal) -> Journal:
        """Take our throttles back; those of brokers that are not live stay ours."""
        if not journal.own:
            return journal
        seen = self._observer.look(self._around.now_ms())
        self._change(find_removable(journal.own, seen), add=False)
        journal = replace(journal, own=find_unreachable(journal.own, seen))
        self._store.save(journal)
        return journal

    def _change(self, throttles: OwnThrottles, *, add: bool) -> None:
        """Set throttles or take them back. Raises BrokerUnreachable where one is not changed."""
        entries = {
            topic: {c: (own, ()) if add else ((), own) for c, own in configs.items()}
            for topic, configs in throttles.entries.items()
        }
        rates = {
            broker: {config: rate if add else None for config, rate in configs.items()}
            for broker, configs in throttles.rates.items()
        }
        errors = [
            f"topic {name}: {error}"
            for name, error in (self._admin.alter_topic_entries(entries) if entries else {}).items()
            if error is not None
        ]
        errors += [
            f"broker {broker}: {error}"
            for broker, error in (self._admin.alter_broker_rates(rates) if rates else {}).items()
            if error is not None
        ]
        if errors:
            doing = "set" if add else "taken back"
            raise BrokerUnreachable(f"throttles were not {doing}: {'; '.join(errors)}")

    def _elect(self, journal: Journal) -> None:
        """Have the preferred leaders of the wave lead."""
        seen = self._observer.look(self._around.now_ms(), throttles=False)
        wave = self._plan.wave(journal.wave, journal.direction)
        elected = find_elections(seen, [k for k in wave if find_partition(seen, k, journal.uids)])
        if elected:
            for key, error in self._admin.elect_preferred(elected).items():
                if error is not None:
                    self._around.tell(f"{name_partition(key)}: no election: {error}")

    def _verify(
        self, direction: Direction, seen: Snapshot, uids: Mapping[str, str]
    ) -> dict[PartitionId, str]:
        """Name what is not as the plan has it."""
        found = {}
        for key, wanted in self._plan.lists(direction).items():
            partition = find_partition(seen, key, uids)
            if partition is None:
                found[key] = "its topic was deleted"
            elif partition.is_reassigned or partition.listed != wanted:
                found[key] = f"it is on {list(partition.replicas)}, not on {list(wanted)}"
        return found

    def _show(self, journal: Journal, wave: Wave, standing: Standing, seen: Snapshot) -> None:
        waves = [self._plan.wave(n, journal.direction) for n in range(len(self._plan.waves))]
        copies = [copied_bytes(each, self._sizes) for each in waves]
        if journal.direction is Direction.FORWARD:
            position, before = journal.wave + 1, sum(copies[: journal.wave])
        else:
            position, before = len(waves) - journal.wave, sum(copies[journal.wave + 1 :])
        targets = {broker for key in standing.running for broker in wave[key].added}
        logs: Mapping[int, DescribedLogs] = {}
        if targets:
            logs = self._admin.describe_logs(sorted(targets & seen.live()))
        arrived = before + arrived_bytes(wave, standing, self._sizes, logs)
        done = len(standing.done) + len(standing.gone)
        self._around.show(Progress(position, len(waves), done, len(wave), arrived, sum(copies)))


def _is_gone(seen: Snapshot, key: PartitionId, uids: Mapping[str, str]) -> bool:
    return find_partition(seen, key, uids) is None


def _name_left(own: OwnThrottles, seen: Snapshot) -> list[str]:
    """Say which throttles of ours are still set."""
    rates = [
        f"broker {broker} is not live and keeps {config}={rate}: run the command again when it is"
        for broker, configs in own.rates.items()
        for config, rate in configs.items()
    ]
    entries = [
        f"topic {topic} keeps {config}={','.join(sorted(ours))}: run the command again"
        for topic, configs in find_removable(own, seen).entries.items()
        for config, ours in configs.items()
    ]
    return rates + entries
