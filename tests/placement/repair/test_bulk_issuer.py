"""Goal: moves that are issued many at once are those that are issued one by one, in their order.

Method: two nodes die that hold some hundred shards each, of streams with other policies and
replication factors, with room for a few moves or for all; the same is decided by looking at each
shard alone.
"""

from typing import Any

import pytest

from placement.allocator import node_classes
from placement.model import (
    AckKind,
    Configuration,
    Limits,
    Liveness,
    MoveAcked,
    MoveState,
    NodeAttributes,
    NodeChanged,
    Ready,
    StreamCreated,
)
from placement.reconciler import Reconciler
from placement.repair import triage
from placement.repair.bulk_issuer import BulkIssuer

NEVER = 1 << 40
NODES, RACKS = 24, 8
LIMITED = Limits(max_open=40, max_in_per_node=3)
Stream = tuple[str, int, dict[str, Any] | None]
# Fewer targets than for the streams that follow the default; node n3 is in the last of the zones.
INSIDE: dict[str, Any] = {"strategy": "spread", "within": ["/z0", "/z1", "/z3"]}
# Name, replication factor and policy.
ALIKE: list[Stream] = [("a", 3, None), ("b", 3, None)]
MIXED: list[Stream] = [*ALIKE, ("two", 2, None), ("inside", 3, INSIDE)]


def node(number: int, at: int, liveness: Liveness = Liveness.UP) -> NodeChanged:
    """A node of a rack, of which each zone has two."""
    rack = number % RACKS
    attributes = NodeAttributes(f"/z{rack % 4}/r{rack}")
    return NodeChanged(at, f"n{number}", "a", at, liveness, attributes)


def deaths(limits: Limits, acked: bool, streams: list[Stream]) -> list[Ready]:
    """What is decided when two nodes die, one after the other, and moves end in between."""
    core = Reconciler(Configuration(levels=("zone", "rack"), limits=limits, acked=acked))
    core.apply([node(number, 1) for number in range(NODES)], 1)
    created = [
        StreamCreated(2, name, 1, 300, factor, policy=asked) for name, factor, asked in streams
    ]
    assert not core.apply(created, 2).refused
    found = [core.apply([node(3, 3, Liveness.DEAD)], 3)]
    opened = [move for move, _ in found[0].moves.values() if move.state is MoveState.ISSUED]
    ends = [
        MoveAcked(4, kind, move.move_id, move.stream, move.shard)
        for move, kind in zip(opened, [AckKind.COMPLETED, AckKind.FAILED] * 9, strict=False)
    ]
    found.append(core.apply(ends, 4))
    found.append(core.apply([node(8, 5, Liveness.DEAD)], 5))
    return found


@pytest.mark.parametrize(
    ("limits", "acked", "classed_from"),
    [
        (LIMITED, True, 1),
        (LIMITED, True, NEVER),
        (LIMITED, False, 1),
        (Limits(max_in_per_node=1_000, max_copies_from_node=1_000), True, 1),
        (Limits(max_in_per_node=1), True, 1),
        (Limits(max_copies_from_node=1), True, 1),
        (Limits(max_per_domain_pair=2, max_touching_per_node=2), True, 1),
    ],
    ids=["waiting", "node by node", "not asked", "all", "full nodes", "busy sources", "pairs"],
)
def test_moves_of_many_are_those_of_each(
    limits: Limits, acked: bool, classed_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_classes, "CLASSED_FROM", classed_from)
    at_once = deaths(limits, acked, MIXED)
    monkeypatch.setattr(triage, "TRIAGED_FROM", NEVER)
    alone = deaths(limits, acked, MIXED)
    for many, each in zip(at_once, alone, strict=True):
        assert [*many.moves.items()] == [*each.moves.items()]
        assert many.assignments == each.assignments
        assert many.violations == each.violations
    assert at_once[0].moves


def test_the_second_of_two_deaths_is_issued_at_once_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_classes, "CLASSED_FROM", 1)
    asked: list[int] = []
    issue = BulkIssuer.issue

    def counted(self: BulkIssuer, shards: list[int], *rest: object) -> object:
        asked.append(len(shards))
        return issue(self, shards, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(BulkIssuer, "issue", counted)
    ready = deaths(LIMITED, True, ALIKE)
    assert asked[0] == len(ready[0].moves) == LIMITED.max_open
