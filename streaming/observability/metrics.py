"""Metrics of a running reconciler in Prometheus' format, from what each commit published.

Names follow Prometheus' naming practice; labels are words from fixed lists, never ids. Work per
commit is proportional to what it changed.
"""

from collections import Counter as Counts
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from placement.controllers import KIND as HOLD
from placement.diagnosis import REPLICAS_RULE
from placement.model import (
    SEVERITIES,
    AnswerOutcome,
    Event,
    LoadsReported,
    Memory,
    MoveState,
    Ready,
)
from placement.moves import KIND as UNMARK

# From a batch of nothing but a tick to one that fills with a storm after a pause.
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2)

ROLES = ("starting", "standby", "active")


@dataclass(frozen=True, slots=True)
class CommitSummary:
    """Summarises one commit: its input, its output and its duration.

    `refused`: reason codes of the refused records; `left_out`: how many of them have no dead letter
    of their own, by code.
    """

    events: tuple[Event, ...]
    ready: Ready
    refused: tuple[str, ...]
    planning_seconds: float
    commit_seconds: float
    at_ms: int
    open_moves: int
    left_out: Mapping[str, int] = field(default_factory=dict)


class _Tally:
    """Counts things by category, and follows a thing that changes its category."""

    def __init__(self, gauge: Gauge, words: Iterable[str] = ()) -> None:
        self._gauge = gauge
        self._of: dict[Hashable, tuple[str, ...]] = {}
        for word in words:
            gauge.labels(word)

    def put(self, key: Hashable, categories: tuple[str, ...]) -> None:
        """The thing is in these categories from now on; none: it is gone."""
        for category in self._of.pop(key, ()):
            self._gauge.labels(category).dec()
        for category in categories:
            self._gauge.labels(category).inc()
        if categories:
            self._of[key] = categories

    def clear(self) -> None:
        """Nothing is known any more."""
        for key in [*self._of]:
            self.put(key, ())


class LoadMetrics:
    """Metrics of the query that reads reports of loads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._changes = Counter(
            "reconciler_load_changes",
            "Loads of shards that the filter of reports passed on.",
            registry=registry,
        )
        self._batch = Histogram(
            "reconciler_load_batch_duration_seconds",
            "Time to read and filter a batch of reports of loads.",
            registry=registry,
            buckets=_SECONDS,
        )
        self._lag = Gauge(
            "reconciler_load_lag_seconds",
            "Age of the last reports of loads when they were applied.",
            registry=registry,
        )

    def observe_batch(self, seconds: float) -> None:
        """A batch of reports has been read and filtered."""
        self._batch.observe(seconds)

    def observe_lag(self, seconds: float) -> None:
        """Reports that are so old are being applied."""
        self._lag.set(seconds)

    def count_changes(self, events: Iterable[Event]) -> None:
        """Count the loads that events of a commit tell of."""
        self._changes.inc(sum(len(e.loads) for e in events if isinstance(e, LoadsReported)))


class Metrics:
    """All metrics, in a registry of their own."""

    def __init__(self, cell: str) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"reconciler_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"reconciler_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(f"reconciler_{name}", text, registry=registry, buckets=_SECONDS)

        Info("reconciler_build", "Version and cell.", registry=registry).info(
            {"version": version("placement-reconciler"), "cell": cell}
        )
        self._read = counter("records_read", "Records read from input topics.", "topic")
        self._events = counter("events_consumed", "Events applied, by type.", "type")
        self._rejected = counter("events_rejected", "Records refused, by reason.", "reason")
        self._left_out = counter(
            "dead_letters_left_out", "Refused records without a dead letter of their own.", "reason"
        )
        self._ignored = counter(
            "ignored_records", "Records, or fields, without effect, by reason.", "reason"
        )
        self._decisions = counter("decisions_emitted", "Decisions, by outcome.", "outcome")
        self._moves = counter(
            "commands_emitted", "Moves issued, by kind and cause.", "kind", "cause"
        )
        self._ended = counter("commands_ended", "Moves ended, by final state.", "state")
        self._alerts = counter(
            "alerts_emitted", "Alerts, by kind and severity.", "kind", "severity"
        )
        self._answers = counter(
            "requests_answered", "Answers to operators' requests, by outcome.", "outcome"
        )
        self._in_flight = gauge("moves_in_flight", "Moves under way.")
        unconfirmed = gauge("moves_unconfirmed", "Moves called off, not confirmed.", "told")
        self._unconfirmed = _Tally(unconfirmed, ("once", "again"))
        self._lacking = gauge("underreplicated_shards", "Shards with too few live replicas.")
        self._last = gauge("last_batch_timestamp_seconds", "When the last batch was committed.")
        self._batch = histogram(
            "batch_duration_seconds", "Time from a batch's arrival to its commit."
        )
        self._planning = histogram(
            "planning_duration_seconds", "Part of a batch's time: deciding what to do."
        )
        self._commit = histogram(
            "commit_duration_seconds", "Part of a batch's time: the transaction."
        )
        self.loads = LoadMetrics(registry)
        self._nodes = _Tally(gauge("nodes", "Known nodes, by status.", "status"))
        self._streams = _Tally(gauge("streams", "Known streams, by last outcome.", "outcome"))
        severity = gauge("placement_violations", "Open violations, by strength.", "severity")
        self._broken = _Tally(severity, ("required", "preferred"))
        self._memory = _Tally(
            gauge("memory", "Remembered entries, by kind: holds, requests …", "kind")
        )
        holds = gauge("holds", "Holds of repair: in force, or overridden.", "state")
        self._holds = _Tally(holds, ("held", "overridden"))
        self._without: set[Hashable] = set()
        self._role = gauge("role", "1 for the role that the process has.", "role")
        self._proven = gauge("standby_proven_commit", "Last commit that the standby has proven.")
        self._lag = gauge("standby_lag_commits", "Commits behind the one that is proven.")
        self._rebuilds = counter(
            "standby_rebuilds", "Times that the standby read the state from the topics again."
        )
        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        """Create the counters that alerting rules ask for: a counter that begins with its first
        event has no rate."""
        for state in MoveState:
            if not state.is_open:
                self._ended.labels(str(state))
        for kind, severity in SEVERITIES.items():
            self._alerts.labels(str(kind), str(severity))
        for outcome in AnswerOutcome:
            self._answers.labels(str(outcome))
        self.set_role("starting")

    def start_from(self, in_force: Ready, open_moves: int) -> None:
        """Start from a restored state, as the active one."""
        self._forget()
        self.set_role("active")
        self._census(in_force)
        self._in_flight.set(open_moves)

    def stand_by(self) -> None:
        """Leave what the fleet is like to the active one: nobody is to be alerted by the past."""
        self._forget()
        self.set_role("standby")

    def set_role(self, role: str) -> None:
        """The process has this role from now on: one of ROLES."""
        for each in ROLES:
            self._role.labels(each).set(each == role)

    def set_followed(self, proven: int | None, lag_commits: int) -> None:
        """Note the commit that a standby has proven, and how many there are behind it."""
        self._proven.set(proven or 0)
        self._lag.set(lag_commits)

    def count_rebuild(self) -> None:
        """Count a state that a standby had to read from the topics again."""
        self._rebuilds.inc()

    def count_read(self, topic: str, records: int) -> None:
        """Count the records read of a topic (short name)."""
        self._read.labels(topic).inc(records)

    def count_ignored(self, counts: Mapping[str, int]) -> None:
        """Count the records that changed nothing, by reason."""
        for reason, count in counts.items():
            self._ignored.labels(reason).inc(count)

    def observe_batch(self, seconds: float) -> None:
        """A micro-batch has been applied and committed."""
        self._batch.observe(seconds)

    def observe_commit(self, commit: CommitSummary) -> None:
        """Take in one commit."""
        ready = commit.ready
        _count(self._events, (type(event).__name__ for event in commit.events))
        self.loads.count_changes(commit.events)
        _count(self._rejected, commit.refused)
        for reason, count in commit.left_out.items():
            self._left_out.labels(reason).inc(count)
        _count(self._decisions, (str(each.outcome) for each in ready.decisions.values()))
        for alert in ready.alerts:
            self._alerts.labels(str(alert.kind), str(alert.severity)).inc()
        _count(self._answers, (str(answer.outcome) for answer in ready.answers))
        moves = [move for move, forgotten in ready.moves.values() if not forgotten]
        for move in moves:
            if move.issued_at == commit.at_ms and move.state.value in ("issued", "completed"):
                self._moves.labels(str(move.kind), move.cause).inc()
            if not move.state.is_open and not move.reminded:
                self._ended.labels(str(move.state)).inc()
        self._census(ready)
        self._in_flight.set(commit.open_moves)
        self._planning.observe(commit.planning_seconds)
        self._commit.observe(commit.commit_seconds)
        self._last.set(commit.at_ms / 1000)

    def _forget(self) -> None:
        for tally in (self._nodes, self._streams, self._broken, self._memory, self._unconfirmed):
            tally.clear()
        self._holds.clear()
        self._without.clear()
        self._lacking.set(0)
        self._in_flight.set(0)
        self.loads.observe_lag(0)

    def _census(self, ready: Ready) -> None:
        for node_id, view in ready.topology.items():
            self._nodes.put(node_id, () if view is None else (view.status,))
        for stream, decision in ready.decisions.items():
            self._streams.put(stream, (str(decision.outcome),))
        for shard, violations in ready.violations.items():
            self._broken.put(shard, tuple(str(each.strength) for each in violations))
            self._without.discard(shard)
            if any(each.rule == REPLICAS_RULE for each in violations):
                self._without.add(shard)
        self._lacking.set(len(self._without))
        for key, memory in ready.memory.items():
            self._memory.put(key, () if memory is None else (memory.kind,))
            self._unconfirmed.put(key, _reminder_labels(memory))
            self._holds.put(key, _hold_labels(memory))


def _reminder_labels(memory: Memory | None) -> tuple[str, ...]:
    """Return the label of a move that was called off: reminded `once` or `again`; none for other
    memory."""
    if memory is None or memory.kind != UNMARK:
        return ()
    return ("again",) if memory.body["reminded"] else ("once",)


def _hold_labels(memory: Memory | None) -> tuple[str, ...]:
    """Return the label of a hold; none for other memory."""
    if memory is None or memory.kind != HOLD:
        return ()
    return ("overridden",) if memory.body["overridden"] else ("held",)


def _count(counter: Counter, labels: Iterable[str]) -> None:
    for label, count in Counts(labels).items():
        counter.labels(label).inc(count)


def descriptions() -> Mapping[str, str]:
    """Every metric of ours with its sentence, for the README's table."""
    found = Metrics("main").registry.collect()
    ours = (each for each in found if each.name.startswith("reconciler_"))
    return {each.name: each.documentation for each in ours}
