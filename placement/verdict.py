"""Verdicts: what the liveness table says of a node at a record of the log."""

from dataclasses import dataclass

from placement.model import Code, Flaps, Liveness, Lives, Reason, Reporting
from placement.node_log import Statement, Told

_SAID = {
    Told.REGISTERED: "registration",
    Told.LOCALITY_CHANGED: "change of location",
    Told.UNREGISTERED: "unregistering",
    Told.REPORTED_UP: "report up",
    Told.REPORTED_DOWN: "report down",
}
_WHY = {
    Code.INCARNATION_CONFLICT: "a later incarnation has taken over",
    Code.INCARNATION_UNKNOWN: "this incarnation has not registered",
    Code.SEQUENCE_CONFLICT: "its sequence was used before, with another body",
    Code.NODE_NOT_EXTERNAL: "the node is not registered with liveness 'external'",
    Code.QUOTA_EXCEEDED: "the node is new and there is no room for it",
    Code.NODE_UNKNOWN: "no node of this id has registered",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A node's condition changed at a record of the log, or the record was refused. `flaps`,
    `reporting` and `lives` are None where they are as they were."""

    at: int
    offset: int
    node_id: str
    incarnation: str
    sequence: int
    liveness: Liveness
    statement: Statement | None = None
    refused: Reason | None = None
    flaps: Flaps | None = None
    reporting: Reporting | None = None
    lives: Lives | None = None


def refusal(said: Statement, holder: str, code: Code) -> Verdict:
    """What was said is refused; `holder` is the end of the sentence that says why."""
    who = f"{said.node_id}: {_SAID[said.told]} of incarnation {said.incarnation}"
    reason = Reason(code, f"{who} refused: {_WHY[code]}{holder and '; '}{holder}")
    return Verdict(
        said.at,
        said.offset,
        said.node_id,
        said.incarnation,
        said.sequence,
        Liveness.UP,
        said,
        reason,
    )


def conflict(node_id: str, holder: str, other: str) -> Reason:
    """Two lives of a node go on speaking at once: its id is used twice."""
    message = (
        f"{node_id}: two processes use this id: incarnation {holder} holds it, incarnation {other} "
        "goes on sending and is refused; stop one of them or give it an id of its own"
    )
    return Reason(Code.INCARNATION_CONFLICT, message)
