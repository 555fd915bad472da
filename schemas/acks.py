"""Messages of executors about moves and replicas, on `acks.v1`, and the kinds of moves they get.

Every message is idempotent: one that is repeated, or that comes when its move has ended, changes
nothing and is counted.
"""

from enum import StrEnum

from pydantic import Field

from schemas.base import Id, Index, Message, Ordinal, Text


class MoveKind(StrEnum):
    """Task of a move's executor.

    `replace`: make a replica on `add`, then give up the one on `remove`. `add`: make one more, on
    `add`. `remove`: give up the one on `remove`. `leader`: let another replica lead; it stands in
    plans and cluster files only, as a new leader comes with an assignment, without a move.
    """

    REPLACE = "replace"
    ADD = "add"
    REMOVE = "remove"
    LEADER = "leader"


class MoveMessage(Message):
    """Base of an executor's messages about a move.

    Key: `stream/shard`.

    `move_id` names the move; it may be left out by executors that only know the shard.
    """

    stream: Id = Field(description="The stream of the move's shard.")
    shard: Index = Field(description="Number of the shard, from 0.")
    move_id: Id | None = Field(
        default=None,
        description="The move. Absent: the open move of the shard, of `MoveStopped` all of the "
        "shard that were called off.",
    )
    node_id: Id | None = Field(
        default=None, description="The node that speaks, for people; nothing is decided from it."
    )
    reason: Text | None = Field(
        default=None,
        description="Why, as free text for people; of `MoveFailed` it becomes the move's reason.",
    )

    def record_key(self) -> str:
        """Return the shard that the move belongs to."""
        return f"{self.stream}/{self.shard}"


class MoveAccepted(MoveMessage):
    """The executor has taken the move on, and what it removes may be gone from now on."""


class MoveProgressed(MoveMessage):
    """The executor copies on: the move gets more time.

    A move that reports progress does not expire, however long its copy takes: each report gives it
    at least three quarters of `moves.deadline_seconds` from then on. A report whose `bytes_done` is
    no larger than the one that the move's record shows is no progress and extends nothing. It also
    says that the move is accepted.
    """

    bytes_done: Ordinal | None = Field(
        default=None,
        description="How many bytes are copied. Absent: not known; the report counts as progress.",
    )
    bytes_total: Ordinal | None = Field(
        default=None, description="How many bytes the whole copy has. Absent: not known."
    )


class MoveCompleted(MoveMessage):
    """The executor has completed the move.

    The new replica is complete (`replace`, `add`), or the old one has stopped serving (`remove`).
    The answer is an assignment with the next epoch; the old copy may be deleted when that has come,
    and no sooner.
    """


class MoveFailed(MoveMessage):
    """The executor gave up, and removed what it had copied; the need is derived again from what is
    true then."""


class MoveStopped(MoveMessage):
    """The executor has stopped a move that expired, was cancelled or superseded, and removed what
    it had copied. Without `move_id`, all such moves of the shard."""


class ReplicaLost(MoveMessage):
    """A replica is gone although its node lives: a disk has failed, a file is damaged. Another
    copy is made, maybe on the same node."""

    node_id: Id = Field(description="The node whose replica is gone.")
