"""Keeps beside a plan how far it has been carried out, so that the same command goes on or back.

Written whole before each change of the cluster: after a crash it names at least what was done. It
says too which throttles are ours; the cluster itself does not tell.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import orjson

from streaming.errors import StreamingError
from streaming.kafka_bridge.throttling import OwnThrottles

_VERSION = 1


class Direction(StrEnum):
    """Names which way a plan is carried out."""

    FORWARD = "forward"
    BACK = "back"


@dataclass(frozen=True, slots=True)
class Journal:
    """How far a plan is carried out on a cluster.

    `wave`: the one at hand, counted from 0 in the plan's order in both directions. `ended`: the
    direction has come to its end. `uids`: topic ids by name, as they were at the start.
    """

    plan: str
    cluster: str
    uids: Mapping[str, str]
    direction: Direction = Direction.FORWARD
    wave: int = 0
    ended: bool = False
    own: OwnThrottles = field(default_factory=OwnThrottles)


class JournalInvalid(StreamingError):
    """A journal that cannot be read; the message names the file and what to do."""

    exit_code = 2


class JournalStore(Protocol):
    """Where the journal is kept."""

    def load(self) -> Journal | None:
        """Return the journal, None where nothing was begun. Raises JournalInvalid."""

    def save(self, journal: Journal) -> None:
        """Keep the journal; it is durable when this returns."""


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A journal in a file, replaced as a whole."""

    path: Path

    def load(self) -> Journal | None:
        """See JournalStore."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return _journal(orjson.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{self.path} is no journal of placer kafka apply ({error}): it says which "
            message += "throttles are to be taken back; restore it, or remove it to begin anew"
            raise JournalInvalid(message) from error

    def save(self, journal: Journal) -> None:
        """See JournalStore."""
        unfinished = self.path.with_name(f"{self.path.name}.new")
        with unfinished.open("wb") as file:
            file.write(orjson.dumps(_body(journal), option=orjson.OPT_INDENT_2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self.path)
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


@dataclass(slots=True)
class JournalInMemory:
    """A journal that a dry run or a test keeps."""

    journal: Journal | None = None

    def load(self) -> Journal | None:
        """See JournalStore."""
        return self.journal

    def save(self, journal: Journal) -> None:
        """See JournalStore."""
        # Through its text, so that what a file could not hold is found here as well.
        self.journal = _journal(orjson.loads(orjson.dumps(_body(journal))))


def turn(journal: Journal, direction: Direction) -> Journal:
    """Return the journal of the same wave in the other direction."""
    return (
        journal
        if journal.direction is direction
        else replace(journal, direction=direction, ended=False)
    )


def _body(journal: Journal) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "plan": journal.plan,
        "cluster": journal.cluster,
        "direction": journal.direction,
        "wave": journal.wave,
        "ended": journal.ended,
        "topics": dict(journal.uids),
        "throttles": {
            "rates": {str(broker): dict(rates) for broker, rates in journal.own.rates.items()},
            "entries": {
                topic: {config: sorted(own) for config, own in configs.items()}
                for topic, configs in journal.own.entries.items()
            },
        },
    }


def _journal(value: Any) -> Journal:
    if value["version"] != _VERSION:
        raise ValueError(f"version {value['version']} is not known")
    rates, entries = value["throttles"]["rates"], value["throttles"]["entries"]
    return Journal(
        value["plan"],
        value["cluster"],
        dict(value["topics"]),
        Direction(value["direction"]),
        int(value["wave"]),
        bool(value["ended"]),
        OwnThrottles(
            {int(broker): dict(configs) for broker, configs in rates.items()},
            {
                topic: {config: frozenset(own) for config, own in configs.items()}
                for topic, configs in entries.items()
            },
        ),
    )
