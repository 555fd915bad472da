"""Goal: a tree of any fleet fits the lines it is given, hides nothing in silence, and shows what is
not up before what is.

Method: random fleets of 1 to 4 levels and some without locations, folded to random heights.
"""

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from schemas.cluster import ClusterNode
from streaming.cli.render.location_tree import build_tree, fold_tree
from streaming.cli.render.topology import TopologyTree

STATUSES = st.sampled_from(["up"] * 8 + ["dead", "suspect", "draining"])
LOCATIONS = st.lists(st.sampled_from("abc"), max_size=4).map(
    lambda tiers: "".join(f"/{tier}{depth}" for depth, tier in enumerate(tiers))
)
FLEETS = st.lists(st.tuples(LOCATIONS, STATUSES), min_size=1, max_size=60)
# Few locations of so many nodes that some are hidden.
CROWDED = st.sampled_from(["/a0", "/a0/a1", "/b0"])
CROWDS = st.lists(st.tuples(CROWDED, STATUSES), min_size=25, max_size=60)
# Fewer lines than the root, a branch, the hidden rest and the hint take are given to nobody.
LINES_MIN = 4


def fleet(rows: list[tuple[str, str]]) -> list[ClusterNode]:
    return [
        ClusterNode.model_validate(
            {"id": f"n{number}", "location": place or None, "status": status}
        )
        for number, (place, status) in enumerate(rows)
    ]


@given(FLEETS, st.integers(LINES_MIN, 80))
def test_it_fits_and_accounts_for_every_node(rows: list[tuple[str, str]], room: int) -> None:
    nodes = fleet(rows)
    tree = TopologyTree(nodes, ({},), leaders={}, lines_max=room, hint="more")
    lines = [str(line) for line in tree.lines(80)]
    assert len(lines) <= room
    assert len(lines) == fold_tree(build_tree(nodes, ({},), {}), room).lines
    hidden = sum(int(count) for line in lines for count in re.findall(r"… (\d+) nodes? more", line))
    leaves = sum(bool(re.search(r"── n\d+ ", line)) for line in lines)
    closed = sum(
        int(re.findall(r" on (\d+) node", line)[0])
        for number, line in enumerate(lines)
        if " on " in line and not opens(lines, number)
    )
    assert hidden + leaves + closed == len(nodes)
    assert (lines[-1] == "more") == bool(hidden or closed)


def opens(lines: list[str], number: int) -> bool:
    """Whether the line is followed by one below it."""
    depth = lines[number].index("── ")
    return number + 1 < len(lines) and lines[number + 1].find("── ") > depth


@given(CROWDS, st.integers(8, 20))
def test_what_is_dead_is_shown_before_what_is_up(rows: list[tuple[str, str]], room: int) -> None:
    root = build_tree(fleet(rows), ({},), {})
    tree = fold_tree(root, room)
    shown = {each.path for branch in root.walk() for each in tree.shown_children(branch)}
    cut = [each for each in root.walk() if tree.is_open(each) and tree.hidden_children(each)]
    below = [each for at in cut if at.path in shown for each in tree.shown_children(at)]
    assume(below)
    # Opened for what is not up: nothing else takes a line there.
    assert {bool(each.nodes_not_up) for each in below} == {True}


@given(FLEETS)
def test_without_a_limit_everything_is_shown(rows: list[tuple[str, str]]) -> None:
    nodes = fleet(rows)
    lines = [str(line) for line in TopologyTree(nodes, ({},), leaders={}, hint="more").lines(80)]
    assert sum("── n" in line for line in lines) == len(nodes)
    assert lines[-1] != "more"
    root = build_tree(nodes, ({},), {})
    assert not fold_tree(root).has_hidden
    assert len(lines) == sum(1 for _ in root.walk())


@given(FLEETS, st.integers(0, 4))
def test_a_path_shows_all_that_is_in_it_and_nothing_else(
    rows: list[tuple[str, str]], number: int
) -> None:
    nodes = fleet(rows)
    place = rows[number % len(rows)][0]
    parts = place.split("/")
    for path in ("/".join(parts[:count]) for count in range(2, len(parts) + 1)):
        lines = [str(each) for each in TopologyTree(nodes, ({},), path=path).lines(80)]
        inside = [node for node in nodes if f"{node.location or ''}/".startswith(f"{path}/")]
        assert lines[0] == path
        assert sum("── n" in line for line in lines) == len(inside)
