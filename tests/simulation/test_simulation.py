"""Simulated histories, judged by the oracle after every batch.

Goal: whatever happens in whatever order, and wherever the log is cut into batches, nothing that is
published is ever wrong; once the fleet is whole again and executors answer, all is as was asked.
Here a bounded number of seeds is played; `make simulate` plays thousands.
"""

from collections.abc import Callable

import pytest
import yaml

from placement.policy import RULE_KINDS
from placement.strategies import STRATEGIES
from tests.builders.drawn import share
from tests.simulation.history import Failure, History
from tests.simulation.mutations import MUTATIONS, mutated, seeds_to_catch
from tests.simulation.shrink import as_case, failing, shrink
from tests.simulation.wishes import NOT_PLAYED, POLICIES

SEEDS = 150
# Faults that are found within a few seeds; `python -m tests.simulation --mutations` tries all.
QUICKLY_FOUND = (
    "suspects_are_dead",
    "incoming_is_not_counted",
    "epochs_are_not_raised",
    "repairs_while_behind",
    "second_best_targets_are_taken",
)
# Seeds of one test, so that parts can be run by themselves.
PART = 50


def test_every_strategy_and_every_kind_of_rule_is_asked_for() -> None:
    policies = [yaml.safe_load(policy) for policy in POLICIES]
    asked = {key for policy in policies for rule in policy.get("rules", ()) for key in rule}
    assert {strategy.name for strategy in STRATEGIES.values()} <= {p["strategy"] for p in policies}
    assert set(RULE_KINDS) - asked == NOT_PLAYED


@pytest.mark.parametrize("first", range(0, share(SEEDS), PART))
def test_histories(first: int, record_property: Callable[[str, object], None]) -> None:
    record_property("seeds", PART)
    for seed in range(first, first + PART):
        try:
            History(seed).play()
        except Failure as failure:
            story = as_case(shrink(failure), f"Seed {seed}, shrunk.")
            pytest.fail(f"{failure}\n\n{story}", pytrace=False)


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_fault_can_be_put_in(name: str) -> None:
    """Every function that a fault replaces exists."""
    with mutated(name):
        pass


@pytest.mark.parametrize("name", QUICKLY_FOUND)
def test_faults_of_the_planner_are_found(name: str) -> None:
    assert seeds_to_catch(name, most=20) is not None


def test_a_failure_is_shrunk_to_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long history one command stays, and the case says how it fails."""
    monkeypatch.setattr(
        "tests.stories.story.Log.final_violations", lambda *_, **__: ["all is lost"]
    )
    with pytest.raises(Failure) as caught:
        History(3).play()
    blocks = shrink(caught.value)
    assert [block.split()[0] for block in blocks] == ["rest"]
    assert failing(blocks) is not None
    assert as_case(blocks, "Nothing.").endswith("\n----\nAssertionError: all is lost\n")
