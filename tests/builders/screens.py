"""Screens of the command line from a fixed state: a story's records as topics hold them, no broker.

The world is a `Story`; each batch is encoded as the application does it and read back as `placer`
does it. Screens are rendered for a terminal of so many columns and lines, or for a pipe.
"""

from collections import deque
from collections.abc import Callable, Mapping
from io import StringIO
from typing import Any

import orjson

from placement.model import Configuration, Event, Ready
from schemas.topics import ALERTS, COMMITS
from streaming.brokers import Record
from streaming.cli.render.console import text_console
from streaming.codec import configuration_body, ready_records
from streaming.live.published_state import ALERTS_KEPT, StateRecords
from streaming.replay import JournalEntry, Timeline
from streaming.replay.replay import Replay
from streaming.replay.timeline import add_replay
from tests.stories.actors import Actors
from tests.stories.datadriven import Command
from tests.stories.story import Story

CELL = "main"
# 2026-11-21T17:00:00Z: a moment of 0 would be taken for none.
START_MS = 1_795_280_400_000
# Stands for an empty line, which would end a block of a text case.
EMPTY = "~"


class World(Story):
    """A story whose records go to topics; besides the story's commands

    `wait seconds=`: time passes in which nothing is committed, which is told by no answer.
    """

    def __init__(self) -> None:
        self.sequence = 0
        self.waited_ms = 0
        self.actors = Actors(START_MS)
        self.begin(Configuration())

    def begin(self, configuration: Configuration) -> None:
        """A new, empty reconciler."""
        super().begin(configuration)
        self.live = StateRecords(CELL, "placement.", configuration.levels)
        self.alerts: deque[Mapping[str, Any]] = deque(maxlen=ALERTS_KEPT)
        self.written: list[Record] = []
        self.entries: list[JournalEntry] = []

    def answer(self, command: Command) -> str:
        """Carry out one command; of what it publishes nothing is told."""
        if command.name == "wait":
            self.waited_ms += round(float(command.take("seconds")) * 1000)
            return ""
        return super().answer(command)

    @property
    def at_ms(self) -> int:
        """The moment at which somebody looks."""
        return self.now + self.waited_ms

    def commit(self, events: list[Event], caught_up: bool = True) -> Ready:
        """One batch, written to the topics."""
        ready = super().commit(events, caught_up)
        self.sequence += 1
        self.waited_ms = 0
        where = (self.sequence, 1, self.now, caught_up, tuple(events), None, 0, len(self.entries))
        self.entries.append(JournalEntry(*where))
        for out in ready_records(ready, CELL, self.now, self.sequence):
            record = Record.of(
                out.topic, 0, len(self.written), self.now, out.key, out.value, tuple(out.headers)
            )
            self.written.append(record)
            if out.topic == ALERTS:
                self.alerts.append(record.value or {})
            elif out.topic in self.live.latest:
                self.live.take(out.topic, record.key or "", record.value)
        self.live.take(COMMITS, CELL, self._marker())
        return ready

    def tell(self, timeline: Timeline, *, again: bool = False) -> None:
        """Feed a timeline from the topics; `again`: from a replay of the journal."""
        if again:
            add_replay(timeline, Replay(CELL, self.configuration, None).run(self.entries))
            return
        for record in self.written:
            timeline.take(record)
        for entry in self.entries:
            timeline.take_entry(entry)

    def _marker(self) -> dict[str, Any]:
        marker = {
            "cell": CELL,
            "sequence": self.sequence,
            "writer_epoch": 1,
            "now": self.now,
            "digest": self.reconciler.digest,
            "configuration": configuration_body(self.configuration),
        }
        told: dict[str, Any] = orjson.loads(orjson.dumps(marker))
        return told


def rendered(screen: Any, width: int | None, height: int | None = None) -> str:
    """What a terminal of so many columns and lines shows; into a pipe where `width` is None."""
    written = StringIO()
    console = text_console(width, written, height=height)
    console.print(screen)
    return written.getvalue()


def answered(screen: Callable[[], Any], command: Command) -> str:
    """The answer of a text case: the screen at `width=` (`pipe`) and `height=`, without blank
    lines."""
    width, height = command.take("width", "pipe"), command.given("height")
    text = rendered(
        screen(), None if width == "pipe" else int(width), None if height is None else int(height)
    )
    return "\n".join(line or EMPTY for line in text.splitlines())
