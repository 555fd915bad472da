"""Messages to people and their tools beside the state of record: alerts, and answers to requests.

The parts of the core note both in `Ready`; the shell publishes each on a topic of its own, so that
a pager can follow the alerts without the receipts of what operators asked for. Neither is state:
nothing is decided from them, and a restart does not write them again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from placement.model.reasons import Code, Reason


class Severity(StrEnum):
    """Urgency of an alert, in the words of Prometheus' own examples."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class AlertKind(StrEnum):
    """Subject of an alert."""

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


# Critical is what leaves shards without repair until a person acts or nodes come back; a warning is
# what keeps a node from being used as it asks to be; the rest goes on without anybody.
SEVERITIES: Mapping[AlertKind, Severity] = {
    AlertKind.HOLD: Severity.CRITICAL,
    AlertKind.HELD_DOWN: Severity.WARNING,
    AlertKind.INCARNATION_CONFLICT: Severity.WARNING,
    AlertKind.LINK_SLOW: Severity.WARNING,
    AlertKind.QUOTA: Severity.WARNING,
    AlertKind.NEW_DOMAIN: Severity.INFO,
    AlertKind.TYPO_SUSPECTED: Severity.WARNING,
    AlertKind.RELOCATION_PENDING: Severity.WARNING,
    AlertKind.LOCATION_REFUSED: Severity.WARNING,
    AlertKind.CLAIM_DIFFERS: Severity.WARNING,
    AlertKind.LOAD_SUSPECTED: Severity.WARNING,
    AlertKind.OVER_CAPACITY: Severity.WARNING,
}

# An alert with one of these reports the end of what another one reported.
_ENDS = frozenset({Code.HOLD_ENDED})


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that a person should know of, reported once.

    `subject` names a node, a domain or a link.

    `detail` is plain JSON for programs; the reason's sentence is for people.
    """

    kind: AlertKind
    subject: str
    at: int
    reason: Reason
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def severity(self) -> Severity:
        """The severity of the kind; the end of a condition is `info`."""
        return Severity.INFO if self.reason.code in _ENDS else SEVERITIES[self.kind]


class AnswerOutcome(StrEnum):
    """Outcome of a request: the first two answer it, the others follow an accepted one."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    DONE = "done"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcome of an operator's request; `action` and `target` are those of the request.

    `nodes` and `shards` count what the request touches; `impact_hash` is the hash that agrees to
    it, if it needs one. All three are None in what follows the first answer.
    """

    request_id: str
    action: str
    target: str
    outcome: AnswerOutcome
    at: int
    reason: Reason
    nodes: int | None = None
    shards: int | None = None
    impact_hash: str | None = None
