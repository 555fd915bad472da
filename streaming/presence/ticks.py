"""Writes and reads a tick: who is there, in which role, and how far a standby has followed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from schemas.envelope import encode_headers
from schemas.inputs import ACTIVE, TICK_KEY, Tick


@dataclass(frozen=True, slots=True)
class TickAuthor:
    """Names who writes a tick: the cell, the process, and its writer epoch (0 for a standby)."""

    cell: str
    instance: str
    writer_epoch: int = 0


def encode_tick(
    author: TickAuthor,
    number: int,
    partition: int,
    partitions: int,
    role: str = ACTIVE,
    proven: int | None = None,
) -> tuple[bytes, list[tuple[str, str | bytes | None]]]:
    """Write a tick's value and headers. `proven`: sequence of the last commit that a standby has
    followed and proven."""
    body: dict[str, Any] = {
        "partition": partition,
        "partitions": partitions,
        "writer_epoch": author.writer_epoch,
        "number": number,
        "role": role,
        "instance": author.instance,
    }
    if proven is not None:
        body["proven"] = proven
    identity = f"{author.cell}-{author.writer_epoch}-{author.instance}-{number}-{partition}"
    headers = encode_headers(
        Tick.__name__, cell=author.cell, id=identity, subject=TICK_KEY, time_ms=0
    )
    return orjson.dumps(body), [*headers]


@dataclass(frozen=True, slots=True)
class TickSeen:
    """Holds what a tick says, and when the broker appended it, in ms."""

    at: int
    role: str
    instance: str
    writer_epoch: int
    proven: int | None = None

    @classmethod
    def parse(cls, at: int, body: Mapping[str, Any] | None) -> "TickSeen | None":
        """Read a tick's value; None where it is none, or does not say who wrote it."""
        try:
            assert body is not None
            epoch, instance = int(body["writer_epoch"]), str(body.get("instance") or "")
            return cls(at, str(body.get("role", ACTIVE)), instance, epoch, body.get("proven"))
        except (AssertionError, KeyError, TypeError, ValueError):
            return None
