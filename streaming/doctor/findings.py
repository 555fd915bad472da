"""Values of `placer doctor`: a check's health, its finding and the action."""

from dataclasses import dataclass
from enum import StrEnum


class CheckStatus(StrEnum):
    """Names the outcome of a check; `skipped` where an earlier failure left nothing to check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckFailure:
    """Says why a check is not ok, and what to do about it."""

    said: str
    action: str
    health: CheckStatus = CheckStatus.FAIL


@dataclass(frozen=True, slots=True)
class DoctorResult:
    """Holds the result of one check. `action`: what to do, empty where nothing is to be done."""

    check: str
    health: CheckStatus
    said: str
    action: str = ""
