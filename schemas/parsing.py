"""JSON of strangers: one object within the bounds of a record, or a refusal that names the fault.

The standard library's parser is used because it alone shows every name of an object (orjson keeps
the last of two equal names, which another reader may not) and every number as text (orjson turns
an integer beyond 64 bits into a float).
"""

import json
from dataclasses import dataclass
from math import isfinite
from typing import Any

from schemas import limits
from schemas.base import echo
from schemas.refusals import RefusalCode

# Digits and sign of the largest 64-bit integer: longer text is out of range without converting it.
_INTEGER_TEXT_MAX = 20


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a record is not an input message: a `RefusalCode` and a message that names the
    field."""

    code: str
    detail: str


class RefusedError(Exception):
    """Carries a refusal out of nested reading; never leaves `schemas.envelope`."""

    def __init__(self, code: RefusalCode, detail: str) -> None:
        super().__init__(detail)
        self.refusal = Refusal(code, detail[: limits.DETAIL_LENGTH_MAX])


def parse_object(value: bytes) -> dict[str, Any]:
    """Parse the value as an object within the bounds of a record.

    Raises RefusedError, ValueError or RecursionError.
    """
    # Decoding first also keeps json from guessing UTF-16 and UTF-32.
    body = json.loads(
        value.decode("utf-8"),
        object_pairs_hook=_parse_object,
        parse_int=_parse_integer,
        parse_float=_parse_float,
        parse_constant=_parse_constant,
    )
    if not isinstance(body, dict):
        kind = "an array" if isinstance(body, list) else echo(body)
        raise RefusedError(RefusalCode.WRONG_TYPE, f"the value must be a JSON object, it is {kind}")
    _check(body, 1)
    return body


def _check(value: object, depth: int) -> None:
    if isinstance(value, str):
        _check_string(value)
    elif isinstance(value, dict | list):
        if depth > limits.DEPTH_MAX:
            raise RefusedError(RefusalCode.TOO_DEEP, f"more than {limits.DEPTH_MAX} nested levels")
        for name in value if isinstance(value, dict) else ():
            _check_string(name)
        for part in value.values() if isinstance(value, dict) else value:
            _check(part, depth + 1)


def _check_string(text: str) -> None:
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        raise RefusedError(
            RefusalCode.NOT_JSON, f"{echo(text)} holds half a surrogate pair, which is no character"
        ) from None
    if length > limits.STRING_BYTES_MAX:
        detail = f"the string {echo(text)} has {length} bytes, at most {limits.STRING_BYTES_MAX}"
        raise RefusedError(RefusalCode.STRING_TOO_LONG, f"{detail} are read")


def _parse_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > limits.FIELDS_MAX:
        detail = f"an object has {len(pairs)} fields, at most {limits.FIELDS_MAX} are read"
        raise RefusedError(RefusalCode.TOO_MANY_FIELDS, detail)
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise RefusedError(RefusalCode.DUPLICATE_FIELD, f"field {echo(name)} is given twice")
        found[name] = value
    return found


def _parse_integer(text: str) -> int:
    number = int(text) if len(text) <= _INTEGER_TEXT_MAX else limits.INTEGER_MAX + 1
    if not limits.INTEGER_MIN <= number <= limits.INTEGER_MAX:
        detail = f"the integer {echo(text)[1:-1]} does not fit 64 bits"
        raise RefusedError(RefusalCode.NUMBER_OUT_OF_RANGE, detail)
    return number


def _parse_float(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        detail = f"the number {echo(text)[1:-1]} is too large"
        raise RefusedError(RefusalCode.NUMBER_OUT_OF_RANGE, detail)
    return number


def _parse_constant(text: str) -> None:
    raise RefusedError(RefusalCode.NOT_JSON, f"{text} is not JSON")
