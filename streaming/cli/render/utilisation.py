"""What nodes and domains bear of resources, in words for trees and below plans.

Amounts are written by `placement.wording`: bytes in powers of 1,000.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from placement.wording import format_amount

# Less than this reads as nothing at all.
_NOTHING = 0.005

Figures = Mapping[str, Any]
"""Load, capacity and utilisation of one node or domain, as answers have them."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Words for the nodes of a tree, by id, and for its domains, by path."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)


def usage_of(moments: Sequence[Mapping[str, Any]], peak: Mapping[str, Any] | None = None) -> Usage:
    """Describe what nodes and domains bear at each moment, and the most of nodes in between.

    `moments`, `peak`: the parts `utilisation` and `peak` of an answer.
    """
    nodes: dict[str, list[str]] = {}
    domains: dict[str, list[str]] = {}
    for resource, now in moments[0].items() if moments else ():
        of = [each[resource] for each in moments]
        for name in now["nodes"]:
            most = None if peak is None else peak[resource][name]
            said = _describe([each["nodes"][name] for each in of], most, resource, True)
            nodes.setdefault(name, []).extend(said)
        for name in now["domains"]:
            found = [each["domains"][name] for each in of if name in each["domains"]]
            domains.setdefault(name, []).extend(_describe(found, None, resource, False))
    return Usage(_join(nodes), _join(domains))


def peak_lines(peak: Mapping[str, Any]) -> list[str]:
    """Say for each resource which node is filled most on the way."""
    lines = []
    for resource, nodes in peak.items():
        filled = [(each["utilisation"], name) for name, each in nodes.items() if each["capacity"]]
        most = max((share for share, _ in filled), default=0.0)
        if most >= _NOTHING:
            name = next(name for share, name in filled if share == most)
            lines.append(f"on the way node {name} is filled most, to {most:.1%} of {resource}")
    return lines


def _describe(
    figures: Sequence[Figures], peak: Figures | None, resource: str, of_capacity: bool
) -> list[str]:
    """Describe one resource; nothing where no capacity is known and nothing is borne.

    `of_capacity`: says also what the capacity is; a domain's is that of its nodes.
    """
    capacity = figures[0]["capacity"]
    if capacity is None:
        amounts = [format_amount(each["load"], resource) for each in figures]
        borne = any(each["load"] for each in figures)
        return [f"{resource} {_way(amounts)}"] if borne else []
    text = _way([_percent(each["utilisation"]) for each in figures])
    if peak is not None and peak["load"] > max(each["load"] for each in figures):
        text += f" (up to {_percent(peak['utilisation'])})"
    return [f"{resource} {text}" + of_capacity * f" of {format_amount(capacity, resource)}"]


def _percent(share: float) -> str:
    return "<1%" if 0 < share < _NOTHING else f"{share:.0%}"


def _way(texts: Sequence[str]) -> str:
    return " → ".join(dict.fromkeys(texts))


def _join(parts: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {name: ", ".join(said) for name, said in parts.items() if said}
