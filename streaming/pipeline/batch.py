"""Applies a micro-batch on the driver: decode, order, plan, commit.

A batch is applied in prefixes of its ordered records. Each prefix is one transaction that holds
its outputs, its journal entry and a marker with the positions reached, so that a restart goes on
exactly behind it. Spark's batch id means nothing here.
"""

import pickle
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain, groupby
from typing import Any, Protocol

import orjson

from placement.liveness import Clock, Verdict
from placement.model import (
    Action,
    Answer,
    AnswerOutcome,
    Event,
    LinksMeasured,
    LoadsReported,
    LocationResolved,
    NodeChanged,
)
from placement.state import DIGEST_VERSION
from schemas import limits
from schemas.envelope import Refusal, decode, has_unknown_fields, validate
from schemas.topics import (
    COMMITS,
    DETECTOR,
    INVENTORY,
    JOURNAL,
    NODE_LOADS,
    NODES,
)
from streaming import codec, gc_pause
from streaming.codec import OutRecord, RawRecord, RefusedRecord, configuration_body, journal_event
from streaming.errors import StreamingError
from streaming.ingest import UNKNOWN_FIELD, ShardOutput
from streaming.locations import Locator
from streaming.observability import BatchTrace, CommitSummary
from streaming.outbox import LETTERS_PER_SECOND, DeadLetterWriter, Outbox
from streaming.pipeline.load_flow import UnheardLoads
from streaming.recovery import STATE_FORMAT, Positions, Recovered

# One prefix plans at most so many events, and streams of so many shards: its records stay in
# memory until the commit, whose time must stay far below the transaction's timeout.
PREFIX_EVENTS_MAX = 1_000
PREFIX_SHARDS_MAX = 100_000
# And so many records at all: those that are refused cost little, and a flood of them no transaction
# for each thousand.
PREFIX_STEPS_MAX = 10_000
# Ticks change nothing by themselves; a marker this often keeps what a restart reads again short.
IDLE_MARKER_MS = 5_000
# Half of the record limit of the outbox leaves room for the entry's other fields.
JOURNAL_CHUNK_BYTES_MAX = 512 * 1024


class BatchRefused(StreamingError):
    """The batch does not continue where the last commit ended."""


@dataclass(frozen=True, slots=True)
class InputRecord:
    """Holds one record of the ordered input: its event, or why it is refused."""

    at: int
    topic: str
    partition: int
    offset: int
    event: Event | None = None
    refused: RefusedRecord | None = None
    raw: RawRecord | None = None

    @property
    def place(self) -> tuple[int, str, int, int]:
        """Where the record stands in the order of the batch."""
        return self.at, self.topic, self.partition, self.offset


class BatchObserver(Protocol):
    """Receives the course of the batches; see `streaming.observability.observer`."""

    def on_records_read(self, topic: str, records: int) -> None:
        """Count the records of a topic (short name) in the batch."""

    def on_loads_read(self, lag_ms: int) -> None:
        """The batch has reports of loads; those of some partition are at least so old."""

    def on_records_ignored(self, counts: Mapping[str, int]) -> None:
        """Count the records that changed nothing, by reason."""

    def on_commit(self, commit: CommitSummary) -> None:
        """A prefix has been committed."""


class BatchApplier:
    """Applies micro-batches to the reconciler and commits what they decide."""

    def __init__(
        self,
        recovered: Recovered,
        outbox: Outbox,
        cell: str,
        partitions: dict[str, int],
        observer: BatchObserver | None = None,
        locator: Locator | None = None,
        letters_per_second: int = LETTERS_PER_SECOND,
        instance: str | None = None,
    ) -> None:
        """`instance`: the id of this process, for whoever reads its markers."""
        self._reconciler = recovered.reconciler
        self._configuration = configuration_body(recovered.configuration)
        self._outbox = outbox
        self._trace = BatchTrace()
        self._observer = observer
        self._locator = locator
        self._letters = DeadLetterWriter(letters_per_second)
        self._cell = cell
        self._partitions = partitions
        self._positions: Positions = recovered.positions
        self._clocks = recovered.clocks
        self._sequence = self._journaled = recovered.sequence
        self._unheard = UnheardLoads()
        self._marked_at = 0
        # Never back: a state that was followed may not have heard of the last idle markers.
        self._now = recovered.now
        self._followed = recovered.followed
        self._instance, self._version = instance, version("placement-reconciler")
        self.writer_epoch = recovered.writer_epoch + 1
        self.tick_seen, self.records_read = -1, 0
        self.ignored, self.handed_over = recovered.ignored, False
        # Whether the state is that of the last commit.
        self.is_sound = True

    @property
    def positions(self) -> Positions:
        """Next offset by topic (short name) and partition behind the last batch."""
        return self._positions

    @property
    def awaits_time(self) -> bool:
        """Return whether time alone may decide something: a node may fall silent, a move expire."""
        return self._reconciler.awaits_time

    def take_over(self) -> None:
        """Commit a marker of this writer's epoch: from here on no older writer has it too. The
        journal says with it what configuration decides from here on."""
        self._commit([], [], self._now, True, has_changes=True, first=True)

    def release(self) -> None:
        """Commit the last marker of this writer, so that a standby takes over at once."""
        self._commit([], [], self._now, True, has_changes=False, released=True)

    def apply(
        self, payloads: Iterable[bytes], caught_up: bool, trace: BatchTrace | None = None
    ) -> int:
        """Apply one micro-batch, given as the operators' payloads; see `apply_outputs`."""
        return self.apply_outputs([pickle.loads(p) for p in payloads], caught_up, trace)

    @gc_pause.pause_gc()
    def apply_outputs(
        self, outputs: Sequence[ShardOutput], caught_up: bool, trace: BatchTrace | None = None
    ) -> int:
        """Apply one micro-batch; returns the commits made. Batches of several queries may follow
        each other in any order, each behind the last one of its own topics.

        Raises BatchRefused or OutboxFailed, or what a strategy of a user raises; then no other
        batch is taken.
        """
        if not self.is_sound:
            raise BatchRefused("a batch before has failed: a restart begins at the last commit")
        self.is_sound, self._trace = False, trace or BatchTrace()
        self._check_start(outputs)
        latest = max((s.last_at for each in outputs for s in each.stretches), default=0)
        self._count_read(outputs, latest)
        ignored = sum((each.ignored for each in outputs), Counter[str]())
        steps = _input_records(outputs, self._locator, ignored)
        late: list[Event] = [*self._unheard.take()]
        late += self._missed_loads(outputs)
        if self._locator is not None:
            late += self._locator.take_answers(self._now)
        self._count_ignored(ignored, max(latest, self._now))
        commits = 0
        while True:
            prefix, steps = _next_prefix(steps)
            last = not steps
            now = self._now = max(latest if last else prefix[-1].at, self._now)
            self._advance(outputs, steps)
            commits += self._apply_prefix(prefix, now, caught_up and last, late)
            late = []
            if last:
                break
        self._note_tick(outputs)
        self.is_sound = True
        return commits

    def _apply_prefix(
        self, prefix: Sequence[InputRecord], now: int, caught_up: bool, late: Sequence[Event] = ()
    ) -> int:
        """Apply a prefix; `late` are events that come with no record, before it."""
        planned: list[InputRecord | None] = [None] * len(late)
        planned += [step for step in prefix if step.event is not None]
        events = [*late, *(step.event for step in prefix if step.event is not None)]
        began = time.perf_counter()
        ready = self._reconciler.apply(events, now, caught_up)
        planned_at = time.perf_counter()
        refused = [step.refused for step in prefix if step.refused is not None]
        for each in ready.refused:
            step, event = planned[each.index], events[each.index]
            if isinstance(event, LoadsReported):
                self._unheard.keep(event)
            if step is not None and step.raw is not None:
                refused.append(
                    RefusedRecord(step.raw, "apply", each.reason.code, each.reason.message)
                )
            else:  # What came with no record of its own, as a life that takes over at a tick.
                self._count_ignored({each.reason.code.lower(): 1}, now)
        for event in events:
            if isinstance(event, NodeChanged):
                self._unheard.note_change(event)
        letters, left_out = self._letters.make_letters(refused)
        self._count_ignored(ready.counts, now)
        has_changes = bool(events or letters) or not ready.empty
        if not has_changes and now < self._marked_at + IDLE_MARKER_MS:
            return 0
        decided = codec.ready_records(ready, self._cell, now, self._sequence + 1)
        records = chain(letters, decided)
        commit_seconds = self._commit(records, events, now, caught_up, has_changes=has_changes)
        self.handed_over |= any(map(_is_handover, ready.answers))
        if self._observer is not None:
            spent = (planned_at - began, commit_seconds)
            open_moves = self._reconciler.open_moves
            codes = tuple(each.code for each in refused)
            self._observer.on_commit(
                CommitSummary(tuple(events), ready, codes, *spent, now, open_moves, left_out)
            )
        return 1

    def _commit(
        self,
        records: Iterable[OutRecord],
        events: Sequence[Event],
        now: int,
        caught_up: bool,
        *,
        has_changes: bool,
        first: bool = False,
        released: bool = False,
    ) -> float:
        """Commit; returns the seconds that it took. Without changes there is no journal entry."""
        self._sequence += 1
        journal = self._journal(events, now, caught_up, first) if has_changes else []
        if journal:
            self._journaled = self._sequence
        written = chain(records, journal, (self._marker(now, released),))
        began = time.perf_counter()
        with self._trace.part("commit"):
            self._outbox.commit(written)
        self._marked_at = now
        return time.perf_counter() - began

    def _count_ignored(self, counts: Mapping[str, int], now: int) -> None:
        self.ignored.add(counts, now)
        if self._observer is not None:
            self._observer.on_records_ignored(counts)

    def _count_read(self, outputs: Sequence[ShardOutput], latest: int) -> None:
        # Every topology shard tells of the same stretches.
        stretches = {
            (s.topic, s.partition, s.first_offset): s for each in outputs for s in each.stretches
        }
        self.records_read = 0
        for (topic, _, _), stretch in sorted(stretches.items()):
            records = stretch.next_offset - stretch.first_offset
            self.records_read += records
            if self._observer is not None:
                self._observer.on_records_read(topic, records)
        ages = [
            latest - each.last_at
            for (topic, _, _), each in stretches.items()
            if topic == NODE_LOADS
        ]
        if ages and self._observer is not None:
            self._observer.on_loads_read(max(ages))

    def _missed_loads(self, outputs: Sequence[ShardOutput]) -> list[LoadsReported]:
        """Find words on loads that were said before and that the planner does not know.

        Of as many shards as a prefix may have; the others are said again later.
        """
        repeated = [event for each in outputs for event in each.repeated]
        found, left = [], PREFIX_SHARDS_MAX
        for event in sorted(repeated, key=lambda each: (each.at, each.node_id)):
            missed = self._reconciler.find_missed(event)
            if missed is not None and len(missed.loads) <= left:
                found.append(missed)
                left -= len(missed.loads)
        return found

    def _check_start(self, outputs: Sequence[ShardOutput]) -> None:
        for stretch in (stretch for each in outputs for stretch in each.stretches):
            expected = self._positions[stretch.topic].get(stretch.partition, 0)
            if stretch.first_offset < expected:
                raise BatchRefused(
                    f"{stretch.topic}-{stretch.partition}: the batch starts at "
                    f"{stretch.first_offset}, the last commit ended before {expected}"
                )

    def _advance(self, outputs: Sequence[ShardOutput], left: Sequence[InputRecord]) -> None:
        """Positions and clocks behind the prefix: everything read, less what is left to apply."""
        for stretch in (stretch for each in outputs for stretch in each.stretches):
            self._positions[stretch.topic][stretch.partition] = stretch.next_offset
        for step in reversed(left):
            self._positions[step.topic][step.partition] = step.offset
        for each in outputs:
            self._clocks.update(each.clocks)

    def _note_tick(self, outputs: Sequence[ShardOutput]) -> None:
        seen = [each.tick for each in outputs if each.tick and each.tick[0] == self.writer_epoch]
        self.tick_seen = max([self.tick_seen, *(number for _, number in seen)])

    def _marker(self, now: int, released: bool) -> OutRecord:
        body: dict[str, Any] = {
            "cell": self._cell,
            "sequence": self._sequence,
            "writer_epoch": self.writer_epoch,
            "now": now,
            "positions": {
                topic: {str(p): offset for p, offset in sorted(partitions.items())}
                for topic, partitions in self._positions.items()
            },
            "clocks": {str(p): _clock_body(clock) for p, clock in sorted(self._clocks.items())},
            "output_partitions": self._partitions,
            "journal_sequence": self._journaled,
            "digest": self._reconciler.digest,
            "digest_version": DIGEST_VERSION,
            "configuration": self._configuration,
            "ignored": self.ignored.body(),
            "format": STATE_FORMAT,
            "version": self._version,
        }
        body |= {} if self._instance is None else {"instance": self._instance}
        body |= {"released": True} if released else {}
        return codec.log_record("CommitMarker", COMMITS, self._cell, body, now)

    def _journal(
        self, events: Sequence[Event], now: int, caught_up: bool, first: bool
    ) -> list[OutRecord]:
        chunks: list[list[Any]] = [[]]
        size = 0
        for event in events:
            line = journal_event(event)
            length = len(orjson.dumps(line))
            if size + length > JOURNAL_CHUNK_BYTES_MAX and chunks[-1]:
                chunks.append([])
                size = 0
            chunks[-1].append(line)
            size += length
        head: dict[str, Any] = {
            "cell": self._cell,
            "sequence": self._sequence,
            "writer_epoch": self.writer_epoch,
        }
        if first:
            head["configuration"] = self._configuration
            if self._followed:
                head["rebuilt"] = False
        return [
            codec.log_record(
                "JournalEntry",
                JOURNAL,
                self._cell,
                head
                | {
                    "chunk": number,
                    "chunks": len(chunks),
                    "now": now,
                    "caught_up": caught_up,
                    "events": chunk,
                },
                now,
            )
            for number, chunk in enumerate(chunks)
        ]


def _is_handover(answer: Answer) -> bool:
    return answer.action is Action.HANDOVER and answer.outcome is AnswerOutcome.ACCEPTED


def _clock_body(clock: Clock) -> dict[str, int]:
    return {"clock_ms": clock.reading, "append_ms": clock.at}


def _count_shards(event: Event | None) -> int:
    """Count the shards of which an event may publish records."""
    if isinstance(event, LoadsReported):
        return len(event.loads)
    return min(getattr(event, "shards", 0), limits.SHARDS_MAX)


def _next_prefix(steps: list[InputRecord]) -> tuple[list[InputRecord], list[InputRecord]]:
    """The next prefix and the rest; the steps of one record stay together."""
    end, events, shards = 0, 0, 0
    while end < min(len(steps), PREFIX_STEPS_MAX) and events < PREFIX_EVENTS_MAX:
        shards += _count_shards(steps[end].event)
        if end and shards > PREFIX_SHARDS_MAX:
            break
        events += steps[end].event is not None
        end += 1
    while 0 < end < len(steps) and steps[end].place == steps[end - 1].place:
        end += 1
    return steps[:end], steps[end:]


def _input_records(
    outputs: Sequence[ShardOutput], locator: Locator | None, ignored: Counter[str]
) -> list[InputRecord]:
    """Order the batch's records that have an effect. The order is append time, made monotone within
    each partition, then topic, partition and offset. What of them is ignored is counted."""
    steps: list[InputRecord] = []
    for each in outputs:
        for partition, verdict in each.verdicts:
            step = _verdict_record(NODES, partition, verdict)
            steps += [*_location_records(step, locator), step]
        steps += [_verdict_record(DETECTOR, *found) for found in each.reported]
        steps += [_refused_record(refused) for refused in each.refused]
        steps += [_measurement_record(*measured) for measured in each.measured]
        steps += [InputRecord(e.at, NODE_LOADS, p, offset, e) for p, offset, e in each.loads]
        steps += [_message_record(raw, ignored) for raw in each.passed]
    steps.sort(key=lambda step: (step.topic, step.partition, step.offset, _node_id(step)))
    ordered: list[InputRecord] = []
    for _, group in groupby(steps, key=lambda step: (step.topic, step.partition)):
        at = 0
        for step in group:
            at = max(at, step.at)
            ordered.append(step if step.at == at else _move_to(step, at))
    # A stable sort: verdicts of one tick keep their order by node id.
    return sorted(ordered, key=lambda step: step.place)


def _location_records(step: InputRecord, locator: Locator | None) -> Iterator[InputRecord]:
    """Yield the authority's answer on a registering node, at the place of the registration."""
    if locator is not None and isinstance(step.event, NodeChanged):
        found = locator.locate(step.event)
        if found is not None:
            yield InputRecord(step.at, step.topic, step.partition, step.offset, found)


def _node_id(step: InputRecord) -> str:
    """Tells apart the verdicts of one tick, whichever topology shard they come from."""
    return step.event.node_id if isinstance(step.event, NodeChanged | LocationResolved) else ""


def _move_to(step: InputRecord, at: int) -> InputRecord:
    return InputRecord(
        at, step.topic, step.partition, step.offset, step.event, step.refused, step.raw
    )


def _verdict_record(topic: str, partition: int, verdict: Verdict) -> InputRecord:
    raw: RawRecord | None = verdict.statement.record if verdict.statement else None
    event, refused = None, None
    if verdict.refused is None or raw is None:
        event = codec.event_of_verdict(verdict)
    else:
        refused = RefusedRecord(raw, "order", verdict.refused.code, verdict.refused.message)
    return InputRecord(verdict.at, topic, partition, verdict.offset, event, refused, raw)


def _measurement_record(raw: RawRecord, measured: LinksMeasured) -> InputRecord:
    return InputRecord(raw.at, raw.topic, raw.partition, raw.offset, measured, raw=raw)


def _refused_record(refused: RefusedRecord) -> InputRecord:
    raw = refused.raw
    return InputRecord(raw.at, raw.topic, raw.partition, raw.offset, refused=refused, raw=raw)


def _message_record(raw: RawRecord, ignored: Counter[str]) -> InputRecord:
    if raw.topic == INVENTORY and not raw.value:
        gone = codec.event_of_tombstone(raw.key, raw.at)
        if gone is not None:
            return InputRecord(raw.at, raw.topic, raw.partition, raw.offset, event=gone, raw=raw)
    envelope = decode(raw.value, raw.headers)
    if isinstance(envelope, Refusal):
        return _refused_record(RefusedRecord(raw, "decode", envelope.code, envelope.detail))
    message = validate(envelope, raw.key, raw.topic)
    if isinstance(message, Refusal):
        return _refused_record(RefusedRecord(raw, "validate", message.code, message.detail))
    if has_unknown_fields(envelope):
        ignored[UNKNOWN_FIELD] += 1
    event = codec.event_of_message(message, raw.at)
    return InputRecord(raw.at, raw.topic, raw.partition, raw.offset, event=event, raw=raw)
