"""Locations: what a path is, and the natural order of names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.model import (
    DEPTH_MAX,
    UNLOCATED,
    Band,
    Code,
    Location,
    Reason,
    natural_key,
    parse_location,
)

COMPONENTS = st.text("abcXYZ019_.-", min_size=1, max_size=5).filter(lambda c: c not in (".", ".."))
PATHS = st.lists(COMPONENTS, max_size=DEPTH_MAX).map(lambda parts: Location(tuple(parts)))


def parsed(text: str) -> Location:
    location = parse_location(text)
    assert isinstance(location, Location)
    return location


@given(PATHS)
def test_written_and_parsed_again(location: Location) -> None:
    assert parsed(str(location)) == location


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("eu/az1", "start with '/'"),
        ("/", "an empty component"),
        ("/eu/", "an empty component"),
        ("//eu", "an empty component"),
        ("/eu west", "'eu west'"),
        ("/eu\n", "'eu\n'"),
        ("/e\u00fc", "'e\u00fc'"),
        ("/us%2east", "'us%2east'"),
        ("/us%2fwest", "'us%2fwest'"),
        ("/us%", "'us%'"),
        ("/.", "'.' is not a name"),
        ("/eu/../us", "'..' is not a name"),
        ("/a" * (DEPTH_MAX + 1), f"at most {DEPTH_MAX}"),
    ],
)
def test_malformed_is_named(text: str, named: str) -> None:
    reason = parse_location(text)
    assert isinstance(reason, Reason)
    assert (reason.code, reason.band) == (Code.LOCATION_MALFORMED, Band.CONFIG)
    assert named in reason.message


def test_other_characters_are_percent_encoded() -> None:
    assert parsed("/us%20east/Z%C3%BCrich").components == ("us%20east", "Z%C3%BCrich")


def test_empty_is_the_unlocated_domain() -> None:
    assert parsed("") == UNLOCATED
    assert (str(UNLOCATED), UNLOCATED.depth) == ("", 0)


def test_prefixes_stop_at_the_path() -> None:
    location = parsed("/eu/az1/r7")
    assert [str(location.prefix(depth)) for depth in range(5)] == [
        "",
        "/eu",
        "/eu/az1",
        "/eu/az1/r7",
        "/eu/az1/r7",
    ]


@pytest.mark.parametrize(
    ("one", "other", "depth"),
    [
        ("/eu/az1/r1", "/eu/az1/r1", 3),
        ("/eu/az1/r1", "/eu/az1/r10", 2),
        ("/eu/az1", "/eu/az1/r1", 2),
        ("/eu/az1", "/us/az1", 0),
        ("", "/eu", 0),
    ],
)
def test_common_depth_compares_whole_components(one: str, other: str, depth: int) -> None:
    assert parsed(one).common_depth(parsed(other)) == depth
    assert parsed(other).common_depth(parsed(one)) == depth


@pytest.mark.parametrize(
    ("location", "domain", "inside"),
    [
        ("/eu/az1", "/eu", True),
        ("/eu", "/eu", True),
        ("/eu", "/eu/az1", False),
        ("/eu1", "/eu", False),
        ("", "/eu", False),
        ("/eu", "", True),
    ],
)
def test_within(location: str, domain: str, inside: bool) -> None:
    assert parsed(location).is_within(parsed(domain)) is inside


def test_natural_order() -> None:
    names = ["n1", "n2", "n10", "n010", "n1a", "n1b", "1", "a", "n", "node-0x2", "node-0x10"]
    assert sorted(names, key=natural_key) == [
        "1",
        "a",
        "n",
        "n1",
        "n1a",
        "n1b",
        "n2",
        "n010",
        "n10",
        "node-0x2",
        "node-0x10",
    ]


@given(st.text(max_size=6), st.text(max_size=6))
def test_natural_order_tells_all_names_apart(one: str, other: str) -> None:
    """Two names of one rank would leave a tie to the order in which nodes are met."""
    assert (natural_key(one) == natural_key(other)) == (one == other)
