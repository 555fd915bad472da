"""A history with everything in it, made by the driver's half alone, as it lies on topics."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import orjson

from placement.model import Configuration
from schemas.topics import JOURNAL
from streaming.brokers import Record
from streaming.recovery import Snapshot
from streaming.recovery.snapshot import is_whole
from streaming.replay import History
from streaming.replay.history import LOGS, OUTPUTS
from tests.builders.batches import CELL, Commit, Driver, bodies
from tests.builders.kafka_rows import heartbeat, raw, registered, tick


class Story:
    """Nodes that beat, ask and die, on a log whose offsets and times go on."""

    def __init__(self, driver: Driver, offset: int = 0, at: int = 1_000) -> None:
        self.driver, self.offset, self.at = driver, offset, at
        self.streams = self.acks = self.requests = 0

    def register(self, size: int) -> None:
        """A fleet of two zones, in one batch."""
        records = [
            registered(f"n{n}", 1, location=f"/z{n % 2}", offset=self._next(), at=self.at)
            for n in range(size)
        ]
        self.driver.batch(records)

    def ask(self, name: str, **asked: Any) -> None:
        """A stream."""
        body = {"stream": name, "sequence": 1, "shards": 3, "replication_factor": 2} | asked
        self.driver.batch([raw("StreamCreated", name, body, self.streams, self.at, "streams.v1")])
        self.streams += 1

    def request(self, message: str, target: str) -> None:
        """An operator's request."""
        self.requests += 1
        body = {"target": target, "request_id": f"r{self.requests}"}
        self.driver.batch([raw(message, target, body, self.requests, self.at, "operator.v1")])

    def live(self, alive: Iterable[int], seconds: int) -> None:
        """Time in which only some nodes beat."""
        for _ in range(seconds):
            self.at += 1_000
            beats = [heartbeat(f"n{n}", self.at, offset=self._next(), at=self.at) for n in alive]
            self.driver.batch([*beats, tick(self._next(), self.at)])

    def acknowledge(self) -> None:
        """All open moves are done."""
        latest = {move["move_id"]: move for move in bodies(self.driver.commits, "moves.v1")}
        records = []
        for move in latest.values():
            body = {name: move[name] for name in ("move_id", "stream", "shard")}
            key = f"{move['stream']}/{move['shard']}"
            records.append(raw("MoveCompleted", key, body, self.acks, self.at, "acks.v1"))
            self.acks += 1
        self.driver.batch(records)

    def _next(self) -> int:
        self.offset += 1
        return self.offset - 1


def eventful() -> list[Commit]:
    """Placements, a refusal, a death with its moves, a restart in the middle of them, requests of
    one node, and nodes that come to a new zone after the bootstrap."""
    first = Story(Driver())
    first.register(6)
    first.ask("a")
    first.ask("b", replication_factor=3)
    first.ask("refused", replication_factor=0)
    first.ask(
        "waiting", replication_factor=9, policy={"strategy": "spread", "on_infeasible": "wait"}
    )
    first.live(range(1, 6), 6)
    second = Story(Driver(first.driver.commits), first.offset, first.at)
    second.streams = first.streams
    second.live(range(1, 6), 1)
    commits = [*first.driver.commits, *second.driver.commits]
    assert bodies(commits, "moves.v1"), "a death without moves"
    second.driver.commits[:0] = first.driver.commits
    second.acknowledge()
    second.ask("c")
    second.live(range(6), 2)
    for message in ("Cordon", "Uncordon", "Uncordon"):
        second.request(message, "n4")
    second.at += 600_000
    for name in ("new1", "new2"):
        place = {"location": f"/{name}", "offset": second.offset, "at": second.at}
        second.driver.batch([registered(name, 1, **place)])
        second.offset += 1
    return second.driver.commits


def lying(commits: Iterable[Commit]) -> list[Record]:
    """The records of these transactions as a reader sees them; each ends with a control record."""
    offsets: Counter[str] = Counter()
    found = []
    for commit in commits:
        for each in commit:
            headers = tuple(each.headers)
            place = (each.topic, 0, offsets[each.topic], 0)
            found.append(Record.of(*place, each.key, each.value, headers))
            offsets[each.topic] += 1
        for topic in {each.topic for each in commit}:
            offsets[topic] += 1
    return found


def history(records: Iterable[Record], start: Snapshot | None = None) -> History:
    """All of these records as a history to replay."""
    records = list(records)
    journal = [record for record in records if record.topic == JOURNAL]
    written = [record for record in records if record.topic in OUTPUTS]
    sequence = max(r.value["sequence"] for r in written if r.topic == "commits.v1" and r.value)
    return History(start, journal, written, sequence)


def snapshot_behind(records: Iterable[Record]) -> Snapshot:
    """The state of record behind the last of these records."""
    latest: dict[tuple[str, str], Record] = {}
    positions: dict[str, dict[int, int]] = {}
    for record in (each for each in records if each.topic in OUTPUTS):
        positions[record.topic] = {0: record.offset + 1}
        if record.topic in LOGS:
            continue
        latest.pop((record.topic, record.key or ""), None)
        if record.raw is not None:
            latest[record.topic, record.key or ""] = record
    marker = latest["commits.v1", CELL].value
    assert marker is not None
    made = Snapshot(marker, tuple(latest.values()), positions)
    assert is_whole(made, Configuration(cell=CELL))
    return made


def altered(record: Record, **fields: Any) -> Record:
    """The record with fields of its value replaced."""
    value = orjson.dumps((record.value or {}) | fields)
    place = (record.topic, record.partition, record.offset, record.timestamp_ms)
    return Record.of(*place, record.raw_key, value, record.raw_headers)
