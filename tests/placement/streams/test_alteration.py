"""Revision of decisions: a degraded stream heals by the rule that its warning names, whatever the
warning says."""

from dataclasses import replace

import pytest

from placement.model import (
    AckKind,
    Configuration,
    Liveness,
    MoveAcked,
    NodeAttributes,
    NodeChanged,
    Outcome,
    StreamCreated,
)
from placement.reconciler import Reconciler
from tests.stories.records import Records

# Two of three replicas stand in one location until a third one comes.
DEGRADED = StreamCreated(1, "k", 1, 2, 3, policy={"strategy": "location_majority"})


def node(name, place, at):
    return NodeChanged(at, name, "i", 1, Liveness.UP, NodeAttributes(place))


def healed(reword):
    """The outcome when the missing location has come, after a rebuild from records whose warnings
    `reword` has written."""
    core, records = Reconciler(Configuration()), Records()
    for place, name in (("/1", "n1"), ("/1", "n2"), ("/2", "n3"), ("/2", "n4")):
        records.commit(core.apply([node(name, place, 1)], 1))
    records.commit(core.apply([DEGRADED], 1))
    decision = records.decisions["k"]
    assert decision.outcome is Outcome.DEGRADED
    warnings = tuple(map(reword, decision.warnings))
    records.decisions["k"] = replace(decision, warnings=warnings)
    core = records.rebuild(Configuration(), 1)
    records.commit(core.apply([node("n5", "/3", 2), node("n6", "/3", 2)], 2))
    done = [
        MoveAcked(3, AckKind.COMPLETED, move.move_id, move.stream, move.shard)
        for move in records.open_moves()
    ]
    assert done
    records.commit(core.apply(done, 3))
    return records.decisions["k"].outcome


@pytest.mark.parametrize("words", ["", "rule 'even per rack' is not met", "{0}, in other words"])
def test_wording_of_a_warning_decides_nothing(words):
    """Goal: a degraded stream whose rules are met again is placed, whatever its warnings say."""

    def said(warning):
        return replace(warning, message=words.format(warning.message))

    assert healed(said) is Outcome.PLACED


def test_a_warning_without_a_rule_stays():
    """Goal: what no violation would speak of is not taken back for want of one."""
    assert healed(lambda warning: replace(warning, rule=None)) is Outcome.DEGRADED
