"""Before and after, as bars: what a request or a hypothetical change does to nodes and domains."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from placement.model import natural_key
from streaming.console.elements import show_name, tag
from streaming.console.page import link_to
from streaming.console.plain_table import Cell, PlainTable, name_cell

# Those that change most; the table below a picture has every move.
NODES_SHOWN_MAX = 24
DOMAINS_SHOWN_MAX = 16
MOVES_SHOWN_MAX = 100
UNLOCATED = "(unlocated)"


@dataclass(frozen=True, slots=True)
class Change:
    """Replicas of a node or domain before and after."""

    name: str
    before: int
    after: int
    is_node: bool


def apply_moves(loads: Mapping[str, int], moves: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Count the replicas of nodes once the moves are made."""
    after = Counter(loads)
    for move in moves:
        if move.get("kind") == "leader":
            continue
        if move.get("add"):
            after[move["add"]] += 1
        if move.get("remove"):
            after[move["remove"]] -= 1
    return after


def list_changes(
    before: Mapping[str, int], after: Mapping[str, int], places: Mapping[str, str]
) -> list[Change]:
    """The top domains, then the nodes whose replicas change most. `places`: locations of nodes."""
    domains: dict[str, list[int]] = {}
    for node in {*before, *after}:
        words = places.get(node, "").split("/")[1:3]
        name = "/" + "/".join(words) if words else UNLOCATED
        both = domains.setdefault(name, [0, 0])
        both[0] += before.get(node, 0)
        both[1] += after.get(node, 0)
    found = [
        Change(name, domains[name][0], domains[name][1], is_node=False)
        for name in sorted(domains, key=natural_key)
    ]
    moved = [node for node in {*before, *after} if before.get(node, 0) != after.get(node, 0)]
    moved.sort(key=lambda node: (-abs(before.get(node, 0) - after.get(node, 0)), natural_key(node)))
    shown = sorted(moved[:NODES_SHOWN_MAX], key=natural_key)
    nodes = [Change(node, before.get(node, 0), after.get(node, 0), is_node=True) for node in shown]
    return [*found[:DOMAINS_SHOWN_MAX], *nodes]


def show_changes(changes: list[Change]) -> None:
    """Bars of domains, and of nodes, before above after."""
    for title, chosen in (
        ("Domains", [each for each in changes if not each.is_node]),
        ("Nodes that change most", [each for each in changes if each.is_node]),
    ):
        if not chosen:
            continue
        most = max(max(each.before, each.after) for each in chosen) or 1
        tag("h3", "", f"{title}: replicas before and after")
        with tag("ul", "plain changes"):
            for each in chosen:
                _show_change(each, most)


def _show_change(change: Change, most: int) -> None:
    with tag("li"):
        href = link_to("nodes", change.name) if change.is_node else link_to("", at=change.name)
        show_name(change.name, None if change.name == UNLOCATED else href)
        with tag("span", "pair", aria_hidden="true"):
            for word, count in (("before", change.before), ("after", change.after)):
                with tag("span", f"bar wide-bar {word}"):
                    tag("span").style["width"] = f"{100 * count / most:.1f}%"
        with tag("span", "figure"):
            tag("span", "hidden", "before ")
            tag("span", "", f"{change.before:,}")
            tag("span", "hidden", ", after ")
            tag("span", "soft", " → ", aria_hidden="true")
            tag("strong", "", f"{change.after:,}")


def show_move_table(moves: list[Mapping[str, Any]]) -> None:
    """The first of the moves, as rows."""
    if not moves:
        return
    waves = ("Wave",) if "wave" in moves[0] else ()
    heads = ("Shard", *waves, "Kind", "From", "To", "Why")
    shown = moves[:MOVES_SHOWN_MAX]
    PlainTable("Moves that follow", heads, [_move_cells(each, waved=bool(waves)) for each in shown])
    if len(moves) > MOVES_SHOWN_MAX:
        tag("p", "soft", f"and {len(moves) - MOVES_SHOWN_MAX:,} more")


def _move_cells(move: Mapping[str, Any], *, waved: bool) -> list[Cell]:
    href = link_to("streams", move["stream"], "shards", move["shard"])
    return [
        name_cell(f"{move['stream']}/{move['shard']}", href),
        *([str(move["wave"])] if waved else []),
        str(move["kind"]),
        name_cell(move.get("remove") or "–"),
        name_cell(move.get("add") or move.get("leader") or "–"),
        name_cell(str(move["reason"]["message"]), whole=True),
    ]
