"""Messages of operators, on `operator.v1`, which has an ACL of its own.

Each request is answered on `answers.v1` by a message that names its `request_id`. What is
destructive needs `expected_impact_hash`: the hash that its dry run showed.
"""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from schemas import limits
from schemas.base import Id, Message, Text

# Maintenance and cordons end by themselves; beyond a month somebody has forgotten one.
TTL_SECONDS_MAX = 31 * 86_400

Target = Annotated[str, StringConstraints(min_length=1, max_length=2048)]
Principal = Annotated[str, StringConstraints(pattern=limits.PRINCIPAL_PATTERN)]
Ttl = Annotated[int, Field(ge=1, le=TTL_SECONDS_MAX)]


class Action(StrEnum):
    """Action of a request; each is asked for by a message of its own.

    These are `drain`, `undrain`, `maintenance`, `cordon`, `uncordon`, `approve_relocation`,
    `override_hold`, `cancel_move`, `rebalance`, of nodes `forget` and `release`, of shards
    `confirm_load`, of the cell `handover`.
    """

    DRAIN = "drain"
    UNDRAIN = "undrain"
    MAINTENANCE = "maintenance"
    CORDON = "cordon"
    UNCORDON = "uncordon"
    APPROVE_RELOCATION = "approve_relocation"
    OVERRIDE_HOLD = "override_hold"
    CANCEL_MOVE = "cancel_move"
    REBALANCE = "rebalance"
    FORGET = "forget"
    RELEASE = "release"
    CONFIRM_LOAD = "confirm_load"
    HANDOVER = "handover"


class OperatorRequest(Message):
    """Base of every operator's request; key: `target`.

    `target` is a node's id or a domain (`/eu/az1`), nodes that join it later included; of a hold
    its name, of a cancellation a move's id, of a load its shard. `request_id` names the request in
    its answer. `reason` is free text for people, `requested_by` names who asked. `action` is the
    word for it in answers.
    """

    action: ClassVar[Action]
    target: Target = Field(
        description="What the request is about: a node's id or a domain (`/eu/az1`), of a hold "
        "its name, of a cancellation a move's id, of a load the shard. It is the record's key."
    )
    request_id: Id = Field(
        description="Names the request in its answer; any id that is not used again, for example "
        "a UUID."
    )
    expected_impact_hash: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,128}$")] | None = (
        Field(
            default=None,
            description="Hash of the impact that a dry run or a refusal has shown, in hexadecimal. "
            "What is destructive is refused without it, and if the impact is another by "
            "now.",
        )
    )
    reason: Text | None = Field(default=None, description="Why, as free text for people.")
    requested_by: Principal | None = Field(
        default=None,
        description="Who asked, as the HTTP interface that sent the request knows the person or "
        "program; absent: it was sent by other means.",
    )

    def record_key(self) -> str:
        """Return the target of the request."""
        return self.target


class TimedRequest(OperatorRequest):
    """A request that ends by itself after `ttl_seconds`."""

    ttl_seconds: Ttl | None = Field(
        default=None,
        description="Seconds after which the request ends by itself, at most 31 days. Absent: it "
        "stands until it is ended.",
    )


class Drain(OperatorRequest):
    """Move all replicas off the target and give it no new ones. Needs the hash of its impact."""

    action = Action.DRAIN


class Undrain(OperatorRequest):
    """End a drain or a maintenance; what has not been moved stays."""

    action = Action.UNDRAIN


class Maintenance(TimedRequest):
    """The target may be away until `ttl_seconds` have passed: it gets no replicas, and what stands
    there is not replaced. Refused where a shard would lose its quorum."""

    action = Action.MAINTENANCE


class Cordon(TimedRequest):
    """Give the target no new replicas; it keeps what it has."""

    action = Action.CORDON


class Uncordon(OperatorRequest):
    """End a cordon."""

    action = Action.UNCORDON


class ApproveRelocation(OperatorRequest):
    """Let a node's pending relocation take effect, or together those of all nodes that stand in
    a domain. Needs the hash of its impact."""

    action = Action.APPROVE_RELOCATION


class OverrideHold(OperatorRequest):
    """Replace what a hold keeps from being replaced. `target` is the hold's: a domain, or `fleet`.
    Needs the hash of its impact."""

    action = Action.OVERRIDE_HOLD


class CancelMove(OperatorRequest):
    """Cancel an open move, given by its id as `target`. Its replica stays where it is, which has
    to be up; another target is tried."""

    action = Action.CANCEL_MOVE


class Rebalance(OperatorRequest):
    """Even out the loads of the whole fleet, whatever the configured mode. `target` is `fleet`.
    Needs the hash of its impact where it copies more than a hundred replicas."""

    action = Action.REBALANCE


class ForgetNode(OperatorRequest):
    """Drop a node that is gone: it leaves every list, and holds no longer count it. `target` is
    its id. Refused while replicas stand on it or moves lead there, and while it may come back:
    it has to be dead, or drained. A node that registers with this id later is a new one."""

    action = Action.FORGET


class ReleaseNode(OperatorRequest):
    """End the hold-down of a node that has flapped, before its time is over: it may receive
    replicas again. `target` is its id."""

    action = Action.RELEASE


class ConfirmLoad(OperatorRequest):
    """Count the reported load of a shard that is held back because it is many times the one
    before. `target` is the shard, as `stream/shard`."""

    action = Action.CONFIRM_LOAD


class Handover(OperatorRequest):
    """Let a standby take over from the active reconciler at once, as before an upgrade. `target` is
    the cell."""

    action = Action.HANDOVER


Request = (
    Drain
    | Undrain
    | Maintenance
    | Cordon
    | Uncordon
    | ApproveRelocation
    | OverrideHold
    | CancelMove
    | Rebalance
    | ForgetNode
    | ReleaseNode
    | ConfirmLoad
    | Handover
)
