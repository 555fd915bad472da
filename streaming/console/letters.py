"""Where the console reads dead letters from, and sends their records again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from streaming.requests import DeadLetter, Redriven, read_letters, redrive_letters
from streaming.settings import Settings

# Of more letters the latest are shown; `placer dlq show` has all.
LETTERS_SHOWN_MAX = 5_000


class Letters(Protocol):
    """Reads dead letters and redrives them. Both wait for brokers, and raise StreamingError."""

    def read(self) -> list[DeadLetter]:
        """The letters there are, the oldest first."""

    def redrive(self, letters: Sequence[DeadLetter], only_try: bool) -> list[Redriven]:
        """Send their records again, or only look whether they can be sent."""


@dataclass(frozen=True, slots=True)
class KafkaLetters:
    """The letters on the topic of a cell."""

    settings: Settings

    def read(self) -> list[DeadLetter]:
        """The latest letters. Raises BrokerUnreachable, TopicMissing."""
        found = [letter for letter in read_letters(self.settings) if letter is not None]
        return found[-LETTERS_SHOWN_MAX:]

    def redrive(self, letters: Sequence[DeadLetter], only_try: bool) -> list[Redriven]:
        """Send their records again, each behind what is on its partition. Raises
        BrokerUnreachable."""
        return [*redrive_letters(self.settings, letters, only_try)]
