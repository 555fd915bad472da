"""Values of `placer doctor`: a check's health, its finding and the action."""

from dataclasses import dataclass
from enum import StrEnum


class CheckStatus(StrEnum):
    """What a check found; `skipped` where an earlier failure left nothing to look at."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckFailure:
    """Why a check is not ok, and what to do about it."""

    said: str
    action: str
    health: CheckStatus = CheckStatus.FAIL


@dataclass(frozen=True, slots=True)
class DoctorResult:
    """One check's answer. `action`: what to do, empty where there is nothing to do."""

    check: str
    health: CheckStatus
    said: str
    action: str = ""
