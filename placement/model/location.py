"""Locations: `/`-separated paths that say where a node stands, top tier first.

Rule of the format: Kudu's location labels (components of `[A-Za-z0-9_.-]`), and RFC 3986 for other
characters: the bytes of their UTF-8 as `%` with two capital digits. Everything that counts failure
domains works on prefixes of these paths.
"""

import re
from dataclasses import dataclass

from placement.model.reasons import Code, Reason

# Eight tiers hold region, datacentre, zone, building, room, row, rack and chassis; nothing that we
# know of names more, and the columns of Topology are allocated for this many.
DEPTH_MAX = 8

_COMPONENT = re.compile(r"([A-Za-z0-9_.-]|%[0-9A-F]{2})+")
_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A path of components; the empty path is the domain of nodes without a location."""

    components: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "/" + "/".join(self.components) if self.components else ""

    @property
    def depth(self) -> int:
        """Number of components."""
        return len(self.components)

    def prefix(self, depth: int) -> "Location":
        """Return the domain at `depth`; a shorter path stands for itself."""
        return self if depth >= len(self.components) else Location(self.components[:depth])

    def common_depth(self, other: "Location") -> int:
        """Count the leading components that both paths share, compared whole."""
        shared = 0
        for mine, theirs in zip(self.components, other.components, strict=False):
            if mine != theirs:
                break
            shared += 1
        return shared

    def is_within(self, domain: "Location") -> bool:
        """Return whether this path lies in `domain` (a domain lies in itself)."""
        return self.components[: len(domain.components)] == domain.components


UNLOCATED = Location()


def parse_location(text: str) -> Location | Reason:
    """Parse `/a/b/c`; the reason names the first thing that is wrong."""
    if text == "":
        return UNLOCATED
    if not text.startswith("/"):
        return _malformed_reason(text, "it must start with '/'")
    components = tuple(text[1:].split("/"))
    if len(components) > DEPTH_MAX:
        return _malformed_reason(
            text, f"it has {len(components)} levels, at most {DEPTH_MAX} are allowed"
        )
    for component in components:
        if not _COMPONENT.fullmatch(component):
            what = f"'{component}' has characters outside [A-Za-z0-9_.-]"
            return _malformed_reason(text, what if component else "it has an empty component")
        if component in (".", ".."):
            return _malformed_reason(text, f"'{component}' is not a name")
    return Location(components)


def _malformed_reason(text: str, why: str) -> Reason:
    return Reason(Code.LOCATION_MALFORMED, f"location '{text}' is malformed: {why}")


def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Make a sort key in which runs of digits compare as numbers: n2 comes before n10."""
    return tuple(
        (0, int(part), part) if part.isdecimal() else (1, 0, part)
        for part in _DIGITS.split(text)
        if part
    )
