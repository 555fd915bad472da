"""Checks from the output topics alone that all promises are kept.

It knows nothing but committed records, so that it can judge a running system, a finished demo and
a test alike. What it finds wrong is a list of sentences; an empty one is the answer hoped for.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from placement.model import Configuration, MoveState, Outcome
from placement.reconciler import Reconciler
from schemas.topics import (
    ASSIGNMENTS,
    COMMITS,
    DECISIONS,
    JOURNAL,
    MEMORY,
    MOVES,
    SHARD_LOADS,
    TOPOLOGY,
    VIOLATIONS,
)
from streaming import codec
from streaming.brokers import Record
from streaming.recovery import digest_by_marker

Latest = Mapping[str, Mapping[str, dict[str, Any]]]

AUDITED = (
    TOPOLOGY,
    DECISIONS,
    ASSIGNMENTS,
    MOVES,
    VIOLATIONS,
    MEMORY,
    SHARD_LOADS,
    JOURNAL,
    COMMITS,
)


# Outcomes of streams that have no replicas.
_WITHOUT_REPLICAS = (Outcome.REJECTED, Outcome.WAITING, Outcome.DROPPED)


def latest_values(records: Iterable[Record]) -> dict[str, dict[str, dict[str, Any]]]:
    """Last value by topic and key; tombstones take their key away."""
    latest: dict[str, dict[str, dict[str, Any]]] = {topic: {} for topic in AUDITED}
    for record in records:
        held, key = latest.setdefault(record.topic, {}), record.key or ""
        if record.value is None:
            held.pop(key, None)
        else:
            held[key] = record.value
    return latest


def audit(records: Iterable[Record], configuration: Configuration) -> list[str]:
    """List the faults in the records of the `AUDITED` topics, read to their ends at rest."""
    records = list(records)
    latest = latest_values(records)
    return [
        *_find_doubled_ids(records),
        *_skipped_epochs(records),
        *_open_moves(latest),
        *_find_unplaced(latest),
        *_find_broken(latest, configuration),
    ]


def _find_doubled_ids(records: Iterable[Record]) -> Iterator[str]:
    """Ids that came twice: with another body it is a broken promise, else a doubled record."""
    bodies: dict[str, bytes | None] = {}
    for record in records:
        identity = record.headers.get("ce_id", "")
        if identity in bodies:
            same = "the same" if bodies[identity] == record.raw else "another"
            yield (
                f"{record.topic} {record.key}: id {identity} was written twice, with {same} body"
            )
        bodies[identity] = record.raw


def _skipped_epochs(records: Iterable[Record]) -> Iterator[str]:
    """Find assignments whose epoch is not one above the last. Compaction may have removed the
    first; those of a stream that was created again only have to rise."""
    epochs: dict[str, int] = {}
    dropped: set[str] = set()
    for record in records:
        if record.topic != ASSIGNMENTS or record.key is None:
            continue
        if record.value is None:
            dropped.add(record.key)
            continue
        epoch = record.value["epoch"]
        before = epochs.get(record.key, epoch - 1)
        if epoch <= before or (epoch > before + 1 and record.key not in dropped):
            yield f"{record.key}: epoch {epoch} follows {before}"
        epochs[record.key] = epoch
        dropped.discard(record.key)


def _open_moves(latest: Latest) -> Iterator[str]:
    for move in latest[MOVES].values():
        if MoveState(move["state"]).is_open:
            yield f"move {move['move_id']} of {move['stream']}/{move['shard']} is {move['state']}"


def _find_unplaced(latest: Latest) -> Iterator[str]:
    """Shards without all their replicas on different live nodes."""
    nodes = latest[TOPOLOGY]
    alive = {node_id for node_id, view in nodes.items() if view["liveness"] in ("up", "suspect")}
    for name, decision in latest[DECISIONS].items():
        if decision["outcome"] in _WITHOUT_REPLICAS:
            continue
        spec = decision["spec"]
        for shard in range(spec["shards"]):
            assignment = latest[ASSIGNMENTS].get(f"{name}/{shard}")
            held = assignment["replicas"] if assignment else []
            live = len(set(held) & alive)
            # Copies beside the replication factor have a role; restoring counts them again.
            surplus = len(held) > spec["replication_factor"] and "roles" not in (assignment or {})
            if live < spec["replication_factor"] or surplus:
                yield f"{name}/{shard}: {live} live of {spec['replication_factor']}: {held}"


def _find_broken(latest: Latest, configuration: Configuration) -> Iterator[str]:
    """The digest, and every rule of every shard, checked again from nothing."""
    marker = latest[COMMITS].get(configuration.cell)
    if marker is None:
        yield f"no commit marker of cell {configuration.cell}"
        return
    reconciler = Reconciler.restore(configuration, codec.parse_published(latest), marker["now"])
    found = digest_by_marker(reconciler, marker)
    if found != marker["digest"]:
        yield f"the state's digest is {found}, the marker says {marker['digest']}"
    for violation in reconciler.violations():
        if violation.strength == "required":
            yield f"{violation.stream}/{violation.shard}: {violation.reason.message}"
