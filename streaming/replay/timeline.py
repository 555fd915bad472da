"""Lists what happened to one shard or node, oldest first, for `placer history`.

    journal (events, as applied)          ┐
    records of the state topics and logs  ┴─▶ Timeline, which keeps what is about its subject

The journal is kept for its retention. The state topics are compacted: within an hour or so only
the last record of each key is left, which the numbers of assignments and nodes give away. A replay
of a journal that is whole makes all records again.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any

from placement.model import (
    Event,
    Liveness,
    LocationResolved,
    MoveAcked,
    NodeChanged,
    OperatorAsked,
    ReplicaLost,
    ReplicasObserved,
    StreamAltered,
    StreamCreated,
    StreamDropped,
)
from schemas.topics import (
    ASSIGNMENTS,
    DECISIONS,
    JOURNAL,
    MOVES,
    STATE_TOPICS,
    TOPOLOGY,
    VIOLATIONS,
)
from streaming.brokers import CommittedReader, Record
from streaming.recovery import JournalEntry, read_entries
from streaming.replay.history import LOGS, check_beginning
from streaming.replay.replay import Replay, ReplayedCommit
from streaming.settings import Settings, core_configuration

# What happens at one time is told in this order: what was asked and said, then what followed.
_ORDER = (JOURNAL, TOPOLOGY, DECISIONS, ASSIGNMENTS, MOVES, VIOLATIONS)
_REQUESTS = {StreamCreated: "created", StreamAltered: "altered"}
# A node's view is told again where one of these has changed; its liveness the journal tells.
_NODE_FIELDS = ("administrative", "guard", "location", "claimed_location", "incarnation")

# In a line of a person's screen; the record has all.
_SHARDS_NAMED_MAX = 6


@dataclass(frozen=True, slots=True)
class TimelineItem:
    """Holds one event of a timeline. `at`: ms; `topic`: where it is read; `detail`: the event or
    record itself."""

    at: int
    topic: str
    said: str
    detail: Mapping[str, Any] | None = None

    def body(self) -> dict[str, Any]:
        """As `--output json` shows it."""
        return {"at": self.at, "topic": self.topic, "said": self.said, "record": self.detail}


class Timeline:
    """Takes records and journal entries, and keeps what is about its subject."""

    def __init__(self, name: str) -> None:
        """Take what the journal covers. `began`: the time of its oldest entry; `whole_from`: from
        when on no record of the subject's own is missing, None where it is unknown; `is_whole`:
        none is missing."""
        self.name = name
        self.began: int | None = None
        self.whole_from: int | None = None
        self.is_whole = False
        self._found: list[TimelineItem] = []
        self._number: int | None = None

    def items(self, since: int | None = None) -> list[TimelineItem]:
        """All of it, the oldest first; with `since` from that time on."""
        rank = {topic: place for place, topic in enumerate(_ORDER)}
        found = [each for each in self._finished_items() if since is None or each.at >= since]
        return sorted(found, key=lambda each: (each.at, rank.get(each.topic, len(rank))))

    def take_entry(self, entry: JournalEntry) -> None:
        """Take in what one commit applied."""
        if self.began is None:
            self.began = entry.now
        for event in entry.events:
            said = self._event_text(event)
            if said:
                self._add(event.at, JOURNAL, said)

    def take(self, record: Record) -> None:
        """Take in a record of an output topic."""
        said = self._record_text(record)
        if said:
            self._add(record.timestamp_ms, record.topic, said, record.value)

    def _finished_items(self) -> list[TimelineItem]:
        return self._found

    def _add(self, at: int, topic: str, said: str, detail: Mapping[str, Any] | None = None) -> None:
        self._found.append(TimelineItem(at, topic, said, detail))

    def _event_text(self, event: Event) -> str | None:
        raise NotImplementedError

    def _record_text(self, record: Record) -> str | None:
        raise NotImplementedError

    def _note_number(self, number: int, at: int) -> None:
        """Note that the subject's own record of this number is there; they rise by one."""
        if self._number is None or number not in (self._number, self._number + 1):
            self.whole_from, self.is_whole = at, number == 1
        self._number = number


class ShardTimeline(Timeline):
    """Collects the events of one shard."""

    def __init__(self, stream: str, shard: int) -> None:
        super().__init__(f"{stream}/{shard}")
        self._stream, self._shard = stream, shard

    def _event_text(self, event: Event) -> str | None:
        if isinstance(event, MoveAcked | ReplicaLost):
            return self._ack_text(event)
        if isinstance(event, ReplicasObserved):
            return self._observed_text(event)
        if isinstance(event, StreamDropped) and event.stream == self._stream:
            return f"stream {event.stream} dropped (sequence {event.sequence})"
        if isinstance(event, StreamCreated | StreamAltered) and event.stream == self._stream:
            asked = f"{event.shards} shards, replication factor {event.replication_factor}"
            what = _REQUESTS[type(event)]
            return f"stream {event.stream} {what} (sequence {event.sequence}): {asked}"
        return None

    def _ack_text(self, event: MoveAcked | ReplicaLost) -> str | None:
        """Describe an executor's message about the shard."""
        if (event.stream, event.shard) != (self._stream, self._shard):
            return None
        why = f": {event.reason}" if event.reason else ""
        if isinstance(event, ReplicaLost):
            return f"executor: the replica on {event.node_id} is lost{why}"
        which = "its open move" if event.move_id is None else f"move {event.move_id}"
        return f"executor: {event.kind} {which}{why}"

    def _observed_text(self, event: ReplicasObserved) -> str | None:
        """Describe what an executor found of the shard."""
        lists = (event.replicas, *(event.following or ()))
        place = self._shard - event.shard
        if event.stream != self._stream or not 0 <= place < len(lists):
            return None
        led = f", led by {event.leader}" if event.leader else ""
        return f"executor: found replicas on {', '.join(lists[place]) or 'no node'}{led}"

    def _record_text(self, record: Record) -> str | None:
        value, mine = record.value, record.key == self.name
        if record.topic == DECISIONS and record.key == self._stream:
            return _decision_text(value)
        if record.topic == ASSIGNMENTS and mine:
            if value is not None:
                self._note_number(int(value["epoch"]), record.timestamp_ms)
            return _assignment_text(value)
        if record.topic == VIOLATIONS and mine:
            return _violations_text(value)
        if value is None:
            return None
        if record.topic == MOVES:
            here = (value["stream"], value["shard"]) == (self._stream, self._shard)
            return _move_text(value) if here else None
        if record.topic in LOGS:
            here = value.get("subject") in (self.name, self._stream)
            return _alert_text(value) if here else None
        return None


class NodeTimeline(Timeline):
    """Collects the events of one node. Replicas received and given up are summed up by commit."""

    def __init__(self, node: str) -> None:
        super().__init__(node)
        self._place = ""
        self._view: dict[str, Any] | None = None
        self._held: set[str] = set()
        # Shards that came and went, by the time of the commit.
        self._came: dict[int, list[str]] = {}
        self._went: dict[int, list[str]] = {}

    def _event_text(self, event: Event) -> str | None:
        if isinstance(event, OperatorAsked):
            return _order_text(event) if self._is_reached(event.target) else None
        if isinstance(event, MoveAcked) or getattr(event, "node_id", None) != self.name:
            return None
        if isinstance(event, NodeChanged):
            return self._change_text(event)
        if isinstance(event, LocationResolved):
            stands = event.location or f"nowhere that is known: {event.reason}"
            return f"{event.source} says that it stands at {stands}"
        if isinstance(event, ReplicaLost):
            why = f": {event.reason}" if event.reason else ""
            return f"executor: its replica of {event.stream}/{event.shard} is lost{why}"
        return None

    def _change_text(self, event: NodeChanged) -> str | None:
        if event.attributes is not None:
            self._place = event.attributes.location
            where = self._place or "no location"
            return f"registered, incarnation {event.incarnation}, at {where}"
        if event.location is not None:
            self._place = event.location
            return f"says that it stands at {event.location or 'no location'}"
        if event.liveness is Liveness.UNREGISTERED:
            return f"unregistered, incarnation {event.incarnation}"
        return f"liveness {event.liveness}, incarnation {event.incarnation}"

    def _is_reached(self, target: str) -> bool:
        return target == self.name or (
            target.startswith("/") and f"{self._place}/".startswith(f"{target}/")
        )

    def _record_text(self, record: Record) -> str | None:
        value = record.value
        if record.topic == TOPOLOGY and record.key == self.name:
            return self._note_view(value)
        if record.topic == ASSIGNMENTS:
            self._note_holding(record)
        if value is None:
            return None
        ends = map(value.get, ("remove", "add", "leader")) if record.topic == MOVES else ()
        if self.name in ends:
            said = _move_text(value)
            return said and f"{value['stream']}/{value['shard']}: {said}"
        if record.topic in LOGS and self.name in (value.get("subject"), value.get("target")):
            return _alert_text(value)
        return None

    def _note_view(self, value: dict[str, Any] | None) -> str | None:
        before, self._view = self._view, value
        if value is None:
            return "forgotten: it is in no list any more"
        self._place = value["location"]
        if before is None:
            stands = f"{value['status']} at {value['location'] or 'no location'}"
            return None if value["revision"] == 1 else f"revision {value['revision']}: {stands}"
        changes = [
            f"{name} {before.get(name) or 'none'} -> {value.get(name) or 'none'}"
            for name in _NODE_FIELDS
            if before.get(name) != value.get(name)
        ]
        return ", ".join(changes) or None

    def _note_holding(self, record: Record) -> None:
        """Note whether a shard came to the node with this assignment, or left it."""
        key = record.key or ""
        holds = record.value is not None and self.name in record.value["replicas"]
        if holds == (key in self._held):
            return
        (self._held.add if holds else self._held.discard)(key)
        (self._came if holds else self._went).setdefault(record.timestamp_ms, []).append(key)

    def _finished_items(self) -> list[TimelineItem]:
        changes = [("received", self._came), ("gave up", self._went)]
        return self._found + [
            TimelineItem(at, ASSIGNMENTS, f"{what} {_name_shards(keys)}", {"shards": keys})
            for what, groups in changes
            for at, keys in groups.items()
        ]


def read_timeline(settings: Settings, timeline: Timeline, *, again: bool) -> None:
    """Feed a timeline from the topics. `again`: the records are those that a replay of the journal
    gives. Raises JournalShortened, JournalDamaged, BrokerUnreachable, TopicMissing."""
    bootstrap, prefix = settings.kafka.bootstrap_servers, settings.topics.prefix
    options = settings.resolved_kafka_options()
    if not again:
        topics = (*STATE_TOPICS, *LOGS)
        with CommittedReader(bootstrap, prefix, topics, options=options) as outputs:
            for record in outputs.records_to_end():
                timeline.take(record)
    with CommittedReader(bootstrap, prefix, [JOURNAL], options=options) as reader:
        if again:
            check_beginning(reader.bounds(JOURNAL), None)
        entries = read_entries(_skip_incomplete_entry(reader.records_to_end()), settings.cell)
        if not again:
            for entry in entries:
                timeline.take_entry(entry)
            return
        add_replay(timeline, Replay(settings.cell, core_configuration(settings), None).run(entries))


def add_replay(timeline: Timeline, replayed: Iterable[ReplayedCommit]) -> None:
    """Feed the entries of a whole journal and the records that they give."""
    for each in replayed:
        timeline.take_entry(each.entry)
        for number, out in enumerate(each.records):
            headers = tuple(out.headers)
            timeline.take(
                Record.of(out.topic, 0, number, each.entry.now, out.key, out.value, headers)
            )
    timeline.is_whole = True


def _skip_incomplete_entry(records: Iterable[Record]) -> Iterator[Record]:
    """Retention cuts the journal anywhere: what is left of an entry without its first chunk is
    passed over."""
    return dropwhile(lambda record: bool(record.value and record.value.get("chunk")), records)


def _name_shards(keys: list[str]) -> str:
    """The first of many shards, and how many there are."""
    few = ", ".join(keys[:_SHARDS_NAMED_MAX])
    left = len(keys) - _SHARDS_NAMED_MAX
    return few + (f" and {left} more" if left > 0 else "")


def _decision_text(value: dict[str, Any] | None) -> str:
    if value is None:
        return "decision forgotten: the name is free"
    reasons = [*value["reasons"], *value["warnings"]]
    why = f": {reasons[0]['code']} {reasons[0]['message']}" if reasons else ""
    return f"stream {value['stream']} {value['outcome']}{why}"


def _assignment_text(value: dict[str, Any] | None) -> str:
    if value is None:
        return "assignment removed"
    changes = [f"+{node}" for node in value["adding"]] + [f"-{node}" for node in value["removing"]]
    under_way = f" ({' '.join(changes)})" if changes else ""
    return f"assignment epoch {value['epoch']}: {' '.join(value['replicas'])}{under_way}"


def _move_text(value: Mapping[str, Any]) -> str | None:
    """A move's state; that its executor was reminded of it is no news."""
    if value.get("reminded"):
        return None
    way = f"{value.get('remove') or '-'} -> {value.get('add') or value.get('leader') or '-'}"
    why = value["reason"]["message"]
    return f"move {value['kind']} {way} {value['state']} ({value['cause']}): {why}"


def _violations_text(value: dict[str, Any] | None) -> str:
    if value is None:
        return "no rule is broken any more"
    said = [
        f"{each['rule']}{' in ' + each['domain'] if each.get('domain') else ''} ({each['class']}): "
        f"{each['reason']['message']}"
        for each in value["violations"]
    ]
    return f"broken: {'; '.join(said)}"


def _alert_text(value: Mapping[str, Any]) -> str:
    what, code = value.get("kind") or "answer", value["reason"]["code"]
    words = what if what == code else f"{what}: {code}"
    return f"{words} {value['reason']['message']}"


def _order_text(event: OperatorAsked) -> str:
    seen = " with the hash of its impact" if event.expected_hash else ""
    return f"operator: {event.action} {event.target}{seen}"
