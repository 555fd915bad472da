"""Reasons as they stand in records: why something was decided, or could not be."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from schemas.base import Items, Text, WireModel


class Band(StrEnum):
    """Class of a reason: it says who has to act.

    `ok`: nobody. `soft`: nobody at once; it ends by itself, or only wishes are not met.
    `throttled`: nobody; it waits for a limit, a hold or a pause. `config`: whoever wrote the
    request or the setting. `required-rule`: whoever runs the fleet or wrote the policy; what it
    requires cannot be met. `bug`: the authors of the reconciler.
    """

    OK = "ok"
    SOFT = "soft"
    THROTTLED = "throttled"
    CONFIG = "config"
    REQUIRED_RULE = "required-rule"
    BUG = "bug"


# Enumerations are read from their JSON strings, which strict mode alone would refuse.
LAX = Field(strict=False)
Code = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{1,63}$")]
Domain = Annotated[str, Field(max_length=2048)]
Summary = Annotated[str, Field(max_length=8192)]


class Reason(WireModel):
    """A stable code, its band, a message, and the numbers and domains behind it."""

    code: Code = Field(
        description="Stable code: one of the table of reasons in this package's README. Treat an "
        "unknown one by its band."
    )
    band: Annotated[Band, LAX] = Field(description="Who has to act.")
    message: Summary = Field(
        description="The reason in a sentence, for people; its words may change."
    )
    need: int | None = Field(
        default=None, description="How many were needed, in what the sentence counts."
    )
    have: int | None = Field(default=None, description="How many there were.")
    level: Text | None = Field(
        default=None,
        description="The level of the topology that it is about: a configured name, `location`, "
        "`node` or `tag:KEY`.",
    )
    seen: Items[Domain] | None = Field(
        default=None, description="The nodes or domains that were looked at, the first 50."
    )
    rule: Text | None = Field(
        default=None,
        description="The placement rule that a warning of a decision is about; absent where the "
        "warning is about no rule that violations would name.",
    )
