"""Names of places: which are new, which are probably typing errors, which have the wrong tiers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.model import Location, parse_location
from placement.nodes.location_checks import find_likely_meant, find_new_domain, find_tier_flaw

PLACES = ("/eu-west", "/eu-west/az-a", "/eu-west/az-a/rack1", "/eu-west/az-a/rack12", "/us")


def at(path: str) -> Location:
    found = parse_location(path)
    assert isinstance(found, Location)
    return found


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/eu-west/az-a/rack1", None),
        ("/eu-west/az-a/rack2", "/eu-west/az-a/rack2"),
        ("/eu-west/az-b/rack1", "/eu-west/az-b"),
        ("/asia/az-a/rack1", "/asia"),
        ("", None),
    ],
)
def test_new_domain(path: str, expected: str | None) -> None:
    found = find_new_domain(at(path), PLACES)
    assert (found and str(found)) == expected


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/eu-wset", "/eu-west"),
        ("/eu-wes", "/eu-west"),
        ("/Eu-west", "/eu-west"),
        ("/eu_west", "/eu-west"),
        ("/eu-east", "/eu-west"),
        ("/eu-south", None),
        ("/uss", "/us"),
        ("/eu-west/az-a/rcak1", "/eu-west/az-a/rack1"),
        # Of several the first in natural order.
        ("/eu-west/az-a/rac12", "/eu-west/az-a/rack1"),
        # Numbers and single letters count things.
        ("/eu-west/az-a/rack2", None),
        ("/eu-west/az-a/rack123", None),
        ("/eu-west/az-b", None),
        ("/us2", None),
        # Only what stands beside it is compared.
        ("/us/rcak1", None),
    ],
)
def test_likely_meant(path: str, meant: str | None) -> None:
    assert find_likely_meant(at(path), PLACES) == meant


_names = st.text("ab1-", min_size=1, max_size=5).filter(lambda name: name not in (".", ".."))


@given(_names, _names)
def test_nearness_is_mutual(one: str, other: str) -> None:
    found = find_likely_meant(Location((one,)), [f"/{other}"]) is None
    assert found == (find_likely_meant(Location((other,)), [f"/{one}"]) is None)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/eu-west/az-a/rack1", None),
        ("/eu-west/az-a/rack9", None),
        ("/eu-west/az-a", "lacks rack"),
        ("", "(none) lacks region, zone, rack"),
        ("/eu-west/az-a/rack1/u4", "has more tiers than region, zone, rack"),
        ("/az-a/eu-west/rack1", "in another order than region, zone, rack: az-a is a zone, eu-w"),
        # One name that occurs at another tier may be a coincidence.
        ("/us/eu-west/rack1", None),
    ],
)
def test_tier_flaw(path: str, message: str | None) -> None:
    flaw = find_tier_flaw(at(path), ("region", "zone", "rack"), PLACES)
    if message is None:
        assert flaw is None
    else:
        assert flaw is not None
        assert message in flaw.message


def test_without_declared_tiers_every_depth_will_do() -> None:
    assert find_tier_flaw(at("/a/b/c/d"), (), PLACES) is None
