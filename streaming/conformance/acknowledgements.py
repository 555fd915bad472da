"""Reads what an executor says on `acks.v1`, and judges it as a whole.

Each record is checked as the reconciler checks it. What can be judged only in hindsight is judged
here: whether two moves of a shard were carried out at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from schemas.envelope import Refusal, decode, validate
from schemas.topics import ACKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streaming.brokers import Record

ACCEPTED, COMPLETED, FAILED = "MoveAccepted", "MoveCompleted", "MoveFailed"
STOPPED, PROGRESSED, LOST = "MoveStopped", "MoveProgressed", "ReplicaLost"
# Messages after which an executor is busy with a move no more.
ENDS = frozenset({COMPLETED, FAILED, STOPPED})


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A record of `acks.v1`. `message` is its kind, empty where it was refused with `refusal`;
    `at_ms` the broker's append time."""

    offset: int
    at_ms: int
    message: str
    key: str
    body: dict[str, Any]
    refusal: str = ""

    @property
    def move_id(self) -> str | None:
        """The move that it names."""
        return self.body.get("move_id")

    def to_json(self) -> dict[str, Any]:
        """For reports: the record as it was written."""
        said = {"topic": ACKS, "offset": self.offset, "at_ms": self.at_ms, "key": self.key}
        return (
            said
            | {"message": self.message, "body": self.body}
            | ({"refusal": self.refusal} if self.refusal else {})
        )


def read_acknowledgement(record: Record) -> Acknowledgement:
    """Read a record as the reconciler does."""
    envelope = decode(record.raw, record.raw_headers)
    refused = envelope if isinstance(envelope, Refusal) else None
    message = "" if isinstance(envelope, Refusal) else envelope.message
    if not isinstance(envelope, Refusal):
        checked = validate(envelope, record.raw_key, ACKS)
        refused = checked if isinstance(checked, Refusal) else None
    refusal = "" if refused is None else f"{refused.code}: {refused.detail}"
    place = (record.offset, record.timestamp_ms)
    return Acknowledgement(*place, message, record.key or "", record.value or {}, refusal)


def says(acknowledgement: Acknowledgement, message: str, key: str, move_id: str | None) -> bool:
    """Return whether it is that word on that move. One without a move's id is on the shard's open
    move, or of `MoveStopped` on all that were called off."""
    is_message = acknowledgement.message == message and acknowledgement.key == key
    return is_message and acknowledgement.move_id in (None, move_id)


def find_overlap(
    acknowledgements: Iterable[Acknowledgement],
) -> tuple[Acknowledgement, Acknowledgement] | None:
    """Find a move of a shard that was accepted while another one was under way: the two words."""
    busy: dict[str, Acknowledgement] = {}
    for each in acknowledgements:
        under_way = busy.get(each.key)
        if each.message == ACCEPTED:
            if under_way is not None and under_way.move_id != each.move_id:
                return under_way, each
            busy[each.key] = each
            continue
        is_end = under_way is not None and each.move_id in (None, under_way.move_id)
        if is_end and each.message in ENDS:
            del busy[each.key]
    return None


def find_refused(acknowledgements: Sequence[Acknowledgement]) -> Acknowledgement | None:
    """Find a record that the reconciler would refuse."""
    return next((each for each in acknowledgements if each.refusal), None)
