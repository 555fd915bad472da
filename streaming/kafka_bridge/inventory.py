"""Keeps the reconciler's streams equal to Kafka's topics: created, extended, altered, dropped.

A topic is adopted with the lists that it has, and its topic id as the stream's `uid`. Its
replication factor is the stream's from then on, unless somebody else changes it in Kafka; policy
and quorum follow the options and `min.insync.replicas`. One word on a stream at a time.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from schemas import limits
from schemas.inputs import StreamAltered, StreamCreated, StreamDropped
from schemas.outputs import Decision, Outcome, StreamSpec
from streaming.kafka_bridge.importer import (
    ImportOptions,
    is_wanted,
    policy_of,
    replication_factor,
)
from streaming.kafka_bridge.memory import Memory
from streaming.kafka_bridge.snapshot import Snapshot, Topic
from streaming.kafka_bridge.tables import Tables, is_called_off, is_of

StreamMessage = StreamCreated | StreamAltered | StreamDropped

# Of a record: headers, the spec and its policy without the lists.
SPEC_BYTES_MAX = 8 * 1024
WORD = "stream"


@dataclass(frozen=True, slots=True)
class Inventory:
    """Messages about topics for the reconciler, and notes for people."""

    messages: tuple[StreamMessage, ...]
    notes: tuple[str, ...]


def find_stale_streams(snapshot: Snapshot, tables: Tables) -> set[str]:
    """Find the streams that do not describe the topic of their name: nothing is moved in them.

    The topic was made anew, or has fewer partitions than the stream has shards. A stream that has
    no `uid` was not made by a bridge: its name is all that identifies it.
    """
    stale = set()
    for decision in tables.living_streams():
        topic = snapshot.topics.get(decision.stream)
        if topic is None:
            continue
        if _is_another(topic, decision) or len(topic.partitions) < decision.spec.shards:
            stale.add(decision.stream)
    return stale


def find_missing_streams(snapshot: Snapshot, tables: Tables, options: ImportOptions) -> set[str]:
    """Find the streams that have no topic, or one that is not selected any more.

    One that may not be described is doubtful, and not among them.
    """
    return {
        each.stream
        for each in tables.living_streams()
        if each.stream not in snapshot.hidden
        if each.stream not in snapshot.topics
        or not is_wanted(snapshot.topics[each.stream], options)
    }


def find_inventory(
    snapshot: Snapshot,
    tables: Tables,
    memory: Memory,
    options: ImportOptions,
    stale: Collection[str],
    factors: Mapping[str, int] | None = None,
) -> Inventory:
    """Find what the reconciler has to be told of topics.

    The times in `memory` have to be those of this snapshot: a stream whose topic is missing for
    long enough is dropped, and one that is stale gives way to the topic's. `factors`: the
    replication factors that somebody else has given to topics, by stream.
    """
    racks = any(broker.rack for broker in snapshot.brokers.values())
    messages: list[StreamMessage] = []
    notes = _describe_hidden(snapshot)
    names = {topic.name for topic in snapshot.topics.values() if is_wanted(topic, options)}
    for name in sorted(names | {each.stream for each in tables.living_streams()}):
        decision, topic = tables.decisions.get(name), snapshot.topics.get(name)
        if memory.awaits((WORD, name), snapshot.at):
            continue
        found: StreamMessage | str | None
        if not _lives(decision):
            assert topic is not None
            found = _creation(topic, decision, snapshot, tables, options, racks)
        elif memory.is_settled(name, snapshot.at):
            assert decision is not None
            if topic is not None and name in names and _is_another(topic, decision):
                # The creation of another uid takes the place of the stream.
                found = _creation(topic, decision, snapshot, tables, options, racks)
            else:
                sequence, uid = _next_sequence(decision, snapshot), decision.spec.uid
                found = StreamDropped(stream=name, sequence=sequence, uid=uid)
        elif topic is None or name not in names or name in stale:
            continue
        else:
            assert decision is not None
            factor = (factors or {}).get(name, decision.spec.replication_factor)
            wanted = _wanted(topic, factor, options, racks)
            found = _alteration(topic, decision, snapshot, tables, wanted)
        if isinstance(found, str):
            notes.append(found)
        elif found is not None:
            messages.append(found)
    return Inventory(tuple(messages), tuple(notes))


def _describe_hidden(snapshot: Snapshot) -> list[str]:
    """Name the topics that may not be described; each is a line, so that a new one is told."""
    why = "this user lacks the right Describe on it, so that it may be there or not"
    needs = "placer topics acls --role bridge lists what a bridge needs"
    return [f"topic {name} is left alone: {why}; {needs}" for name in sorted(snapshot.hidden)]


def _is_another(topic: Topic, decision: Decision) -> bool:
    """Return whether the topic is another one than that which the stream was made of."""
    return decision.spec.uid is not None and decision.spec.uid != topic.uid


def _lives(decision: Decision | None) -> bool:
    gone = (Outcome.DROPPED, Outcome.REJECTED)
    return decision is not None and decision.outcome not in gone


def _next_sequence(decision: Decision | None, snapshot: Snapshot) -> int:
    """Return a sequence above all earlier ones, also of words that have no answer yet."""
    return max(snapshot.at, 0 if decision is None else decision.sequence + 1)


def _wanted(topic: Topic, factor: int, options: ImportOptions, racks: bool) -> dict[str, Any]:
    return {
        "replication_factor": factor,
        "quorum": min(topic.min_in_sync, factor),
        **policy_of(topic, options, racks=racks),
    }


def _creation(
    topic: Topic,
    decision: Decision | None,
    snapshot: Snapshot,
    tables: Tables,
    options: ImportOptions,
    racks: bool,
) -> StreamCreated | str | None:
    """Make the request that adopts a topic; a sentence where the topic cannot be adopted."""
    if not limits.ID.match(topic.name):
        return f"topic {topic.name} is not adopted: names have {limits.ID_LENGTH_MAX} characters"
    if len(topic.partitions) > limits.SHARDS_MAX:
        count = len(topic.partitions)
        return f"topic {topic.name} has {count} partitions, {limits.SHARDS_MAX} can be adopted"
    if not _nodes_are_known(topic, tables) or _still_undoes(topic, tables):
        return None
    wanted = _wanted(topic, replication_factor(topic.partitions), options, racks)
    lists = _lists_that_fit(topic, 0)
    refusal = _standing_refusal(decision, wanted, len(lists))
    if refusal is not None:
        return f"topic {topic.name} is not adopted: {refusal}"
    return StreamCreated(
        stream=topic.name,
        sequence=_next_sequence(decision, snapshot),
        shards=len(lists),
        replicas=lists,
        uid=topic.uid,
        **wanted,
    )


def _standing_refusal(decision: Decision | None, wanted: dict[str, Any], shards: int) -> str | None:
    """Return why the same request was refused before, if asking again would not help.

    A broker that was unknown then is known by now.
    """
    if decision is None or decision.outcome is not Outcome.REJECTED:
        return None
    unknown = any(reason.code == "NODE_UNKNOWN" for reason in decision.reasons)
    if unknown or not _asks_for(decision.spec, wanted, shards):
        return None
    return "; ".join(reason.message for reason in decision.reasons)


def _alteration(
    topic: Topic,
    decision: Decision,
    snapshot: Snapshot,
    tables: Tables,
    wanted: dict[str, Any],
) -> StreamAltered | str | None:
    """Make the request that a living stream needs; a sentence where the same one was refused."""
    spec = decision.spec
    lists = _lists_that_fit(topic, spec.shards)
    if _asks_for(spec, wanted, len(lists)) or not _nodes_are_known(topic, tables):
        return None
    if decision.requested is not None and _asks_for(decision.requested, wanted, len(lists)):
        why = "; ".join(reason.message for reason in decision.reasons)
        return f"stream {topic.name} stays as it is, the change was refused: {why}"
    kept = {name: getattr(spec, name) for name in ("shard_tokens", "dimension", "ranges", "repair")}
    return StreamAltered(
        stream=topic.name,
        sequence=_next_sequence(decision, snapshot),
        shards=len(lists),
        replicas=lists if len(lists) > spec.shards else None,
        uid=spec.uid,
        **wanted,
        **kept,
    )


def _asks_for(spec: StreamSpec, wanted: dict[str, Any], shards: int) -> bool:
    """Return whether a spec is what is wanted; the number of shards only ever grows."""
    asked = (wanted["replication_factor"], wanted["quorum"], shards)
    if (spec.replication_factor, spec.quorum, spec.shards) != asked:
        return False
    if "policy" in wanted:
        return spec.placement_policies is None and spec.policy == wanted["policy"]
    # A spec has the text in compact form.
    given = spec.placement_policies
    return given is not None and _parts(given) == _parts(wanted["placement_policies"])


def _parts(policies: str) -> set[str]:
    return {"".join(part.split()) for part in policies.split(";")} - {""}


def _nodes_are_known(topic: Topic, tables: Tables) -> bool:
    """Return whether the reconciler knows every broker of the lists: it refuses others."""
    listed = {broker for each in topic.partitions for broker in each.replicas}
    return all(str(broker) in tables.nodes for broker in listed)


def _still_undoes(topic: Topic, tables: Tables) -> bool:
    """Return whether a reassignment of a move that was called off still runs in the topic."""
    return any(
        str(broker) == move.add
        for each in topic.partitions
        for broker in each.adding
        for move in tables.moves_of((topic.name, each.number))
        if is_called_off(move) and is_of(move, topic)
    )


def _lists_that_fit(topic: Topic, known: int) -> tuple[tuple[str, ...], ...]:
    """Return the replicas by shard, as many as one record holds; empty for the `known` first.

    A topic of more partitions is adopted by one creation and further alterations.
    """
    lists: list[tuple[str, ...]] = [()] * known
    left = limits.RECORD_BYTES_MAX - SPEC_BYTES_MAX - len(orjson.dumps(lists))
    for each in _rest(topic.partitions, known):
        names = tuple(map(str, each.replicas))
        left -= len(orjson.dumps(names)) + 1
        if left < 0:
            break
        lists.append(names)
    return tuple(lists)


def _rest(partitions: Sequence[Any], known: int) -> Iterator[Any]:
    return iter(partitions[known:])
