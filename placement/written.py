"""Reading what people write in a policy: names, paths and counts, and the refusal of what is not.

Nothing is guessed; a reason names the place and what would be understood there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from placement.model import UNLOCATED, Code, Location, Reason, parse_location

# Limits of rules stay in the range of the wire's counts, so that sums of them fit 64 bits.
LIMIT_MAX = 2**31 - 1

COUNT = "a number of 1 or more"

# YAML reads `1` and `1.5` as numbers where a name is meant; null, yes and no are mistakes.
_NAME_TYPES = (str, int, float)


def name_list(key: str, value: Any) -> tuple[str, ...] | Reason:
    """A list of names, or names separated by commas; repeated ones count once."""
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, Sequence):
        message = f"policy: '{key}' must be a list of names, it is '{value}'"
        return Reason(Code.POLICY_MALFORMED, message)
    for name in listed:
        if type(name) not in _NAME_TYPES:
            return unknown_value("policy", key, name, "names")
    return tuple(dict.fromkeys(str(name).strip() for name in listed if str(name).strip()))


def location_list(key: str, value: Any) -> tuple[Location, ...] | Reason:
    """A list of paths, or paths separated by commas."""
    names = name_list(key, value)
    if isinstance(names, Reason):
        return names
    found: list[Location] = []
    for name in names:
        location = parse_location(name)
        if isinstance(location, Reason):
            return location
        found.append(location)
    return tuple(found)


def location_counts(
    where: str, key: str, value: Mapping[Any, Any], least: int
) -> tuple[tuple[Location, int], ...] | Reason:
    """A number of replicas, `least` or more, for each path."""
    found: dict[Location, int] = {}
    for path, count in value.items():
        location = parse_location(str(path))
        if isinstance(location, Reason):
            return location
        if location == UNLOCATED:
            message = f"policy: {where}: '{key}' names an empty location"
            return Reason(Code.POLICY_MALFORMED, message)
        if type(count) is not int or not least <= count <= LIMIT_MAX:
            return unknown_value(f"policy: {where}", str(path), count, f"a number from {least}")
        found[location] = count
    if not any(found.values()):
        return Reason(Code.POLICY_MALFORMED, f"policy: {where}: '{key}' names no domain")
    return tuple(found.items())


def tag_pairs(where: str, value: Any) -> tuple[tuple[str, str], ...] | Reason:
    """Tags as sorted pairs of texts."""
    if not isinstance(value, Mapping):
        return Reason(Code.POLICY_MALFORMED, f"{where}: 'with_tags' must be a mapping")
    return tuple(sorted((str(key), str(each)) for key, each in value.items()))


def unknown_value(where: str, key: str, value: Any, known: Any) -> Reason:
    """The refusal of a value, with those that are known: an iterable of them, or a sentence."""
    expected = known if isinstance(known, str) else ", ".join(map(str, known))
    message = f"{where}: unknown value '{value}' for '{key}'; known are {expected or COUNT}"
    return Reason(Code.POLICY_UNKNOWN_VALUE, message)
