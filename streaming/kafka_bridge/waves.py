"""Compares a wave of a plan with a look at the cluster: what is done, runs, can start or cannot.

Everything is derived from lists of replicas, so that an executor that begins anew in the middle
sees the same as one that was there all the time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from streaming.kafka_bridge.admin_client import PartitionId
from streaming.kafka_bridge.journal import Direction
from streaming.kafka_bridge.snapshot import Partition, Snapshot
from streaming.kafka_bridge.throttling import Copying


@dataclass(frozen=True, slots=True)
class Change:
    """The replicas of a partition before and after a wave, in the order of preference."""

    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def added(self) -> frozenset[int]:
        """The brokers that get a copy."""
        return frozenset(self.after) - frozenset(self.before)

    def reversed(self) -> "Change":
        """The way back."""
        return Change(self.after, self.before)


Wave = Mapping[PartitionId, Change]


@dataclass(frozen=True, slots=True)
class ReassignmentPlan:
    """Changes to carry out, wave after wave; the plan is approved by its `hash`."""

    hash: str
    waves: tuple[Wave, ...]

    def wave(self, number: int, direction: Direction) -> Wave:
        """Return a wave as it is carried out in a direction."""
        wave = self.waves[number]
        if direction is Direction.FORWARD:
            return wave
        return {key: change.reversed() for key, change in wave.items()}

    def partitions(self) -> list[PartitionId]:
        """The partitions of all waves, sorted."""
        return sorted({key for wave in self.waves for key in wave})

    def lists(self, direction: Direction) -> dict[PartitionId, tuple[int, ...]]:
        """The replicas of each partition at the end of a direction."""
        found: dict[PartitionId, tuple[int, ...]] = {}
        for wave in self.waves:
            for key, change in wave.items():
                if direction is Direction.FORWARD:
                    found[key] = change.after
                else:
                    found.setdefault(key, change.before)
        return found

    def known_lists(self) -> dict[PartitionId, set[tuple[int, ...]]]:
        """The lists of each partition that the plan passes through."""
        found: dict[PartitionId, set[tuple[int, ...]]] = {}
        for wave in self.waves:
            for key, change in wave.items():
                found.setdefault(key, set()).update((change.before, change.after))
        return found


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the partitions of a wave are.

    `superseded`: moved elsewhere by a reassignment that is to be cancelled before the wave's own.
    `disordered`: as before the wave but for the order, in which a cancel leaves the replicas.
    `gone`: deleted, or made anew under the name. `stuck`: running towards brokers that are not
    live. `hindered`: not to be started, and why.
    """

    done: list[PartitionId] = field(default_factory=list)
    running: list[PartitionId] = field(default_factory=list)
    startable: dict[PartitionId, Copying] = field(default_factory=dict)
    superseded: list[PartitionId] = field(default_factory=list)
    disordered: list[PartitionId] = field(default_factory=list)
    gone: list[PartitionId] = field(default_factory=list)
    stuck: dict[PartitionId, str] = field(default_factory=dict)
    hindered: dict[PartitionId, str] = field(default_factory=dict)


def sort_wave(wave: Wave, snapshot: Snapshot, uids: Mapping[str, str]) -> Standing:
    """Sort the partitions of a wave by what is to be done with them."""
    standing = Standing()
    for key, change in sorted(wave.items()):
        partition = find_partition(snapshot, key, uids)
        if partition is None:
            standing.gone.append(key)
        elif _is_under_way(partition) and partition.target == change.after:
            dead = _dead(partition.adding, snapshot)
            if dead:
                standing.stuck[key] = f"{dead}, to which it is being copied"
            else:
                standing.running.append(key)
        elif not partition.is_reassigned and partition.listed == change.after:
            standing.done.append(key)
        else:
            _sort_waiting(standing, key, change, partition, snapshot)
    return standing


def _sort_waiting(
    standing: Standing,
    key: PartitionId,
    change: Change,
    partition: Partition,
    snapshot: Snapshot,
) -> None:
    """Sort a partition that is neither done nor under way to be."""
    at = partition.target
    if {*at} not in ({*change.before}, {*change.after}):
        standing.hindered[key] = f"it is {_said(partition)}, which this plan has not asked for"
        return
    if partition.is_reassigned:
        standing.superseded.append(key)
        return
    if {*partition.listed} == {*change.before} and partition.listed != change.before:
        standing.disordered.append(key)
    present = partition.replicas
    targets = tuple(broker for broker in change.after if broker not in present)
    dead = _dead(targets, snapshot)
    unknown = [each for each in change.after if each not in snapshot.brokers]
    if dead or unknown:
        why = dead or f"broker {unknown[0]} is not registered"
        standing.hindered[key] = f"{why}, and its list is to be {list(change.after)}"
    else:
        standing.startable[key] = Copying(key, present if targets else (), targets)


def _is_under_way(partition: Partition) -> bool:
    return partition.is_reassigned and not partition.never_ends


def find_partition(
    snapshot: Snapshot, key: PartitionId, uids: Mapping[str, str]
) -> Partition | None:
    """Return a partition; None where it is gone or its topic was made anew."""
    topic = snapshot.topics.get(key[0])
    if topic is None or uids.get(topic.name, topic.uid) != topic.uid:
        return None
    return snapshot.partition(*key)


def find_strangers(
    plan: ReassignmentPlan, snapshot: Snapshot, uids: Mapping[str, str]
) -> Iterator[str]:
    """Name the partitions that are at, or on the way to, a list that the plan does not know."""
    known = plan.known_lists()
    for key in plan.partitions():
        partition = find_partition(snapshot, key, uids)
        if partition is not None and {*partition.target} not in map(set, known[key]):
            yield f"{name_partition(key)} is {_said(partition)}, which this plan has not asked for"


def find_foreign_reassignments(plan: ReassignmentPlan, snapshot: Snapshot) -> Iterator[str]:
    """Name the partitions of the plan that somebody reassigns."""
    for key in plan.partitions():
        partition = find_partition(snapshot, key, {})
        if partition is not None and partition.is_reassigned:
            yield f"{name_partition(key)} is {_said(partition)} by a reassignment that is under way"


def name_partition(key: PartitionId) -> str:
    """Name a partition as Kafka's tools do."""
    return f"{key[0]}-{key[1]}"


def name_some(keys: Sequence[PartitionId]) -> str:
    """Name the first few."""
    named = ", ".join(map(name_partition, keys[:_NAMED_MAX]))
    return named if len(keys) <= _NAMED_MAX else f"{named} and {len(keys) - _NAMED_MAX} more"


# A line of a terminal.
_NAMED_MAX = 5


def _dead(brokers: Iterable[int], snapshot: Snapshot) -> str:
    """Name those of the brokers that are not live; empty where all are."""
    dead = [each for each in brokers if not snapshot.is_live(each)]
    if not dead:
        return ""
    many = "brokers" if len(dead) > 1 else "broker"
    verb = "are" if len(dead) > 1 else "is"
    return f"{many} {', '.join(map(str, dead))} {verb} not live"


def _said(partition: Partition) -> str:
    if partition.is_reassigned:
        return f"moved to {list(partition.target)}"
    return f"on {list(partition.listed)}"
