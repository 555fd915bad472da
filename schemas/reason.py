"""Reasons as they stand in records: why something was decided, or could not be."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from schemas.base import Items, Text, WireModel


class Band(StrEnum):
    """Who has to act on a reason: see the table of codes in this package's README."""

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
    """Why: a stable code, its band, a sentence, and the numbers and domains behind it."""

    code: Code
    band: Annotated[Band, LAX]
    message: Summary
    need: int | None = None
    have: int | None = None
    level: Text | None = None
    seen: Items[Domain] | None = None
