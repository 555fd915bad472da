"""Collects what the output topics have shown, as someone sees it who only reads."""

import threading
import time
from dataclasses import dataclass, field
from typing import Any, Self

from schemas.topics import ALERTS, ASSIGNMENTS, DECISIONS, MOVES, TOPOLOGY, VIOLATIONS
from streaming.brokers import CommittedReader, Record

_TABLES = {
    TOPOLOGY: "nodes",
    DECISIONS: "decisions",
    ASSIGNMENTS: "assignments",
    MOVES: "moves",
    VIOLATIONS: "violations",
}
# The topics that it takes notice of.
WATCHED_TOPICS = (*_TABLES, ALERTS)


@dataclass(slots=True)
class World:
    """Collects the state that the output topics have shown so far; one thread writes it, others
    read. `failure` says why nothing more is read."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    decisions: dict[str, dict[str, Any]] = field(default_factory=dict)
    assignments: dict[str, dict[str, Any]] = field(default_factory=dict)
    moves: dict[str, dict[str, Any]] = field(default_factory=dict)
    violations: dict[str, dict[str, Any]] = field(default_factory=dict)
    alerts: list[dict[str, Any]] = field(default_factory=list)
    first_seen: dict[tuple[str, str], float] = field(default_factory=dict)
    failure: Exception | None = None

    @property
    def open_moves(self) -> list[dict[str, Any]]:
        """Moves that have not ended."""
        return [m for m in list(self.moves.values()) if m["state"] in ("issued", "accepted")]

    def holders(self, node_ids: set[str]) -> list[str]:
        """Shards that still list one of the nodes."""
        assignments = list(self.assignments.items())
        return [key for key, each in assignments if node_ids & {*each["replicas"], *each["adding"]}]

    def hold_reason(self, domain: str) -> str | None:
        """Return the newest alert's reason for a hold of the domain; None where there is no
        hold."""
        holds = [a for a in self.alerts if (a["kind"], a["subject"]) == ("HOLD", domain)]
        return holds[-1]["reason"]["message"] if holds else None

    def take(self, record: Record, seen_at: float) -> None:
        """Note a record."""
        if record.topic == ALERTS and record.value is not None:
            self.alerts.append(record.value)
        name, key = _TABLES.get(record.topic), record.key or ""
        if name is None:
            return
        table: dict[str, Any] = getattr(self, name)
        if record.value is None:
            table.pop(key, None)
        else:
            table[key] = record.value
        self.first_seen.setdefault((record.topic, key), seen_at)


class Watcher:
    """Reads output topics in a thread of its own and notes what they show in the world."""

    def __init__(self, world: World, reader: CommittedReader) -> None:
        self._world = world
        self._reader = reader
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            with self._reader:
                while not self._closing.is_set():
                    records = self._reader.poll(0.1)
                    seen_at = time.time()
                    for record in records:
                        self._world.take(record, seen_at)
        except Exception as error:  # noqa: BLE001 - raised again where the world is looked at
            self._world.failure = error
