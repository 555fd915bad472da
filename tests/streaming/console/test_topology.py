"""Goal: the picture of the topology has areas in proportion, and its domains add up.

Method: layouts and domains of fleets by example, without a browser.
"""

import random
from typing import Any

import pytest

from streaming.console.table import Column, TableQuery, select_rows
from streaming.console.topology import (
    UNLOCATED,
    Spread,
    fleet_of,
    list_children,
    list_grandchildren,
    list_spread,
)
from streaming.console.treemap import HEIGHT, WIDTH, lay_out


def node(name: str, location: str, status: str = "up", replicas: int = 1) -> dict[str, Any]:
    return {
        "node": name,
        "location": location,
        "status": status,
        "replicas": replicas,
        "weight": 1.0,
    }


FLEET = fleet_of(
    [
        node("n1", "/a/r1", replicas=4),
        node("n2", "/a/r2", "dead", 0),
        node("n3", "/b/r1", "suspect", 2),
        node("n10", "/b/r1", replicas=2),
        node("n5", UNLOCATED),
        node("n6", "/b", replicas=0),
    ]
)


def test_domains_add_up_and_look_like_their_worst() -> None:
    top = {each.path: each for each in list_children(FLEET, "")}
    assert [*top] == [UNLOCATED, "/a", "/b"]
    assert (top["/a"].nodes, top["/a"].up, top["/a"].replicas) == (2, 1, 4)
    assert [top[path].tone for path in top] == ["good", "bad", "warn"]
    assert top["/a"].load == pytest.approx(4 / 2 / (9 / 6), abs=0.001)
    inside = list_children(FLEET, "/b")
    assert [(each.path, each.is_node) for each in inside] == [("/b/r1", False), ("n6", True)]
    assert [each.path for each in list_children(FLEET, "/b/r1")] == ["n3", "n10"]
    assert [each.path for each in list_children(FLEET, UNLOCATED)] == ["n5"]
    assert list_children(FLEET, "/nowhere") == []


def test_what_is_inside_is_measured_by_the_whole_fleet() -> None:
    inner = {each.path: within for each, within in list_grandchildren(FLEET, "")}
    assert [each.path for each in inner["/a"]] == ["/a/r1", "/a/r2"]
    assert inner["/a"][0].load == list_children(FLEET, "/a")[0].load


def test_the_replicas_of_a_stream_are_counted_in_the_top_domains() -> None:
    held = {"n1": 2, "n3": 1, "n10": 4, "n5": 1}
    spread = list_spread(FLEET, held)
    assert spread == [Spread(UNLOCATED, 1), Spread("/a", 2), Spread("/b", 5)]


@pytest.mark.parametrize("count", [1, 2, 7, 60, 250])
def test_areas_are_in_proportion_and_fill_the_box(count: int) -> None:
    drawn = random.Random(count)
    sizes = sorted((drawn.uniform(0.1, 50) for _ in range(count)), reverse=True)
    places = lay_out(sizes, WIDTH, HEIGHT)
    assert len(places) == count
    scale = WIDTH * HEIGHT / sum(sizes)
    for size, (left, top, width, height) in zip(sizes, places, strict=True):
        assert width * height == pytest.approx(size * scale)
        assert -1e-6 <= left <= left + width <= WIDTH + 1e-6
        assert -1e-6 <= top <= top + height <= HEIGHT + 1e-6
    for n, one in enumerate(places):
        for other in places[n + 1 :]:
            wide = min(one[0] + one[2], other[0] + other[2]) - max(one[0], other[0])
            high = min(one[1] + one[3], other[1] + other[3]) - max(one[1], other[1])
            assert wide < 1e-6 or high < 1e-6


def test_equal_areas_are_nearly_squares() -> None:
    ratios = [width / height for _, _, width, height in lay_out([1.0] * 40, WIDTH, HEIGHT)]
    assert len(ratios) == 40
    assert 0.5 < min(ratios) <= max(ratios) < 2


ROWS = [
    {"name": "n2", "size": 5, "tags": ["x"]},
    {"name": "N10", "size": None, "tags": []},
    {"name": "n1", "size": 7, "tags": ["rack-9"]},
]
COLUMNS = (
    Column("name", "Name", searched=True),
    Column("size", "Size"),
    Column("tags", "Tags", searched=True),
)


def names(query: TableQuery) -> list[str]:
    return [row[0] for row in select_rows(ROWS, COLUMNS, query).rows]


def test_rows_are_searched_sorted_and_cut() -> None:
    assert names(TableQuery(search="n1")) == ["N10", "n1"]
    assert names(TableQuery(search="RACK")) == ["n1"]
    assert names(TableQuery(sort="name")) == ["N10", "n1", "n2"]
    assert names(TableQuery(sort="size")) == ["n2", "n1", "N10"]
    assert names(TableQuery(sort="size", descending=True)) == ["n1", "n2", "N10"]
    assert names(TableQuery(page=1, size=2)) == ["n1"]
    assert names(TableQuery(filters={"size": "5"})) == ["n2"]
    found = select_rows(ROWS, COLUMNS, TableQuery(search="n", size=1))
    assert (found.found, found.total, len(found.rows)) == (3, 3, 1)
