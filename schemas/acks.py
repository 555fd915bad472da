"""Messages of executors about moves and replicas, on `acks.v1`, and the kinds of moves they get.

Every message is idempotent: one that is repeated, or that comes when its move has ended, changes
nothing and is counted.
"""

from enum import StrEnum
from typing import Self

from pydantic import Field, field_validator, model_validator

from schemas.base import Id, Index, Items, Message, Ordinal, Text


class MoveKind(StrEnum):
    """Task of a move's executor.

    `replace`: make a replica on `add`, then give up the one on `remove`. `add`: make one more, on
    `add`. `remove`: give up the one on `remove`. `leader`: let the replica on
    `leader` lead; it stands in plans and cluster files, and is a command with `moves.leader_moves`
    only: a new leader comes with an assignment otherwise.
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

    uid: Id | None = Field(
        default=None,
        description="The `uid` that the stream was created with. Where both have one and they "
        "differ, the message is about an earlier or later stream of this name, and refused: "
        "`STREAM_UID_DIFFERS`.",
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


class ReplicasObserved(Message):
    """What is there now of a shard: an executor has looked, and the record follows.

    Key: `stream/shard`.

    An open move whose effect is there is completed, one that the replicas contradict is cancelled;
    then the assignment is corrected to `replicas`, with the next epoch, and repair makes what the
    shard lacks. Send it where the replicas differ from the assignment and no move of the shard
    explains that: others have moved them, or an acknowledgement was lost; and where a replica fell
    out of sync, or is in sync again.
    """

    stream: Id = Field(description="The stream of the shard.")
    shard: Index = Field(description="Number of the shard, from 0.")
    epoch: Ordinal = Field(
        description="Epoch of the last assignment that the executor had carried out when it "
        "looked. Where the shard's assignment has another one by now, the observation is refused: "
        "`OBSERVATION_STALE`."
    )
    replicas: Items[Id] = Field(
        description="The nodes that have a replica, the one that is to lead first. A copy under "
        "way may be among them."
    )
    leader: Id | None = Field(
        default=None,
        description="The node that leads now: it completes a move of kind `leader` to it. Absent: "
        "none, or it is not known.",
    )
    in_sync: Items[Id] | None = Field(
        default=None,
        description="The nodes whose replicas are complete. A copy that is not among them does not "
        "complete its move, and a replica that is not counts for no quorum until an observation "
        "names it. Absent: all are.",
    )

    uid: Id | None = Field(
        default=None,
        description="The `uid` that the stream was created with. Where both have one and they "
        "differ, the message is about an earlier or later stream of this name, and refused: "
        "`STREAM_UID_DIFFERS`.",
    )

    following: Items[Items[Id]] | None = Field(
        default=None,
        description="The replicas of the shards after `shard`, a list for each, of a stream that "
        "was created with `adopt: observed`. They count for shards that wait to be observed; the "
        "`epoch` is 0 then. Excludes `in_sync` and `leader`, which are about one shard.",
    )

    @field_validator("replicas")
    @classmethod
    def _refuse_repeats(cls, replicas: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse a list that names a node twice."""
        if len({*replicas}) < len(replicas):
            raise ValueError("each node once")
        return replicas

    @field_validator("following")
    @classmethod
    def _refuse_repeats_in(
        cls, following: tuple[tuple[str, ...], ...] | None
    ) -> tuple[tuple[str, ...], ...] | None:
        """Refuse lists that name a node twice."""
        for place, nodes in enumerate(following or ()):
            if len({*nodes}) < len(nodes):
                raise ValueError(f"list {place}: each node once")
        return following

    @model_validator(mode="after")
    def _refuse_details_of_many(self) -> Self:
        """Refuse fields about one shard beside the lists of several."""
        if self.following is not None and (self.in_sync is not None or self.leader is not None):
            raise ValueError("following excludes in_sync and leader")
        return self

    def record_key(self) -> str:
        """Return the shard that was looked at."""
        return f"{self.stream}/{self.shard}"
