"""Checks the name of a location: places never seen, likely typing errors, wrong tiers.

Many outages began with a typing error in a label: a node that seems to be a rack of its own makes
copies look further apart than they are.
"""

import re
from collections.abc import Collection, Mapping, Sequence

from placement.model import Code, Location, Reason, natural_key

# Two edits: one wrong, missing or additional character, or two swapped ones, which count twice.
_EDITS_MAX = 2
_COUNTS = re.compile(r"\d+|(?<![A-Za-z])[A-Za-z](?![A-Za-z])")


def find_new_domain(location: Location, places: Collection[str]) -> Location | None:
    """Find the highest domain of a location that is not among the known places."""
    prefixes = (location.prefix(depth) for depth in range(1, location.depth + 1))
    return next((prefix for prefix in prefixes if str(prefix) not in places), None)


def find_likely_meant(domain: Location, places: Collection[str]) -> str | None:
    """Find the known place beside a new domain that is spelt nearly like it.

    In natural order the first. At most two edits away, and not by numbers or single letters only,
    as `r1` and `r2`, `az-a` and `az-b`.
    """
    parent, name = str(domain.prefix(domain.depth - 1)) if domain.depth > 1 else "", str(domain)
    beside = (place for place in places if place.rpartition("/")[0] == parent and place != name)
    near = (
        place
        for place in beside
        if _is_misspelling(domain.components[-1], place.rpartition("/")[2])
    )
    return min(near, key=natural_key, default=None)


def find_tier_flaw(
    location: Location, levels: Sequence[str], places: Collection[str]
) -> Reason | None:
    """Name the flaw of a location against the declared tiers.

    One is missing, one too many, or they stand in another order, which shows in names that are
    known at another tier only.
    """
    if not levels:
        return None
    if location.depth != len(levels):
        lacking = ", ".join(levels[location.depth :])
        what = f"lacks {lacking}" if lacking else f"has more tiers than {', '.join(levels)}"
        path = str(location) or "(none)"
        message = f"location {path} {what}"
        return Reason(Code.TIERS_WRONG, message, len(levels), location.depth, seen=tuple(levels))
    known: Mapping[str, set[int]] = _tiers_of(location, places)
    apart = [
        (depth, name)
        for depth, name in enumerate(location.components)
        if known.get(name) and depth not in known[name]
    ]
    if len(apart) < 2:
        return None
    listed = ", ".join(f"{name} is a {levels[min(known[name])]}" for _, name in apart)
    order = ", ".join(levels)
    message = f"location {location} has its tiers in another order than {order}: {listed}"
    return Reason(Code.TIERS_WRONG, message, seen=tuple(levels))


def _tiers_of(location: Location, places: Collection[str]) -> dict[str, set[int]]:
    """Find the depths, from 0, at which the names of a location occur among the places."""
    found: dict[str, set[int]] = {name: set() for name in location.components}
    for place in places:
        depth, name = place.count("/") - 1, place.rpartition("/")[2]
        if name in found:
            found[name].add(depth)
    return found


def _is_misspelling(one: str, other: str) -> bool:
    if _strip_numbers(one) == _strip_numbers(other):
        return False
    return _is_within_distance(one, other, _EDITS_MAX)


def _strip_numbers(name: str) -> str:
    """Remove numbers and single letters from a name."""
    return _COUNTS.sub("", name)


def _is_within_distance(one: str, other: str, most: int) -> bool:
    """Return whether `most` insertions, deletions and replacements turn one name into the other."""
    if abs(len(one) - len(other)) > most:
        return False
    before = list(range(len(other) + 1))
    for row, mine in enumerate(one, 1):
        now = [row]
        for column, theirs in enumerate(other, 1):
            replaced = before[column - 1] + (mine != theirs)
            now.append(min(replaced, before[column] + 1, now[-1] + 1))
        before = now
    return before[-1] <= most
