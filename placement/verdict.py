"""Verdicts: what the liveness table says of a node at a record of the log."""

from dataclasses import dataclass

from placement.flaps import Flaps
from placement.model import Liveness, Reporting
from placement.node_log import Statement
from placement.reasons import Code, Reason

_REFUSED = {
    Code.INCARNATION_CONFLICT: "with another incarnation",
    Code.SEQUENCE_CONFLICT: "with another body",
    Code.NODE_NOT_EXTERNAL: "of a node that is not registered with liveness 'external'",
    Code.QUOTA_EXCEEDED: "of a new node",
    Code.NODE_UNKNOWN: "of a node that has not registered",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A node's condition changed at a record of the log, or the record was refused. `flaps` and
    `reporting` are None where they are as they were."""

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


def refusal(said: Statement, holder: str, code: Code) -> Verdict:
    """What was said is refused; `holder` is the end of the sentence that says why."""
    what = _REFUSED[code]
    reason = Reason(code, f"{said.node_id}: {said.told} {what} refused, {holder}")
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
