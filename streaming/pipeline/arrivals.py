"""Knows what waits in the input topics before Spark has read it, so that Spark is asked in time.

Spark asks the broker every few milliseconds where the input ends, which costs an idle reconciler
and its broker more than all its batches. A consumer that waits in one long fetch hears of a new
record at once and asks twice a second. It decides nothing: Spark reads the records itself, and
whatever goes wrong here ends the wait.
"""

import threading
import time
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from schemas.envelope import TYPE_HEADER, type_name
from schemas.inputs import STANDBY, TICK_KEY, NodeHeartbeat
from schemas.topics import NODE_TOPICS, NODES, REQUEST_TOPICS, full_name
from streaming.brokers import (
    connect,
    make_reader,
    present_partitions,
    read_end_offsets,
    read_headers,
)
from streaming.errors import StreamingError

Positions = Mapping[str, Mapping[int, int]]
"""Next offset by short topic name and partition."""
_Place = tuple[str, int]
Ends = Mapping[_Place, int]
"""Next offset by topic and partition."""

# After a batch of more records than this the next ones are on their way, and Spark asks by itself.
SMALL_BATCH_RECORDS_MAX = 32
# Heartbeats wait for one another as long as a tick, within these bounds: a batch takes 150 ms of a
# core whatever is in it, and silence is judged by ticks. Beside 20,000 heartbeats a second a second
# instead of half of one leaves 0.15 of a core to requests.
HEARTBEATS_SECONDS_MIN, HEARTBEATS_SECONDS_MAX = 0.5, 1.0
# While ticks alone arrive and no silence is judged they are read together, so many seconds' worth.
# The application counts as behind after five.
TICKS_SECONDS_MAX = 4.0
# How long the broker keeps a fetch that finds nothing; it answers at once when a record comes.
_FETCH_WAIT_MS = 500
# Records about nodes are fetched at most so often: they come in pieces of a few, 130 a second, and
# a fetch of each takes the client and the broker 0.14 of a core. A statement is found within the
# time in which Spark reads the requests behind it.
_NODES_PAUSE_MS = 50
# How soon a stop is noticed.
_LOOK_SECONDS = 0.2
# Partitions are added once in years; the ticks for new ones begin as soon.
COUNT_SECONDS = 30.0
# Where a partition ends is known in milliseconds, and not from a broker that has died.
_ENDS_TIMEOUT_SECONDS = 2.0
# Taken from the client at once; more would keep other threads waiting for milliseconds.
_MESSAGES_MAX = 500
# What the value of a standby's tick has in it, and no other tick.
_STANDBY = f'"role":"{STANDBY}"'.encode()
_TICK = TICK_KEY.encode()
_HEARTBEAT = (TYPE_HEADER, type_name(NodeHeartbeat.__name__).encode())
# What a heartbeat has in its value that says more than that the node lives.
_STOPPING = b"stopping"


class RequestArrivals:
    """Follows the topics of requests behind the positions that the last batch reached, and
    partitions that were added since: Spark finds these when it is asked, and not before."""

    def __init__(self, bootstrap: str, prefix: str, options: Mapping[str, str]) -> None:
        """Raises BrokerUnreachable, ConnectionUntrusted, AccessRefused."""
        self._consumer = make_reader(bootstrap, options, fetch_wait_ms=_FETCH_WAIT_MS)
        self._names = [full_name(topic, prefix) for topic in REQUEST_TOPICS]
        self._prefix = prefix
        self._next: dict[_Place, int] = {}
        self._added: set[_Place] = set()
        self._counted_at = time.monotonic()

    def wait(self, positions: Positions, stopping: Callable[[], bool]) -> bool:
        """Wait for a record at or after `positions`. False if `stopping` said so before.

        An error of the connection ends it: Spark meets the same one and decides.
        """
        try:
            self._follow(positions)
            while not stopping():
                message = self._consumer.poll(_LOOK_SECONDS)
                if message is None or _is_end(message):
                    if self._find_added():
                        self._follow(positions)
                    continue
                if message.error() is not None:
                    return False
                place, offset = _place_of(message)
                self._next[place] = offset + 1
                return True
        except KafkaException:
            pass
        return False

    def _follow(self, positions: Positions) -> None:
        """Go on from `positions`; where the last wait ended there, its fetch is still under way."""
        wanted = dict.fromkeys(self._added, 0) | {
            (full_name(topic, self._prefix), partition): offset
            for topic in REQUEST_TOPICS
            for partition, offset in positions[topic].items()
        }
        if wanted != self._next:
            self._next = wanted
            self._consumer.assign([TopicPartition(*place, at) for place, at in wanted.items()])

    def _find_added(self) -> bool:
        """Look now and then for partitions that were added; returns whether there are any."""
        if time.monotonic() - self._counted_at < COUNT_SECONDS:
            return False
        self._counted_at = time.monotonic()
        try:
            found = {(n, p) for n in self._names for p in present_partitions(self._consumer, n)}
        except StreamingError:
            return False
        self._added |= (added := found - self._next.keys())
        return bool(added)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()


class _Said(Enum):
    """What a record about nodes says, as far as it matters here."""

    # A heartbeat of the ordinary kind: it can wait for others.
    HEARTBEAT = "heartbeat"
    TICK = "tick"
    # Anything else: what follows in other topics may build on it.
    STATEMENT = "statement"


class NodeArrivals:
    """Follows the topics about nodes, on a thread of its own, whatever Spark has read.

    Its records are looked at by their headers, 3 µs each. `fault`: an error that has ended the
    thread; from then on nobody waits for anything here.
    """

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        options: Mapping[str, str],
        positions: Positions,
        tick_seconds: float,
    ) -> None:
        """`positions`: where the query begins; `tick_seconds`: the pause between ticks. Raises
        BrokerUnreachable, ConnectionUntrusted, AccessRefused."""
        self._consumer = make_reader(
            bootstrap, options, fetch_wait_ms=_FETCH_WAIT_MS, pause_ms=_NODES_PAUSE_MS
        )
        self._bootstrap, self._options = bootstrap, options
        self._admin: AdminClient | None = None
        self._prefix = prefix
        self._tick_seconds = tick_seconds
        self._changed = threading.Condition()
        self._wanted = self._places(positions)
        self._read: dict[_Place, int] = {}
        # The offset behind the last record of a kind.
        self._last: dict[_Said, dict[_Place, int]] = {kind: {} for kind in _Said}
        self._awaited = self._failed = self._closing = False
        self.fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="node-arrivals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop following, and close the connection."""
        self._closing = True
        self._thread.join()
        self._consumer.close()

    def wait(
        self, positions: Positions, judging: bool, since: float, stopping: Callable[[], bool]
    ) -> None:
        """Wait until Spark is to read on behind `positions`: for a statement at once, for
        heartbeats until one tick after `since` (monotonic), the last batch's begin.

        With `judging` ticks are like heartbeats, without it they wait for TICKS_SECONDS_MAX.
        """
        reached = self._places(positions)
        with self._changed:
            self._wanted = reached
            while not stopping():
                left = since + self._pause(reached, judging) - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(min(left, _LOOK_SECONDS))

    def read_ends(self, stopping: Callable[[], bool]) -> Ends:
        """Read where the topics end now. Without contact to the brokers it goes on asking."""
        while not stopping():
            try:
                return self._read_ends()
            except StreamingError:
                # The next client finds out anew who leads a partition; it fails at once where
                # nobody listens.
                self._admin = None
                with self._changed:
                    self._changed.wait(_LOOK_SECONDS)
        return {}

    def find_statements(
        self, ends: Ends, stopping: Callable[[], bool]
    ) -> dict[str, dict[int, int]]:
        """Find the next offsets behind the last statement of each partition, among all records
        before `ends`. Where these cannot be read it goes on asking for the ends."""
        while not stopping():
            with self._changed:
                self._awaited = True
                self._changed.wait_for(partial(self._knows, ends), _LOOK_SECONDS)
                self._awaited = False
                if self._failed:
                    return self._by_topic(ends)
                if self._has_read(ends):
                    return self._by_topic(self._last[_Said.STATEMENT])
            ends = self.read_ends(stopping)
        return {}

    def _read_ends(self) -> Ends:
        if self._admin is None:
            self._admin = connect(AdminClient, self._bootstrap, {}, self._options)
        places = [TopicPartition(*place) for place in self._wanted]
        isolation = IsolationLevel.READ_COMMITTED
        return read_end_offsets(self._admin, places, isolation, _ENDS_TIMEOUT_SECONDS)

    def _pause(self, reached: Mapping[_Place, int], judging: bool) -> float:
        """Return how long a batch may wait after the last one's begin."""
        if self._failed or self._has(_Said.STATEMENT, reached):
            return 0.0
        if self._has(_Said.HEARTBEAT, reached) or (judging and self._has(_Said.TICK, reached)):
            return min(HEARTBEATS_SECONDS_MAX, max(HEARTBEATS_SECONDS_MIN, self._tick_seconds))
        return TICKS_SECONDS_MAX

    def _has(self, kind: _Said, reached: Mapping[_Place, int]) -> bool:
        return any(offset > reached.get(at, 0) for at, offset in self._last[kind].items())

    def _has_read(self, ends: Ends) -> bool:
        return all(self._read.get(place, 0) >= end for place, end in ends.items())

    def _knows(self, ends: Ends) -> bool:
        return self._failed or self._has_read(ends)

    def _places(self, positions: Positions) -> dict[_Place, int]:
        return {
            (full_name(topic, self._prefix), partition): offset
            for topic in NODE_TOPICS
            for partition, offset in positions[topic].items()
        }

    def _by_topic(self, offsets: Mapping[_Place, int]) -> dict[str, dict[int, int]]:
        names = {full_name(topic, self._prefix): topic for topic in NODE_TOPICS}
        found: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in offsets.items():
            found.setdefault(names[topic], {})[partition] = offset
        return found

    def _run(self) -> None:
        try:
            self._follow_to_the_close()
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            self.fault = error
            self._fail()

    def _follow_to_the_close(self) -> None:
        while not self._closing:
            try:
                self._follow()
                first = self._consumer.poll(_LOOK_SECONDS)
                messages = [] if first is None else [first]
                messages += self._consumer.consume(_MESSAGES_MAX, 0) if messages else []
            except KafkaException:
                self._fail()
                time.sleep(_LOOK_SECONDS)
            else:
                self._note(messages)

    def _fail(self) -> None:
        """Let nobody wait for what cannot be read; the next record ends that."""
        with self._changed:
            self._failed = True
            self._changed.notify_all()

    def _follow(self) -> None:
        """Follow partitions that are new, too."""
        new = {place: at for place, at in self._wanted.items() if place not in self._read}
        if new:
            self._read |= new
            places = [TopicPartition(*place, offset) for place, offset in self._read.items()]
            self._consumer.assign(places)

    def _note(self, messages: list[Message]) -> None:
        nodes = full_name(NODES, self._prefix)
        with self._changed:
            stated = False
            for message in messages:
                if message.error() is not None and not _is_end(message):
                    self._fail()
                    continue
                self._failed = False
                place, offset = _place_of(message)
                if _is_end(message):
                    self._read[place] = offset
                    continue
                self._read[place] = offset + 1
                kind = _kind_of(message) if place[0] == nodes else _Said.STATEMENT
                if kind is not None:
                    self._last[kind][place] = offset + 1
                    stated |= kind is _Said.STATEMENT
            if stated or self._awaited:
                self._changed.notify_all()


def _kind_of(message: Message) -> _Said | None:
    """Tell what a record of the nodes topic says; None for what concerns standbys alone."""
    value = message.value() or b""
    if message.key() == _TICK:
        return None if _STANDBY in value else _Said.TICK
    if _HEARTBEAT in read_headers(message) and _STOPPING not in value:
        return _Said.HEARTBEAT
    return _Said.STATEMENT


def _is_end(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001


def _place_of(message: Message) -> tuple[_Place, int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return (topic, partition), offset
