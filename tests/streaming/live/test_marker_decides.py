"""The live state is judged as the reconciler judges, whatever the caller's settings are.

Levels and the default policy come with the commit marker. A stream that this installation cannot
read is named; it was missing among the healthy ones before.
"""

import pytest

from schemas.topics import COMMITS, DECISIONS
from streaming.cli.render.status import StatusScreen
from streaming.live.cell_status import CellStatus, read_status
from streaming.live.published_state import StateRecords
from tests.builders.screens import CELL, World, rendered
from tests.stories.datadriven import parse_command

POLICY = "policy='{rules: [{at_most: 1, per: site}]}'"


@pytest.fixture
def world() -> World:
    world = World()
    world.answer(parse_command("settings levels=site default='{strategy: multi_level}'"))
    world.answer(parse_command("topology", ["/a n1 n2", "/b n3", "/c n4"]))
    world.answer(parse_command(f"create stream=s shards=4 rf=3 {POLICY}"))
    world.answer(parse_command("create stream=other shards=2 rf=2"))
    return world


def seen_with(world: World, *levels: str) -> StateRecords:
    """The same topics, read by somebody whose settings have these levels."""
    live = StateRecords(CELL, "placement.", levels)
    live.latest = world.live.latest
    return live


def status(live: StateRecords, world: World) -> CellStatus:
    return read_status(live, world.at_ms, {})


@pytest.mark.parametrize("levels", [(), ("zone",), ("region", "site")])
def test_levels_are_those_of_the_reconciler(world: World, levels: tuple[str, ...]) -> None:
    expected = status(world.live, world)
    assert (expected.is_healthy, expected.unjudged) == (True, {})
    live = seen_with(world, *levels)
    assert status(live, world).body() == expected.body()
    assert live.cluster() == world.live.cluster()
    assert live.default_policy() == {"strategy": "multi_level"}


def test_without_a_commit_the_given_levels_and_policy_stand(world: World) -> None:
    live = seen_with(world, "zone")
    live.latest = live.latest | {COMMITS: {}}
    assert (live.levels, live.default_policy()) == (("zone",), None)


def test_streams_that_cannot_be_judged_are_named(world: World) -> None:
    decision = world.live.latest[DECISIONS]["s"]
    decision["spec"]["policy"] = {"strategy": "of_a_plug_in"}
    found = status(world.live, world)
    assert not found.is_healthy
    ((name, reason),) = found.unjudged.items()
    assert name == "s"
    assert "of_a_plug_in" in reason
    assert found.body()["unjudged"] == {name: reason}
    screen = rendered(StatusScreen(found), None)
    assert f"s could not be judged: {reason}" in screen
