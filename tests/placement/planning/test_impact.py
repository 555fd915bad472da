"""The hash of a plan's impact: what it survives, what it does not, and what is told of changes.

Goal: a plan that was agreed to is carried out only on the fleet that was looked at.
Method: one plan on a small fleet, and the same fleet changed in every way that matters or does not.
"""

from dataclasses import replace

import pytest

from placement.model import Cause, Code, Liveness, MoveKind, NodeAttributes, Reason, StreamSpec
from placement.planning import Impact, PlannedMove, ShardState, compute_impact, find_differences
from placement.topology import Topology

SPEC = StreamSpec("s", 2, 2, {"strategy": "spread"})
WHY = Reason(Code.NODE_DEAD, "node a is dead")
MOVES = (
    PlannedMove("s", 0, MoveKind.REPLACE, "a", "c", "b", Cause.UNDER_REPLICATED, WHY),
    PlannedMove("s", 1, MoveKind.LEADER, None, None, "b", Cause.LEADER, WHY),
)
LISTS = {("s", 0): ShardState(("a", "b"), 4), ("s", 1): ShardState(("a", "b"), 7)}


def fleet(**changed: NodeAttributes) -> Topology:
    topology = Topology()
    nodes = {name: NodeAttributes(f"/{name}") for name in "abcd"} | changed
    for name, attributes in nodes.items():
        topology.upsert(name, attributes, Liveness.DEAD if name == "a" else Liveness.UP)
    return topology


def found(moves=MOVES, topology=None, spec=SPEC, lists=LISTS, **more) -> Impact:
    known = topology or fleet()
    return compute_impact(moves, known, lambda _: spec, lambda *key: lists[key], **more)


def test_what_a_plan_touches():
    seen = found()
    assert (seen.moves, seen.copies, seen.streams) == (2, 1, ("s",))
    assert seen.shards == (("s", 0), ("s", 1))
    assert list(seen.touched.nodes) == ["a", "b", "c"]
    assert seen.touched.nodes["a"]["status"] == "dead"
    assert seen.touched.shards["s/1"] == {"replicas": ["a", "b"], "epoch": 7}
    assert len(seen.hash) == 32


@pytest.mark.parametrize(
    "same",
    [
        {"moves": MOVES[::-1]},
        {"moves": tuple(replace(m, cause=Cause.DRAIN) for m in MOVES)},
        {"topology": fleet(d=NodeAttributes("/elsewhere"))},
        {"topology": fleet(e=NodeAttributes("/e"))},
        {"lists": LISTS | {("s", 2): ShardState(("d",))}},
        {"spec": replace(SPEC, policy=dict(reversed([*SPEC.policy.items()])))},
        {"load": [9, 9, 9, 9]},
    ],
)
def test_what_a_plan_does_not_touch_leaves_its_hash(same):
    assert found(**same).hash == found().hash


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"topology": fleet(c=NodeAttributes("/x"))}, 'node c: location was "/c", is "/x"'),
        (
            {"topology": fleet(b=NodeAttributes("/b", (("disk", "ssd"),)))},
            'node b: tags was {}, is {"disk": "ssd"}',
        ),
        (
            {"lists": LISTS | {("s", 0): ShardState(("b", "a"), 4)}},
            'shard s/0: replicas was ["a", "b"], is ["b", "a"]',
        ),
        (
            {"lists": LISTS | {("s", 1): ShardState(("a", "b"), 8)}},
            "shard s/1: epoch was 7, is 8",
        ),
        (
            {"lists": LISTS | {("s", 1): ShardState(("a", "b"), 7, "add - d -")}},
            'shard s/1: under_way was null, is "add - d -"',
        ),
        (
            {"spec": replace(SPEC, replication_factor=3)},
            "stream s: replication_factor was 2, is 3",
        ),
        ({"nodes": ["d"]}, "node d is new"),
    ],
)
def test_what_a_plan_touches_changes_its_hash_and_is_named(other, told):
    before, after = found(), found(**other)
    assert before.hash != after.hash
    assert list(map(str, find_differences(before.touched, after.touched))) == [told]
    assert find_differences(before.touched, before.touched) == ()


def test_other_moves_have_another_hash():
    assert found(MOVES[:1]).hash != found().hash
    assert found((replace(MOVES[0], add="d"), MOVES[1])).hash != found().hash


def test_a_full_target_is_a_change():
    """Its load counts where a node says how much it holds."""
    topology = fleet(c=NodeAttributes("/c", capacity=10))
    before = found(topology=topology, load=[1, 1, 9, 0])
    after = found(topology=topology, load=[1, 1, 10, 5])
    assert list(map(str, find_differences(before.touched, after.touched))) == [
        "node c: replicas was 9, is 10"
    ]


def test_a_target_that_is_gone():
    topology = Topology()
    for name in "ab":
        topology.upsert(name, NodeAttributes(f"/{name}"), Liveness.UP)
    gone = found(topology=topology)
    assert gone.touched.nodes["c"] == {"status": "unregistered"}


def test_violations_made_and_healed():
    class Rule:
        def __init__(self, shard, rule):
            self.stream, self.shard, self.rule, self.domain = "s", shard, rule, "/x"

    before = [Rule(0, "replicas"), Rule(None, "one domain")]
    after = [Rule(None, "one domain"), Rule(1, "even az")]
    seen = found(before=before, after=after)
    assert [(each.shard, each.rule) for each in seen.violations_made] == [(1, "even az")]
    assert [(each.shard, each.rule) for each in seen.violations_healed] == [(0, "replicas")]


def test_a_request_without_moves_has_an_impact_too():
    """A relocation that moves nothing is known by its node and the shards there."""
    parts = {"moves": (), "nodes": ["b"], "shards": [("s", 0)]}
    here = found(**parts)
    there = found(**parts, topology=fleet(b=NodeAttributes("/x")))
    assert (here.shards, here.moves) == ((("s", 0),), 0)
    assert here.hash != there.hash
