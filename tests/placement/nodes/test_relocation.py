"""Relabelling: what the stories do not show of it."""

from copy import deepcopy
from unittest.mock import DEFAULT, Mock

import pytest

from placement.nodes import AdministrativeOrders, relocation_forecast
from placement.nodes.relocation_forecast import RelocationForecaster
from placement.planning import plan
from placement.state import ReadModel
from tests.stories.datadriven import parse_command
from tests.stories.story import Story

FLEET = """topology
/x/r1 n1 n2
/x/r2 n3
/y/r1 n4"""
TOO_FEW = "create stream=s rf=3 policy='{within: [/x], rules: [{at_most: 1, per: location}]}'"


def told(*lines: str) -> Story:
    story = Story()
    for line in lines:
        first, *rest = line.split("\n")
        story.answer(parse_command(first, rest) if rest else parse_command(first))
    return story


def test_the_old_place_vanishes_from_all_that_stands() -> None:
    """PD showed an old label until the leader changed (tikv/pd#4825). A decision is the answer that
    was given then, and keeps what it saw."""
    records = (story := told(FLEET, TOO_FEW)).records
    assert "/x/r2" in repr(records.nodes)
    assert "/x/r2" in repr(records.violations)
    story.answer(parse_command("relocate node=n3 location=/x/r3"))
    standing = {name: each for name, each in vars(records).items() if name != "decisions"}
    assert "/x/r3" in repr(standing["nodes"])
    assert "/x/r3" in repr(standing["violations"])
    assert "/x/r2" not in repr(standing)


def test_an_impact_leaves_no_trace() -> None:
    """What is only looked at changes nothing: the reconciler goes on as its twin from the records,
    which has never looked."""
    story = told("settings relocate_up_to=0", FLEET, TOO_FEW, "create stream=t rf=2 shards=9")
    story.answer(parse_command("relocate node=n3 location=/z/r1"))
    assert story.records.nodes["n3"].pending is not None
    story.answer(parse_command("rebuild"))
    story.answer(parse_command("dead nodes=n2"))
    story.answer(parse_command("rebuild"))
    story.answer(parse_command("rest whole=no"))


@pytest.mark.parametrize("calls", [0, 1], ids=["plan of now", "plan of what would be"])
def test_an_exception_in_a_forecast_leaves_the_state_as_it_was(
    monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """A process that goes on after it decides from the state of record, not from the forecast."""
    story = told("settings relocate_up_to=0", FLEET, TOO_FEW, "create stream=t rf=2 shards=9")
    story.answer(parse_command("relocate node=n3 location=/z/r1"))
    state = story.reconciler.state
    plans = Mock(wraps=plan, side_effect=[DEFAULT] * calls + [RuntimeError])
    monkeypatch.setattr(relocation_forecast, "plan", plans)
    before = facts(state)
    forecaster = RelocationForecaster(state, AdministrativeOrders(state))
    with pytest.raises(RuntimeError):
        forecaster.impact_of(["n3"])
    assert facts(state) == before
    assert "/z" not in map(str, state.topology.domains)


def facts(state: ReadModel) -> tuple[object, ...]:
    """What the reconciler decides from: nodes, domains, replicas, and the digest of it all."""
    topology, table = state.topology, state.table
    nodes = (topology.ids, topology.attributes, topology.locations, topology.liveness)
    conditions = (topology.administrative, topology.guard, topology.index)
    domains = [topology.domain_of(scope).tolist() for scope in topology.tiers()]
    columns = (topology.eligible, topology.lost, topology.counts_for_rules)
    flags = [column.tolist() for column in columns]
    replicas = {index: rows.tolist() for index, rows in table.streams()}
    known = (nodes, conditions, topology.domains, domains, flags, replicas)
    return deepcopy(known), dict(state.nodes), str(state.publisher.current_digest())
