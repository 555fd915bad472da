"""Goal: deciding whether a more urgent action supersedes an open move changes nothing.

Method: a replica moves off a draining node when another one is lost. The decision about a plan
without that move fails half-way; the state of record has to be as before.
"""

from collections.abc import Iterator

import pytest

from placement.allocator import View
from placement.model import (
    AdministrativeState,
    Cause,
    Configuration,
    Liveness,
    NodeAttributes,
    NodeChanged,
    StreamCreated,
)
from placement.reconciler import Reconciler
from placement.repair.actions import ActionFinder
from placement.repair.needs import ShardNeeds

SHARD = 0


def node(
    name: str,
    at: int,
    liveness: Liveness = Liveness.UP,
    administrative: AdministrativeState | None = None,
) -> NodeChanged:
    """A node in a zone of its own."""
    attributes = NodeAttributes(f"/z{name}")
    return NodeChanged(at, name, "a", at, liveness, attributes, administrative=administrative)


@pytest.fixture
def core() -> Reconciler:
    """A core with a move off a draining node, and another node lost while the source is behind."""
    core = Reconciler(Configuration())
    core.apply([node(f"n{number}", 1) for number in range(5)], 1)
    (placed,) = core.apply([StreamCreated(2, "s", 1, 1, 3)], 2).assignments.values()
    _, drained, lost = placed.replicas
    core.apply([node(drained, 3, administrative=AdministrativeState.DRAINING)], 3)
    core.apply([node(lost, 4, Liveness.DEAD)], 4, caught_up=False)
    (opened,) = core.state.ledger.by_shard.values()
    assert opened.move.cause is Cause.DRAIN
    return core


def test_a_decision_that_fails_leaves_the_state_of_record(
    core: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, opened = core.state.table, core.state.ledger.by_shard[SHARD]
    size = core.state.topology.size

    def known() -> tuple[object, ...]:
        loads = table.load(size).tolist(), table.leaders(size).tolist()
        return core.digest, table.nodes(SHARD), loads, dict(core.state.ledger.by_shard)

    before, seen = known(), []

    def fail(_: ActionFinder, needs: ShardNeeds, view: View) -> Iterator[object]:
        seen.append((needs.nodes, view.replicas(SHARD), int(view.load[opened.added])))
        raise RuntimeError("half-way")

    with monkeypatch.context() as patch:
        patch.setattr(ActionFinder, "actions_of", fail)
        with pytest.raises(RuntimeError, match="half-way"):
            core.apply([], 5)
    planned = table.nodes(SHARD)
    planned[opened.move.slot] = opened.removed
    assert seen == [(planned, planned, 0)], "the decision is about a plan without the move"
    assert known() == before
