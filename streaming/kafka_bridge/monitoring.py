"""Shows what an agent does: metrics in Prometheus' format, and whether it is alive and ready.

Told by the agent of its rounds; answers nothing that decides anything. Labels are words from fixed
lists, never names of topics. An agent that waits for the lock shows no state of the cluster.
"""

import threading
import time
from collections import Counter as Counts
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from schemas.acks import (
    MoveAccepted,
    MoveCompleted,
    MoveFailed,
    MoveProgressed,
    MoveStopped,
    ReplicaLost,
    ReplicasObserved,
)
from schemas.base import Message
from schemas.inputs import (
    NodeLivenessReported,
    NodeRegistered,
    NodeUnregistered,
    StreamAltered,
    StreamCreated,
    StreamDropped,
)
from streaming.errors import AccessRefused, BrokerUnreachable
from streaming.kafka_bridge.actions import Reassign
from streaming.kafka_bridge.admin_client import FOLLOWER_ENTRIES, LEADER_ENTRIES, ClusterAdmin
from streaming.kafka_bridge.controller import Step
from streaming.kafka_bridge.desired import Desired, Standing
from streaming.kafka_bridge.membership import find_silent_brokers
from streaming.kafka_bridge.pacing import find_set_entries
from streaming.kafka_bridge.snapshot import Snapshot
from streaming.kafka_bridge.tables import Tables, is_open

# A call that hangs is given up after 20 s, and a round after the first one.
ROUND_SECONDS_MAX = 120.0
# Looks at the largest clusters take seconds, and failures are tried again after 5 s.
QUIET_SECONDS_MAX = 60.0
# From three brokers with a few topics to 100,000 partitions.
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

# Calls that change the cluster answer for each item, with None where Kafka has accepted it.
CHANGES = (
    "alter_reassignments",
    "alter_topic_entries",
    "alter_broker_rates",
    "elect_preferred",
)
CALLS = (
    "find_obstacles",
    "describe_cluster",
    "describe_topics",
    "find_hidden",
    "list_reassignments",
    "describe_topic_configs",
    "describe_broker_rates",
    "describe_logs",
    *CHANGES,
)
# What a bridge has to say.
SPOKEN: tuple[type[Message], ...] = (
    *(NodeRegistered, NodeLivenessReported, NodeUnregistered),
    *(StreamCreated, StreamAltered, StreamDropped),
    *(MoveAccepted, MoveProgressed, MoveCompleted, MoveFailed, MoveStopped),
    *(ReplicaLost, ReplicasObserved),
)
BROKER_STATES = ("live", "fenced", "unregistered")
REASSIGNMENT_STATES = ("running", "queued", "waiting", "foreign")
OWNERS = ("bridge", "other")

Verdict = tuple[bool, str]


class Monitoring:
    """All metrics in a registry of their own, and the two probes."""

    def __init__(
        self, mode: str, cell: str = "main", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        self._clock, self._lock = clock, threading.Lock()
        self._began: float | None = None
        self._worked: float | None = None
        self._standing_by = False

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"kafka_bridge_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"kafka_bridge_{name}", text, labels, registry=registry)

        Info("kafka_bridge_build", "Version, cell and mode.", registry=registry).info(
            {"version": version("placement-reconciler"), "cell": cell, "mode": mode}
        )
        self._active = gauge("active", "1 if this agent works, 0 if it waits for the lock.")
        self._looked = gauge(
            "last_look_timestamp_seconds", "When the cluster was last seen whole; 0: not yet."
        )
        self._look = Histogram(
            "kafka_bridge_look_duration_seconds",
            "Time that a look at the cluster takes.",
            registry=registry,
            buckets=_SECONDS,
        )
        self._failed = counter("rounds_failed", "Rounds that ended without a decision.")
        self._brokers = gauge("brokers", "Brokers, by state.", "state")
        self._moving = gauge("reassignments", "Partitions to be reassigned, by state.", "state")
        self._in_flight = gauge(
            "in_flight_max", "The most partitions copied to or from a broker now."
        )
        self._left = gauge("bytes_to_copy", "Bytes that reassignments have left to copy.")
        self._entries = gauge(
            "throttled_replicas", "Throttled replicas in topic configurations, by owner.", "owner"
        )
        self._rates = gauge("throttle_rates", "Throttle rates set on brokers, by owner.", "owner")
        self._unreadable = gauge(
            "unreadable_records", "Records of the reconciler that this version cannot read."
        )
        self._hidden = gauge(
            "hidden_topics", "Topics of the reconciler that the bridge may not describe."
        )
        self._calls = counter("calls", "Admin calls, by call and outcome.", "call", "outcome")
        self._refused = counter("refusals", "Changes that Kafka refused, by call.", "call")
        self._said = counter("messages_sent", "Messages to the reconciler, by type.", "type")
        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        """Create what alerting rules ask for: a counter that begins at 1 has no rate."""
        for call in CALLS:
            for outcome in ("ok", "failed", "denied"):
                self._calls.labels(call, outcome)
        for call in CHANGES:
            self._refused.labels(call)
        for message in SPOKEN:
            self._said.labels(message.__name__)
        self._show_nothing()

    def _show_nothing(self) -> None:
        """Show no state of the cluster, so that the agents of a cell can be added up."""
        for gauge, words in (
            (self._brokers, BROKER_STATES),
            (self._moving, REASSIGNMENT_STATES),
            (self._entries, OWNERS),
            (self._rates, OWNERS),
        ):
            for word in words:
                gauge.labels(word).set(0)
        for each in (self._active, self._in_flight, self._left, self._unreadable, self._hidden):
            each.set(0)

    # What the agent tells

    def on_round_began(self) -> None:
        """A round begins: the lock, the reconciler's topics, a look, what follows from it."""
        with self._lock:
            self._began = self._clock()

    def on_standby(self) -> None:
        """Another agent holds the lock."""
        with self._lock:
            self._began, self._worked, self._standing_by = None, self._clock(), True
        self._show_nothing()

    def on_failed(self) -> None:
        """The round ended without a decision."""
        with self._lock:
            self._began = None
        self._failed.inc()

    def on_worked(
        self, snapshot: Snapshot, step: Step, tables: Tables, look_seconds: float, *, acts: bool
    ) -> None:
        """The round has done what it could. `acts`: the step's actions were carried out."""
        with self._lock:
            self._began, self._worked, self._standing_by = None, self._clock(), False
        self._active.set(1)
        self._looked.set_to_current_time()
        self._look.observe(look_seconds)
        for state, count in _count_brokers(snapshot, tables).items():
            self._brokers.labels(state).set(count)
        for state, count in _count_reassignments(snapshot, step, acts).items():
            self._moving.labels(state).set(count)
        self._in_flight.set(step.memory.in_flight_max or 0)
        self._left.set(sum(_bytes_left(each, snapshot) for each in step.desired))
        claims, throttles = step.memory.claims, snapshot.throttles
        configs = (LEADER_ENTRIES, FOLLOWER_ENTRIES)
        entries = {each for config in configs for each in find_set_entries(snapshot, config)}
        self._entries.labels("bridge").set(len(entries & claims.entries))
        self._entries.labels("other").set(len(entries - claims.entries))
        rates = [*throttles.leader_rates.values(), *throttles.follower_rates.values()]
        ours = sum(rate in claims.rates for rate in rates)
        self._rates.labels("bridge").set(ours)
        self._rates.labels("other").set(len(rates) - ours)
        self._unreadable.set(len(tables.unreadable))
        self._hidden.set(len(snapshot.hidden))

    def on_sent(self, messages: Sequence[Message]) -> None:
        """The reconciler's topics have these messages."""
        for name, count in Counts(type(each).__name__ for each in messages).items():
            self._said.labels(name).inc(count)

    def count_calls(self, admin: ClusterAdmin) -> ClusterAdmin:
        """Return the same admin, whose calls are counted."""
        return cast("ClusterAdmin", _CountedAdmin(admin, self._note_call))

    def _note_call(self, call: str, outcome: str, refused: int) -> None:
        self._calls.labels(call, outcome).inc()
        if refused:
            self._refused.labels(call).inc(refused)

    # What the endpoint asks

    def check_live(self) -> Verdict:
        """Return whether the process should go on, and why."""
        with self._lock:
            if self._began is not None and self._clock() - self._began > ROUND_SECONDS_MAX:
                return False, f"a round has been running for {self._clock() - self._began:.0f} s"
            return True, "ok"

    def check_ready(self) -> Verdict:
        """Return whether it works, or waits in reach of the lock, and why."""
        live, why = self.check_live()
        if not live:
            return live, why
        with self._lock:
            if self._worked is None:
                return False, "starting: the cluster has not been seen yet"
            quiet = self._clock() - self._worked
            what = "the lock of the bridge was read" if self._standing_by else "the last look was"
            if quiet > QUIET_SECONDS_MAX:
                return False, f"{what} {quiet:.0f} s ago; its log says why the rounds fail"
            waits = "another agent works; " if self._standing_by else ""
            return True, f"{waits}{what} {quiet:.1f} s ago"


class _CountedAdmin:
    """An admin whose calls are told to `note`: call, outcome, and how many items were refused."""

    def __init__(self, admin: ClusterAdmin, note: Callable[[str, str, int], None]) -> None:
        self._admin, self._note = admin, note

    def __getattr__(self, name: str) -> Any:
        ask = getattr(self._admin, name)
        if name not in CALLS:
            return ask

        def count(*values: Any, **options: Any) -> Any:
            try:
                answers = ask(*values, **options)
            except AccessRefused:
                self._note(name, "denied", 0)
                raise
            except BrokerUnreachable:
                self._note(name, "failed", 0)
                raise
            said = answers.values() if name in CHANGES else ()
            self._note(name, "ok", sum(each is not None for each in said))
            return answers

        return count


def _count_brokers(snapshot: Snapshot, tables: Tables) -> Mapping[str, int]:
    """Count brokers by state; an unregistered one is known to the reconciler still."""
    fenced = sum(each.fenced for each in snapshot.brokers.values())
    return {
        "live": len(snapshot.brokers) - fenced,
        "fenced": fenced,
        "unregistered": len(find_silent_brokers(snapshot, tables) - snapshot.brokers.keys()),
    }


def _count_reassignments(snapshot: Snapshot, step: Step, acts: bool) -> Mapping[str, int]:
    """Count partitions: being reassigned, next in the queue, held back, or somebody else's."""
    asked = {
        key
        for action in step.actions
        if acts and isinstance(action, Reassign)
        for key, to in action.targets.items()
        if to is not None
    }
    counts = Counts[str]()
    ours = set()
    for each in step.desired:
        is_running = each.standing is Standing.RUNNING or bool(each.running)
        if is_running or each.key in asked:
            counts["running"] += 1
            ours.add(each.key)
        elif each.standing is Standing.START:
            counts["queued"] += 1
        elif each.standing is Standing.WAIT and each.move is not None and is_open(each.move):
            counts["waiting"] += 1
    running = {(topic.name, each.number) for topic, each in snapshot.reassigned()}
    return {**dict.fromkeys(REASSIGNMENT_STATES, 0), **counts, "foreign": len(running - ours)}


def _bytes_left(each: Desired, snapshot: Snapshot) -> int:
    """Return the bytes that a partition has left to copy, as far as sizes are known."""
    if not (each.adding or each.running):
        return 0
    size, held = snapshot.size_of(*each.key) or 0, snapshot.sizes.get(each.key, {})
    return sum(max(0, size - held.get(broker, 0)) for broker in {*each.adding, *each.running})


def descriptions() -> Mapping[str, str]:
    """Every metric of ours with its sentence, for the table of the guide."""
    found = Monitoring("act").registry.collect()
    ours = (each for each in found if each.name.startswith("kafka_bridge_"))
    return {each.name: each.documentation for each in ours}
