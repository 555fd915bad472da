"""What is said of many shards, and of nodes by class, is what is said of each alone."""

from operator import itemgetter

import pytest

from placement.allocator import node_classes
from placement.model import Ready
from placement.reconciler import Reconciler
from placement.repair import triage
from tests.builders.drawn import seeds
from tests.oracle.log import records_of
from tests.simulation.history import History

SEEDS = 12
NEVER = 1 << 40


def published(seed: int, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """All records of one random history, those of a batch by topic and key."""
    found: list[object] = []
    apply = Reconciler.apply

    def kept(core: Reconciler, *arguments: object) -> Ready:
        ready = apply(core, *arguments)  # type: ignore[arg-type]
        found.extend(sorted(records_of(ready), key=itemgetter(0, 1)))
        return ready

    with monkeypatch.context() as patched:
        patched.setattr(Reconciler, "apply", kept)
        History(seed).play()
    assert found
    return found


@pytest.mark.parametrize("seed", seeds(SEEDS, first=1_000))
def test_many_at_once_are_treated_as_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triage, "TRIAGED_FROM", 1)
    monkeypatch.setattr(node_classes, "CLASSED_FROM", 1)
    at_once = published(seed, monkeypatch)
    monkeypatch.setattr(triage, "TRIAGED_FROM", NEVER)
    monkeypatch.setattr(node_classes, "CLASSED_FROM", NEVER)
    assert published(seed, monkeypatch) == at_once
