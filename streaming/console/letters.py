"""Where the console reads dead letters from, and sends their records again.

The topic may hold millions: the latest are read, older ones by their offsets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from streaming.requests import (
    DeadLetter,
    Redriven,
    letter_bounds,
    read_letters_within,
    redrive_letters,
)
from streaming.settings import Settings

# Of each partition; a second's reading, and more than a person looks through.
LETTERS_READ_MAX = 1_000


@dataclass(frozen=True, slots=True)
class LetterPage:
    """Letters, the oldest first. `older`: by partition the offset before which there are older
    ones; empty where there are none."""

    letters: Sequence[DeadLetter]
    older: Mapping[int, int]


class Letters(Protocol):
    """Reads dead letters and redrives them. All wait for brokers, and raise StreamingError."""

    def read(self, before: Mapping[int, int]) -> LetterPage:
        """The latest letters before some offsets by partition, at the end where none is named."""

    def find(self, partition: int, offset: int) -> DeadLetter | None:
        """One letter; None where there is none."""

    def redrive(self, letters: Sequence[DeadLetter], only_try: bool) -> list[Redriven]:
        """Send their records again, or only look whether they can be sent."""


@dataclass(frozen=True, slots=True)
class KafkaLetters:
    """The letters on the topic of a cell."""

    settings: Settings

    def read(self, before: Mapping[int, int]) -> LetterPage:
        """Read `LETTERS_READ_MAX` offsets of each partition. Raises BrokerUnreachable,
        TopicMissing."""
        bounds = letter_bounds(self.settings)
        spans = {}
        for partition, (low, high) in bounds.items():
            end = max(min(before.get(partition, high), high), low)
            spans[partition] = (max(end - LETTERS_READ_MAX, low), end)
        older = {place: start for place, (start, _) in spans.items() if start > bounds[place][0]}
        return LetterPage(read_letters_within(self.settings, spans), older)

    def find(self, partition: int, offset: int) -> DeadLetter | None:
        """Read the one record. Raises BrokerUnreachable, TopicMissing."""
        low, high = letter_bounds(self.settings).get(partition, (0, 0))
        if not low <= offset < high:
            return None
        found = read_letters_within(self.settings, {partition: (offset, offset + 1)})
        return found[0] if found else None

    def redrive(self, letters: Sequence[DeadLetter], only_try: bool) -> list[Redriven]:
        """Send their records again, each behind what is on its partition. Raises
        BrokerUnreachable."""
        return [*redrive_letters(self.settings, letters, only_try)]
