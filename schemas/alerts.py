"""Messages of the reconciler to people: alerts, and the answers to operators' requests.

They are two messages on two topics, because they have two readers: a pager follows `alerts.v1`, the
command that asked waits on `answers.v1`. What to do about each kind of alert is in `words`.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from schemas.base import Id, Index, Message, Text, TimeMs
from schemas.bookkeeping import Digest
from schemas.reason import LAX, Reason
from schemas.requests import Action, Target


class Severity(StrEnum):
    """Urgency of an alert: `info` (none), `warning` (within the day), `critical` (at once)."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class AlertKind(StrEnum):
    """Subject of an alert: see the table of alerts in this package's README."""

    HOLD = "HOLD"
    HELD_DOWN = "HELD_DOWN"
    INCARNATION_CONFLICT = "INCARNATION_CONFLICT"
    LINK_SLOW = "LINK_SLOW"
    QUOTA = "QUOTA"
    NEW_DOMAIN = "NEW_DOMAIN"
    TYPO_SUSPECTED = "TYPO_SUSPECTED"
    RELOCATION_PENDING = "RELOCATION_PENDING"
    LOCATION_REFUSED = "LOCATION_REFUSED"
    CLAIM_DIFFERS = "CLAIM_DIFFERS"
    LOAD_SUSPECTED = "LOAD_SUSPECTED"
    OVER_CAPACITY = "OVER_CAPACITY"


class AnswerOutcome(StrEnum):
    """Outcome of a request.

    Every request has one answer, `accepted` or `refused`. A drain that was accepted is `done` when
    nothing is left on its target; what was asked for a time has `ended` when the time is over.
    """

    ACCEPTED = "accepted"
    REFUSED = "refused"
    DONE = "done"
    ENDED = "ended"


class Alert(Message):
    """Something a person should know of, reported once. Key: `kind`.

    `subject` names what it is about (a node, a domain, a link); `reason` says it in a sentence,
    `detail` in fields for programs. The end of what an alert reported is another alert of its kind,
    with severity `info`.
    """

    kind: Annotated[AlertKind, LAX] = Field(description="What the alert is about.")
    severity: Annotated[Severity, LAX] = Field(
        description="How soon somebody has to look: that of the kind, `info` for the end of a "
        "condition."
    )
    subject: Text = Field(
        description="The node, domain or link that it is about; `nodes` for all, `fleet` for a "
        "hold of all."
    )
    at: TimeMs = Field(description="Time of the decision, in ms since the epoch, UTC.")
    reason: Reason = Field(description="What has happened.")
    detail: dict[str, JsonValue] = Field(
        description="The same in fields for programs; which ones depends on the kind."
    )

    def record_key(self) -> str:
        """Return the alert's kind."""
        return self.kind


class RequestAnswered(Message):
    """The outcome of an operator's request.

    Key: `target`, as on `operator.v1`.

    `reason` says it in a sentence. The first answer to a request counts the `nodes` and `shards`
    that the request touches, and carries the `impact_hash` that agrees to it, if it needs one. The
    severity is always `info`: who asked reads the answer, nobody else has to act on it.
    """

    request_id: Id = Field(description="The `request_id` of the request.")
    action: Annotated[Action, LAX] = Field(description="What was asked for.")
    target: Target = Field(description="What the request was about. It is the record's key.")
    outcome: Annotated[AnswerOutcome, LAX] = Field(description="What became of the request.")
    severity: Literal["info"] = Field(description="Always `info`.")
    at: TimeMs = Field(description="Time of the decision, in ms since the epoch, UTC.")
    reason: Reason = Field(description="Why it was refused, or what is done.")
    nodes: Index | None = Field(
        default=None,
        description="How many nodes the request touches; absent in what follows the first answer.",
    )
    shards: Index | None = Field(
        default=None,
        description="How many shards the request touches; absent in what follows the first answer.",
    )
    impact_hash: Digest | None = Field(
        default=None,
        description="Hash to send as `expected_impact_hash` to agree to the impact, in "
        "hexadecimal; absent where none is needed.",
    )

    def record_key(self) -> str:
        """Return the target of the request."""
        return self.target
