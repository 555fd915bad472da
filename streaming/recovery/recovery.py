"""Recovers the state at every start from the compacted topics and proves it exact.

The order matters: the outbox has fenced older writers, so nothing can change
under the reading; what they left open is aborted; the digest of what was read must be the one in
the commit marker. The Spark checkpoint plays no part in it.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient

from placement.liveness import Clock
from placement.model import Configuration, NodeView, ShardLoad
from placement.reconciler import Reconciler
from placement.state import DIGEST_VERSION
from placement.wording import format_count
from schemas.topics import (
    CATALOGUE,
    COMMITS,
    DECIDING_TOPICS,
    INPUT_TOPICS,
    NODE_LOADS,
    STATE_TOPICS,
    full_name,
)
from streaming import gc_pause
from streaming.brokers import (
    CONNECT_TIMEOUT_SECONDS,
    TRANSACTION_TIMEOUT_MS,
    CommittedReader,
    connect,
    make_reader,
    read_end_offsets,
    read_watermarks,
)
from streaming.errors import StreamingError
from streaming.recovery.ignored import Ignored
from streaming.recovery.rebuild import (
    Latest,
    Rebuilt,
    RecordUnreadable,
    StateContradictory,
    rebuild,
)

Positions = dict[str, dict[int, int]]

REPAIR = (
    "See what differs: placer replay --from-topic --verify. Restore the records from the "
    "journal: placer repair"
)
UPGRADE = (
    "Install the version that wrote it, or a newer one; the topics need no repair, and must not be "
    "repaired with this version"
)
# What this version writes; a state of a newer one is refused, as it may mean more than is read.
STATE_FORMAT = 2


class RecoveryRefused(StreamingError):
    """The topics do not prove a state to go on from; nothing was changed."""


class StateTooNew(RecoveryRefused):
    """A newer version of placer wrote the state."""

    def __init__(self, found: str) -> None:
        super().__init__(f"a newer version of placer wrote the state: {found}. {UPGRADE}")
        self.found = found


@dataclass(frozen=True, slots=True)
class Gap:
    """Describes input that was deleted before it was read. The partition holds `first` to `end`,
    the last commit goes on at `position`. One beyond the end means that the topic was made anew."""

    topic: str
    partition: int
    position: int
    first: int
    end: int

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} has offsets {self.first} to {self.end}, but "
            f"the commit marker continues at {self.position}: input was "
            "deleted before it was read"
        )


@dataclass(slots=True)
class Recovered:
    """Where the last writer stopped. `positions`: next offset by short topic name and partition;
    `now`: the core's time there in ms; `ignored`: what it had counted of records that changed
    nothing; `followed`: the state was followed while that writer wrote it, not rebuilt."""

    configuration: Configuration
    reconciler: Reconciler
    nodes: list[NodeView]
    positions: Positions
    clocks: dict[int, Clock]
    sequence: int
    writer_epoch: int
    now: int
    records: int
    gaps: tuple[Gap, ...] = ()
    ignored: Ignored = field(default_factory=Ignored)
    loads: list[ShardLoad] = field(default_factory=list)
    followed: bool = False


@gc_pause.pause_gc()
def recover(
    bootstrap: str,
    prefix: str,
    cell: str,
    configuration: Configuration,
    partitions: Mapping[str, int],
    options: Mapping[str, str],
    *,
    accept_gap: bool = False,
) -> Recovered:
    """Rebuild the state of `cell`. `partitions`: counts of the output topics by short name.
    `accept_gap`: go on where the input is there again, if some of it was deleted unread.

    Raises RecoveryRefused with what is wrong and where, BrokerUnreachable, TopicMissing.
    """
    await_transactions(bootstrap, prefix, options)
    with CommittedReader(bootstrap, prefix, (*STATE_TOPICS, COMMITS), options=options) as reader:
        latest = reader.read_latest()
    marker = parse_marker(latest, prefix, cell)
    records = sum(len(latest[topic]) for topic in STATE_TOPICS)
    if marker is None and records:
        raise RecoveryRefused(
            f"{records} records of state exist under the prefix '{prefix}' but no commit "
            f"marker of cell '{cell}': they belong to another cell, or {prefix}{COMMITS} "
            "was emptied; set cell to the name of their cell, or use another prefix"
        )
    now = marker["now"] if marker else 0
    rebuilt = _rebuild(bootstrap, prefix, options, configuration, latest, now)
    found = digest_by_marker(rebuilt.reconciler, marker) if marker else None
    if marker is not None and found != marker["digest"]:
        raise RecoveryRefused(
            f"the state read from the topics has digest {found}, the commit marker "
            f"says {marker['digest']}: records of {', '.join(STATE_TOPICS)} were lost or altered. "
            f"{REPAIR}"
        )
    recovered = continue_from(
        marker, rebuilt, configuration, bootstrap, prefix, partitions, options
    )
    recovered.records = records
    refuse_gaps(recovered, accept_gap)
    return recovered


def continue_from(
    marker: Mapping[str, Any] | None,
    rebuilt: Rebuilt,
    configuration: Configuration,
    bootstrap: str,
    prefix: str,
    partitions: Mapping[str, int],
    options: Mapping[str, str],
) -> Recovered:
    """Join a proven state with the place where its writer stopped.

    `partitions`: counts of the output topics by short name. Raises RecoveryRefused where they have
    changed, BrokerUnreachable.
    """
    if marker is not None:
        _check_partitions(marker, partitions)
    clocks = marker["clocks"] if marker else {}
    topics = INPUT_TOPICS if configuration.resources else DECIDING_TOPICS
    positions, gaps = _positions(bootstrap, prefix, options, marker, topics)
    return Recovered(
        configuration=configuration,
        reconciler=rebuilt.reconciler,
        nodes=rebuilt.nodes,
        loads=rebuilt.loads,
        positions=positions,
        clocks={int(p): Clock(c["clock_ms"], c["append_ms"]) for p, c in clocks.items()},
        sequence=marker["sequence"] if marker else 0,
        writer_epoch=marker["writer_epoch"] if marker else 0,
        now=marker["now"] if marker else 0,
        records=0,
        gaps=gaps,
        ignored=Ignored.parse(marker.get("ignored", {}) if marker else {}),
    )


def refuse_gaps(recovered: Recovered, accept_gap: bool) -> None:
    """Raise RecoveryRefused where input was deleted before it was read, unless that is accepted."""
    gaps = recovered.gaps
    if gaps and not accept_gap:
        raise RecoveryRefused(
            "; ".join(map(str, gaps))
            + ". The deleted records are lost: send requests again; nodes register "
            "themselves. Start without the records: placer run --accept-gap"
        )


def digest_version(marker: Mapping[str, Any]) -> int:
    """Read by which version of the formula the marker's digest was made; older ones say none."""
    version: int = marker.get("digest_version") or 1
    return version


def digest_by_marker(reconciler: Reconciler, marker: Mapping[str, Any]) -> str:
    """Compute the digest of a state by the formula of a marker, so that both can be compared.

    Raises StateTooNew for a formula that this version does not know.
    """
    version = digest_version(marker)
    found = reconciler.digest_of_version(version)
    if found is None:
        raise StateTooNew(
            f"the commit marker's digest has formula {version}, this version computes formulas 1 "
            f"to {DIGEST_VERSION}"
        )
    return found


def open_transactions(
    bootstrap: str, prefix: str, topics: Iterable[str], options: Mapping[str, str]
) -> dict[tuple[str, int], int]:
    """Partitions, by full topic name, whose end an open transaction holds back, and where it
    began. Raises BrokerUnreachable."""
    admin = connect(AdminClient, bootstrap, {}, options)
    metadata = admin.list_topics(timeout=CONNECT_TIMEOUT_SECONDS).topics
    places = [
        TopicPartition(name, partition)
        for name in (full_name(topic, prefix) for topic in topics)
        if name in metadata
        for partition in metadata[name].partitions
    ]
    all_ends = read_end_offsets(admin, places, IsolationLevel.READ_UNCOMMITTED)
    stable_ends = read_end_offsets(admin, places, IsolationLevel.READ_COMMITTED)
    return {
        place: stable_ends[place] for place, end in all_ends.items() if stable_ends[place] < end
    }


def await_transactions(bootstrap: str, prefix: str, options: Mapping[str, str]) -> None:
    """Wait until no open transaction holds back the end of a state topic."""
    deadline = time.monotonic() + 2 * TRANSACTION_TIMEOUT_MS / 1000
    while open_ends := open_transactions(bootstrap, prefix, (*STATE_TOPICS, COMMITS), options):
        if time.monotonic() > deadline:
            (topic, partition), offset = next(iter(open_ends.items()))
            raise RecoveryRefused(
                f"an open transaction holds back {topic}-{partition} at offset {offset}; "
                f"end it with: {abort_command(bootstrap, topic, partition, offset)}"
            )
        time.sleep(0.05)


def abort_command(bootstrap: str, topic: str, partition: int, offset: int) -> str:
    """Kafka's own command that ends the transaction which began at this offset."""
    return (
        f"kafka-transactions.sh --bootstrap-server {bootstrap} abort --topic {topic} "
        f"--partition {partition} --start-offset {offset}"
    )


def parse_marker(latest: Latest, prefix: str, cell: str) -> dict[str, Any] | None:
    """The cell's commit marker. Raises RecoveryRefused where it is none of ours."""
    value = latest[COMMITS].get(cell.encode())
    if value is None:
        return None
    try:
        marker: dict[str, Any] = orjson.loads(value)
        refuse_newer_format(marker)
        for name in ("now", "digest", "positions", "clocks", "sequence", "writer_epoch"):
            marker[name]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecoveryRefused(
            f"the commit marker of cell '{cell}' on {prefix}{COMMITS} cannot be read: "
            f"{type(error).__name__}: {error}"
        ) from error
    return marker


def refuse_newer_format(marker: Mapping[str, Any]) -> None:
    """Raise StateTooNew for a state of a format that this version does not read."""
    if marker.get("format", STATE_FORMAT) > STATE_FORMAT:
        raise StateTooNew(
            f"the commit marker has format {marker['format']}, this version reads formats up to "
            f"{STATE_FORMAT}"
        )


def _rebuild(
    bootstrap: str,
    prefix: str,
    options: Mapping[str, str],
    configuration: Configuration,
    latest: Latest,
    now: int,
) -> Rebuilt:
    try:
        return rebuild(configuration, latest, now)
    except RecordUnreadable as error:
        place = _find_place(bootstrap, prefix, options, error.topic, error.key)
        raise RecoveryRefused(
            f"{place} (key {error.key}) cannot be read: {error.why}. {REPAIR}"
        ) from error
    except StateContradictory as error:
        raise RecoveryRefused(f"{error}. {REPAIR}") from error


def _find_place(
    bootstrap: str, prefix: str, options: Mapping[str, str], topic: str, key: str
) -> str:
    """Where the last record of a key lies: all is read again, to be able to name it."""
    with CommittedReader(bootstrap, prefix, [topic], options=options) as reader:
        found = [record for record in reader.read_to_end() if record.key == key][-1]
    return f"{full_name(topic, prefix)}-{found.partition} offset {found.offset}"


def _check_partitions(marker: Mapping[str, Any], partitions: Mapping[str, int]) -> None:
    compacted = {topic.name for topic in CATALOGUE if topic.cleanup == "compact"}
    for topic, count in marker["output_partitions"].items():
        if topic in compacted and partitions[topic] != count:
            raise RecoveryRefused(
                f"{topic} had {format_count(count, 'partition')} and now has "
                f"{partitions[topic]}: records of one key would be in two partitions; "
                "restore the count or start under another prefix"
            )


def _positions(
    bootstrap: str,
    prefix: str,
    options: Mapping[str, str],
    marker: Mapping[str, Any] | None,
    topics: Iterable[str],
) -> tuple[Positions, tuple[Gap, ...]]:
    """Find the next offset of every source partition, and the gaps before them. New partitions
    start at their beginning, as does input after a gap."""
    consumer: Consumer = make_reader(bootstrap, options)
    known = marker["positions"] if marker else {}
    positions: Positions = {}
    gaps = []
    try:
        for topic in topics:
            name = full_name(topic, prefix)
            partitions = consumer.list_topics(name, CONNECT_TIMEOUT_SECONDS).topics[name].partitions
            positions[topic] = {}
            for partition in sorted(partitions):
                first, end = read_watermarks(consumer, name, partition)
                position = known.get(topic, {}).get(str(partition), first)
                if not first <= position <= end:
                    # Reports of loads are kept for an hour; what they said is said anew.
                    if topic != NODE_LOADS:
                        gaps.append(Gap(name, partition, position, first, end))
                    position = first
                positions[topic][partition] = position
    finally:
        consumer.close()
    return positions, tuple(gaps)
