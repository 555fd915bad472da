"""Says how many reassignments may run on a broker, which come next, and what throttles they need.

Concurrency rises by one a look and is halved where a live replica falls behind (additive increase,
multiplicative decrease). Throttles are derived in each look from what runs, so that a restart
neither loses nor leaves any.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from schemas.outputs import MoveCause
from streaming.kafka_bridge.admin_client import (
    FOLLOWER_ENTRIES,
    FOLLOWER_RATE,
    LEADER_ENTRIES,
    LEADER_RATE,
    PartitionId,
)
from streaming.kafka_bridge.desired import Desired, Standing
from streaming.kafka_bridge.memory import Claims, EntryKey
from streaming.kafka_bridge.snapshot import Partition, Snapshot
from streaming.kafka_bridge.tables import Tables
from streaming.kafka_bridge.throttling import entries_of, rates_of

# Cruise Control's `num.concurrent.partition.movements.per.broker` is 5 for large partitions, and it
# raises that to 12 by its adjuster; small partitions wait for rounds, so the bound is above both.
IN_FLIGHT_MAX = 20
_URGENCY = {cause: rank for rank, cause in enumerate(MoveCause)}

Rates = Mapping[int, Mapping[str, int | None]]
"""Throttle rates to set by broker and configuration, in bytes a second; None removes one."""
Entries = Mapping[str, Mapping[str, tuple[frozenset[str], frozenset[str]]]]
"""Throttled replicas to add and to remove, by topic and configuration."""


@dataclass(frozen=True, slots=True)
class ThrottleChanges:
    """Changes in the order in which they are made: those before the copies start, and those after
    them, entries first."""

    set_rates: Rates = field(default_factory=dict)
    add_entries: Entries = field(default_factory=dict)
    remove_entries: Entries = field(default_factory=dict)
    remove_rates: Rates = field(default_factory=dict)


# Concurrency


def next_in_flight_max(before: int | None, snapshot: Snapshot, most: int = IN_FLIGHT_MAX) -> int:
    """Return how many partitions may be in flight on a broker in this look, 1 to `most`.

    It falls while a replica on a live broker is out of sync that no reassignment is copying: the
    brokers do not keep up.
    """
    if before is None:
        return most
    return max(1, before // 2) if _count_lagging(snapshot) else min(most, before + 1)


def _count_lagging(snapshot: Snapshot) -> int:
    live = snapshot.live()
    return sum(
        bool({*each.replicas} & live - {*each.in_sync})
        for _, each in snapshot.partitions()
        if not each.is_reassigned
    )


def choose_starts(
    wanted: Iterable[Desired], snapshot: Snapshot, in_flight_max: int
) -> list[Desired]:
    """Choose the reassignments to ask for now: the most urgent first, small ones before large ones.

    A partition counts at the brokers that it is copied to and at its leader, which is copied from;
    those that somebody else reassigns count, too. What copies nothing is always chosen.
    """
    busy: Counter[int] = Counter()
    for _, partition in snapshot.reassigned():
        busy.update(_loaded(partition, partition.adding))
    chosen = []
    starts = (each for each in wanted if each.standing is Standing.START)
    for each in sorted(starts, key=lambda each: _rank(each, snapshot)):
        partition = snapshot.topics[each.key[0]].partitions[each.key[1]]
        loaded, replaced = _loaded(partition, each.adding), _loaded(partition, partition.adding)
        if each.adding and any(busy[b] - (b in replaced) >= in_flight_max for b in loaded):
            continue
        busy.subtract(replaced)
        busy.update(loaded)
        chosen.append(each)
    return chosen


def _loaded(partition: Partition, adding: Collection[int]) -> set[int]:
    if not adding:
        return set()
    return {*adding} | (set() if partition.leader is None else {partition.leader})


def _rank(each: Desired, snapshot: Snapshot) -> tuple[int, int, PartitionId]:
    urgency = -1 if each.move is None else _URGENCY[each.move.cause]
    return urgency, snapshot.size_of(*each.key) or 0, each.key


# Throttles


def find_throttle_changes(
    carried: Sequence[Desired],
    snapshot: Snapshot,
    tables: Tables,
    rate: int | None,
    claims: Claims,
) -> ThrottleChanges:
    """Find the throttles to set and to remove, so that `carried` runs throttled and nothing else.

    `carried`: what is wanted where a reassignment of ours runs or starts. `rate`: bytes a second of
    a move that names none; None for no throttle. What `claims` do not name is somebody else's, and
    left as it is.
    """
    # Without a move nobody would know the entries again.
    throttled = [
        each
        for each in carried
        if _copied_to(each) and _rate_of(each, rate) and tables.moves_of(each.key)
    ]
    wanted = {
        LEADER_ENTRIES: {
            (each.key, broker)
            for each in throttled
            for broker in {*each.sources} & _brokers_of_moves(tables, each.key)
        },
        FOLLOWER_ENTRIES: {(each.key, broker) for each in throttled for broker in _copied_to(each)},
    }
    added: dict[str, dict[str, frozenset[str]]] = {}
    removed: dict[str, dict[str, frozenset[str]]] = {}
    foreign: dict[str, set[int] | None] = {}
    wanted_now: dict[str, set[tuple[PartitionId, int]]] = {}
    for config, entries in wanted.items():
        current = entries_of(snapshot.throttles, config)
        _group(added, config, {each for each in entries if not _is_set(current, *each)})
        needed = {(config, topic, f"{number}:{broker}") for (topic, number), broker in entries}
        kept = {each for each in claims.entries if _is_reassigned(each, snapshot)}
        wanted_now[config] = entries | {_parse(each) for each in kept if each[0] == config}
        for _, topic, entry in find_set_entries(snapshot, config) & claims.entries - needed - kept:
            configs = removed.setdefault(topic, {})
            configs[config] = configs.get(config, frozenset()) | {entry}
        foreign[config] = _brokers_named(find_set_entries(snapshot, config) - claims.entries)
    return ThrottleChanges(
        _rates_to_set(throttled, snapshot, rate, claims.rates),
        {topic: {c: (e, frozenset()) for c, e in by.items()} for topic, by in added.items()},
        {topic: {c: (frozenset(), e) for c, e in by.items()} for topic, by in removed.items()},
        _rates_to_remove(wanted_now, foreign, snapshot, claims.rates),
    )


def find_claims(snapshot: Snapshot, tables: Tables, before: Claims, rate: int | None) -> Claims:
    """Find whose the throttles are that are set now; who was known to own one still does.

    After a restart an entry is ours if its partition has moves, and its broker is one of theirs or
    has a rate of ours: both are in the reconciler's tables for an hour after a move.
    """
    named = {each.rate_bytes_per_second for each in tables.moves.values()} | {rate}
    rates = before.rates | frozenset(each for each in named if each is not None)
    ours, foreign = set(), set()
    for config in (LEADER_ENTRIES, FOLLOWER_ENTRIES):
        for found in find_set_entries(snapshot, config):
            known = found in before.entries
            if known or (found not in before.foreign and _is_ours(found, snapshot, tables, rates)):
                ours.add(found)
            else:
                foreign.add(found)
    return Claims(rates, frozenset(ours), frozenset(foreign))


def claim(claims: Claims, added: Entries) -> Claims:
    """Return the claims with the entries that are about to be set."""
    new = {
        (config, topic, entry)
        for topic, configs in added.items()
        for config, (entries, _) in configs.items()
        for entry in entries
    }
    return replace(claims, entries=claims.entries | new)


def _is_ours(found: EntryKey, snapshot: Snapshot, tables: Tables, rates: Collection[int]) -> bool:
    config, topic, entry = found
    number, _, broker = entry.partition(":")
    if not (number.isdecimal() and broker.isdecimal()):
        return False
    key = (topic, int(number))
    rate_config = LEADER_RATE if config == LEADER_ENTRIES else FOLLOWER_RATE
    has_our_rate = rates_of(snapshot.throttles, rate_config).get(int(broker)) in rates
    return int(broker) in _brokers_of_moves(tables, key) or (
        has_our_rate and bool(tables.moves_of(key))
    )


def find_set_entries(snapshot: Snapshot, config: str) -> frozenset[EntryKey]:
    """Find the entries of throttled replicas that a configuration of any topic has."""
    current = entries_of(snapshot.throttles, config)
    return frozenset((config, topic, each) for topic, found in current.items() for each in found)


def _is_reassigned(found: EntryKey, snapshot: Snapshot) -> bool:
    """Return whether copies of the entry's partition still run, whoever asked for them."""
    partition = snapshot.partition(*_parse(found)[0])
    return partition is not None and partition.is_reassigned


def _parse(found: EntryKey) -> tuple[PartitionId, int]:
    """Read an entry of ours, which names one partition and one broker."""
    number, _, broker = found[2].partition(":")
    return (found[1], int(number)), int(broker)


def _brokers_named(entries: Iterable[EntryKey]) -> set[int] | None:
    """Return the brokers that entries name; None if one names every broker."""
    brokers = [entry.partition(":")[2] for _, _, entry in entries]
    return {*map(int, brokers)} if all(map(str.isdecimal, brokers)) else None


def _rate_of(each: Desired, rate: int | None) -> int | None:
    return each.rate or rate


def _copied_to(each: Desired) -> set[int]:
    """The brokers that are copied to: what runs goes on where a change of it is refused."""
    return {*each.adding, *each.running}


def _is_set(current: Mapping[str, frozenset[str]], key: PartitionId, broker: int) -> bool:
    entries = current.get(key[0], frozenset())
    return f"{key[1]}:{broker}" in entries or "*" in entries


def _group(
    found: dict[str, dict[str, frozenset[str]]],
    config: str,
    entries: Iterable[tuple[PartitionId, int]],
) -> None:
    for (topic, number), broker in entries:
        configs = found.setdefault(topic, {})
        configs[config] = configs.get(config, frozenset()) | {f"{number}:{broker}"}


def _brokers_of_moves(tables: Tables, key: PartitionId) -> set[int]:
    """Return the brokers between which the partition's moves copy or have copied."""
    moves = tables.moves_of(key)
    if not moves:
        return set()
    assignment = tables.assignments.get(key)
    names = [] if assignment is None else [*assignment.replicas]
    names += [name for each in moves for name in (each.add, each.remove) if name]
    return {int(name) for name in names if name.isdecimal()}


def _rates_to_set(
    throttled: Sequence[Desired],
    snapshot: Snapshot,
    rate: int | None,
    own_rates: Collection[int],
) -> Rates:
    found: dict[int, dict[str, int | None]] = {}
    for config, broker, wanted in sorted(_rates(throttled, rate)):
        current = rates_of(snapshot.throttles, config).get(broker)
        if not snapshot.is_live(broker) or current == wanted:
            continue
        if current is None or current in own_rates:
            found.setdefault(broker, {})[config] = wanted
    return found


def _rates(throttled: Sequence[Desired], rate: int | None) -> Iterator[tuple[str, int, int]]:
    """Yield the rate of every broker that takes part: the largest of its moves."""
    most: dict[tuple[str, int], int] = {}
    for each in throttled:
        named = _rate_of(each, rate) or 0
        for config, brokers in ((LEADER_RATE, each.sources), (FOLLOWER_RATE, _copied_to(each))):
            for broker in brokers:
                most[config, broker] = max(named, most.get((config, broker), 0))
    return ((config, broker, named) for (config, broker), named in most.items())


def _rates_to_remove(
    wanted: Mapping[str, Collection[tuple[PartitionId, int]]],
    foreign: Mapping[str, set[int] | None],
    snapshot: Snapshot,
    own_rates: Collection[int],
) -> Rates:
    """Find the rates of ours that throttle nothing any more, and no entry of somebody else's."""
    found: dict[int, dict[str, int | None]] = {}
    for config, entries in ((LEADER_RATE, LEADER_ENTRIES), (FOLLOWER_RATE, FOLLOWER_ENTRIES)):
        needed, others = {broker for _, broker in wanted[entries]}, foreign[entries]
        for broker, current in rates_of(snapshot.throttles, config).items():
            free = others is not None and broker not in others | needed
            if free and current in own_rates and snapshot.is_live(broker):
                found.setdefault(broker, {})[config] = None
    return found
