"""One step of the live bridge: from a look, the tables and its memory to actions and messages.

Nothing is done on doubt: without a controller in Kafka the step is empty. Actions come in the order
in which they are safe: throttles, reassignments, elections, then the throttles that are needed no
more. Acknowledgements are said of what the look has shown, never of what was just asked for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from schemas.base import Message
from schemas.inputs import NodeMessage
from schemas.outputs import Move
from streaming.kafka_bridge.actions import Action, Carried, ChangeEntries, Elect, Reassign, SetRates
from streaming.kafka_bridge.desired import AckMessage, Desired, Standing, ack_key, find_desired
from streaming.kafka_bridge.disk_loads import INTERVAL_MS, find_load_reports, is_due
from streaming.kafka_bridge.importer import ImportOptions
from streaming.kafka_bridge.inventory import (
    WORD,
    StreamMessage,
    find_inventory,
    find_missing_streams,
    find_stale_streams,
)
from streaming.kafka_bridge.membership import (
    MembershipOptions,
    find_membership,
    find_silent_brokers,
    word_of,
)
from streaming.kafka_bridge.memory import ANSWER_TIMEOUT_MS, AckKey, Memory, advance_since
from streaming.kafka_bridge.observations import (
    CONFIRM_INTERVAL_MS,
    describe_failures,
    find_awaited,
    find_foreign_factors,
    find_foreign_lists,
    find_losses,
    find_lost,
    find_observations,
    find_offline,
    find_sync_changes,
    find_sync_observations,
)
from streaming.kafka_bridge.pacing import (
    IN_FLIGHT_MAX,
    ThrottleChanges,
    choose_starts,
    claim,
    find_claims,
    find_throttle_changes,
    next_in_flight_max,
)
from streaming.kafka_bridge.progress import (
    find_copying,
    find_progress,
    find_sizes_interval_ms,
)
from streaming.kafka_bridge.snapshot import Snapshot
from streaming.kafka_bridge.tables import Tables, is_open

# Acknowledgements are answered by the move's next record; one that was refused is said again.
ACK_TIMEOUT_MS = 2 * ANSWER_TIMEOUT_MS
# A line of a log.
_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class BridgeOptions:
    """The options of the live bridge.

    `imports` selects topics and reads racks. `in_flight_max` bounds the partitions in flight on a
    broker. `rate` throttles moves that name none, in bytes a second.
    """

    imports: ImportOptions = field(default_factory=ImportOptions)
    membership: MembershipOptions = field(default_factory=MembershipOptions)
    in_flight_max: int = IN_FLIGHT_MAX
    rate: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """The actions and messages of one look, and `notes` for people.

    `memory` holds once the messages are delivered. Where they are not, the earlier memory stays,
    and they are said again.
    """

    actions: tuple[Action, ...]
    messages: tuple[Message, ...]
    memory: Memory
    desired: tuple[Desired, ...] = ()
    notes: tuple[str, ...] = ()

    def remember(self, carried: Carried) -> Memory:
        """Return the memory for the next step, with the answers to the actions."""
        return replace(self.memory, refused=carried.refused)

    def remember_look(self, before: Memory) -> Memory:
        """Return the memory for the next step where nothing was done and nothing was said."""
        return replace(self.memory, words=before.words, said=before.said, refused={})


def find_step(snapshot: Snapshot, tables: Tables, memory: Memory, options: BridgeOptions) -> Step:
    """Find the next step; a pure function, so that it may be asked as often as one likes."""
    if snapshot.controller is None:
        why = "Kafka has no controller: nothing is moved, and nobody is said to be down"
        return Step((), (), replace(memory, looked_at=snapshot.at), notes=(why,))
    seen = _observe(snapshot, tables, memory, options)
    stale = find_stale_streams(snapshot, tables)
    desired = tuple(find_desired(snapshot, tables, seen, stale))
    foreign = find_foreign_lists(desired, snapshot)
    copying, unsynced = find_copying(desired), find_sync_changes(desired, snapshot, tables, seen)
    unobserved = memory.unobserved_ms(snapshot.at)
    seen = replace(
        seen,
        stale_since=advance_since(seen.stale_since, stale, snapshot.at, unobserved),
        foreign_since=advance_since(seen.foreign_since, foreign, snapshot.at, unobserved),
        unsynced_since=advance_since(seen.unsynced_since, unsynced, snapshot.at, unobserved),
        copying_since=advance_since(
            seen.copying_since, [each.move_id for each in copying], snapshot.at, unobserved
        ),
        sizes_interval_ms=_find_sizes_interval_ms(copying, snapshot, options),
    )
    brokers = find_membership(snapshot, tables, seen, options.membership, options.imports)
    factors = find_foreign_factors(snapshot, tables, seen)
    topics = find_inventory(snapshot, tables, seen, options.imports, stale, factors)
    observed: list[AckMessage] = [
        *find_observations(snapshot, tables, seen, factors),
        *find_awaited(snapshot, tables, stale),
        *find_sync_observations(snapshot, tables, seen),
        *find_losses(desired, snapshot, tables, seen),
    ]
    acks = (
        *_acks_to_say([*_acks(desired), *observed], snapshot, tables, seen),
        *find_progress(copying, snapshot, tables, seen),
    )
    loads: tuple[Message, ...] = ()
    if options.membership.counts_disks and is_due(snapshot, seen):
        loads = tuple(find_load_reports(snapshot, tables))
        seen = replace(seen, loads_sized_at=snapshot.sized_at)
    words = _words(brokers.messages, topics.messages, snapshot, seen)
    said = _said(acks, snapshot, tables, seen)
    starts = choose_starts(desired, snapshot, seen.in_flight_max or options.in_flight_max)
    throttles = _throttles(desired, starts, snapshot, tables, seen, options.rate)
    claims = claim(seen.claims, throttles.add_entries)
    return Step(
        tuple(_in_order(desired, starts, throttles)),
        (*brokers.messages, *topics.messages, *acks, *loads),
        replace(seen, words=words, said=said, claims=claims),
        desired,
        (*brokers.notes, *topics.notes, *describe_failures(snapshot, seen), *_notes(desired)),
    )


def _find_sizes_interval_ms(
    copying: Sequence[Move], snapshot: Snapshot, options: BridgeOptions
) -> int | None:
    """Find how old sizes may become: for reports of progress, of loads, and of lost replicas."""
    known = [INTERVAL_MS] if options.membership.counts_disks else []
    known += [CONFIRM_INTERVAL_MS] if any(True for _ in find_offline(snapshot)) else []
    wanted = find_sizes_interval_ms(copying)
    return min([*known, *([] if wanted is None else [wanted])], default=None)


def _notes(desired: Sequence[Desired]) -> list[str]:
    """Tell of the partitions that somebody else has a hand in, and of moves that have to wait."""
    said = {
        Standing.YIELD: "reassigned by somebody else, which is waited for",
        Standing.FOREIGN: "changed by somebody else; the reconciler's record is to follow",
    }
    notes = []
    for standing, what in said.items():
        found = [f"{each.key[0]}-{each.key[1]}" for each in desired if each.standing is standing]
        if found:
            count = "1 partition is" if len(found) == 1 else f"{len(found)} partitions are"
            notes.append(f"{count} {what}: {', '.join(found[:_NAMED_MAX])}")
    waiting: dict[str, list[str]] = {}
    for each in desired:
        # Without a target it waits for another record of the reconciler, which comes by itself.
        if each.standing is Standing.WAIT and each.target and each.move and is_open(each.move):
            waiting.setdefault(each.why, []).append(f"{each.key[0]}-{each.key[1]}")
    for why, names in sorted(waiting.items()):
        count = "1 move waits" if len(names) == 1 else f"{len(names)} moves wait"
        notes.append(f"{count}, {why}: {', '.join(names[:_NAMED_MAX])}")
    return notes


def _observe(snapshot: Snapshot, tables: Tables, memory: Memory, options: BridgeOptions) -> Memory:
    """Return the memory with what this look has shown."""
    at, unobserved = snapshot.at, memory.unobserved_ms(snapshot.at)
    silent = find_silent_brokers(snapshot, tables)
    missing = find_missing_streams(snapshot, tables, options.imports)
    return replace(
        memory,
        looked_at=at,
        silent_since=advance_since(memory.silent_since, silent, at, unobserved),
        missing_since=advance_since(memory.missing_since, missing, at, unobserved),
        lost_since=advance_since(memory.lost_since, find_lost(snapshot), at, unobserved),
        in_flight_max=next_in_flight_max(memory.in_flight_max, snapshot, options.in_flight_max),
        claims=find_claims(snapshot, tables, memory.claims, options.rate),
        # Who has answered is read from the tables; what is too old to be answered is forgotten.
        words={
            word: said_at
            for word, said_at in memory.words.items()
            if 0 <= at - said_at < ANSWER_TIMEOUT_MS and not _is_answered(word, said_at, tables)
        },
    )


def _is_answered(word: tuple[str, str], said_at: int, tables: Tables) -> bool:
    """Return whether the tables show the answer: words carry the time as their sequence."""
    if word[0] == WORD:
        decision = tables.decisions.get(word[1])
        return decision is not None and decision.sequence >= said_at
    view = tables.nodes.get(word[1])
    if view is None:
        return False
    reported = -1 if view.reported is None else view.reported.sequence
    return max(view.sequence, reported) >= said_at


def _acks(desired: Sequence[Desired]) -> Iterator[AckMessage]:
    for each in desired:
        yield from each.acks


def _acks_to_say(
    acks: Sequence[AckMessage], snapshot: Snapshot, tables: Tables, memory: Memory
) -> tuple[AckMessage, ...]:
    """Leave out what was said and may still be answered."""

    def is_due(message: AckMessage) -> bool:
        said_at = memory.said.get(ack_key(message, tables))
        return said_at is None or not 0 <= snapshot.at - said_at < ACK_TIMEOUT_MS

    return tuple(each for each in acks if is_due(each))


def _said(
    acks: Sequence[AckMessage], snapshot: Snapshot, tables: Tables, memory: Memory
) -> dict[AckKey, int]:
    def is_kept(key: AckKey, said_at: int) -> bool:
        return key[0] in tables.moves or 0 <= snapshot.at - said_at < ACK_TIMEOUT_MS

    kept = {key: said_at for key, said_at in memory.said.items() if is_kept(key, said_at)}
    return kept | {ack_key(each, tables): snapshot.at for each in acks}


def _words(
    brokers: Sequence[NodeMessage],
    topics: Sequence[StreamMessage],
    snapshot: Snapshot,
    memory: Memory,
) -> dict[tuple[str, str], int]:
    new = [word_of(each) for each in brokers] + [(WORD, each.stream) for each in topics]
    return {**memory.words, **dict.fromkeys(new, snapshot.at)}


def _throttles(
    desired: Sequence[Desired],
    starts: Sequence[Desired],
    snapshot: Snapshot,
    tables: Tables,
    memory: Memory,
    rate: int | None,
) -> ThrottleChanges:
    started = {each.key for each in starts}
    running = [replace(d, adding=()) for d in desired if d.running and d.key not in started]
    return find_throttle_changes([*running, *starts], snapshot, tables, rate, memory.claims)


def _in_order(
    desired: Sequence[Desired], starts: Sequence[Desired], throttles: ThrottleChanges
) -> list[Action]:
    cancelled = [each.key for each in desired if each.standing is Standing.CANCEL]
    targets = {each.key: each.target for each in starts} | dict.fromkeys(cancelled)
    elected = [each.key for each in desired if each.elects]
    found: list[Action] = []
    if throttles.set_rates:
        found.append(SetRates(throttles.set_rates))
    if throttles.add_entries:
        found.append(ChangeEntries(throttles.add_entries))
    if targets:
        found.append(Reassign(targets))
    if elected:
        found.append(Elect(elected))
    if throttles.remove_entries:
        found.append(ChangeEntries(throttles.remove_entries, guards=False))
    if throttles.remove_rates:
        found.append(SetRates(throttles.remove_rates, guards=False))
    return found
