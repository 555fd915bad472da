"""Nodes that may not go: last copies and quorums.

Goal: a drain or maintenance that would take too much is refused with the shards named.
Method: tables of shards and of nodes that are to go; once through a running reconciler's state.
"""

from dataclasses import replace

import pytest

from placement.assignments import EMPTY
from placement.controllers.preview import affected_shards
from placement.diagnosis import (
    AffectedShard,
    exposed_after_repair,
    exposed_shards,
    exposure_reason,
    nodes_in_maintenance,
)
from placement.diagnosis.disruption import ExposedShard
from placement.model import (
    AckKind,
    AdministrativeState,
    Code,
    Configuration,
    Liveness,
    MoveAcked,
    NodeAttributes,
    NodeChanged,
    StreamCreated,
    StreamSpec,
)
from placement.policy import Policy, compile_policy
from placement.reconciler import Reconciler
from placement.state import ClusterState
from placement.strategies import STRATEGIES
from placement.topology import Topology

MAINTENANCE = AdministrativeState.MAINTENANCE
DRAINING = AdministrativeState.DRAINING


def fleet(words: str) -> Topology:
    """`n1! n2~ n3- n4`: dead, draining, in maintenance, up."""
    topology = Topology()
    orders = {"~": DRAINING, "-": MAINTENANCE}
    for word in words.split():
        name = word.rstrip("!~-")
        liveness = Liveness.DEAD if word.endswith("!") else Liveness.UP
        ordered = orders.get(word[-1], AdministrativeState.NONE)
        topology.upsert(name, NodeAttributes(f"/{name}"), liveness, ordered)
    return topology


def shard(topology, words, number=0, quorum="majority", factor=3, repair=None) -> AffectedShard:
    policy = compile_policy(None, None, {"strategy": "spread"}, topology, STRATEGIES)
    assert isinstance(policy, Policy)
    spec = StreamSpec("s", 1, factor, {}, quorum=quorum, repair=repair)
    nodes = [topology.index[word] if word != "." else EMPTY for word in words.split()]
    return AffectedShard(spec, policy, number, nodes)


@pytest.mark.parametrize(
    ("nodes", "held", "more", "away", "broken"),
    [
        ("a b c d", "a b c", {}, "a", []),
        ("a b c d", "a b c", {}, "a b", [(3, 1, 2)]),
        ("a b c d", "a b c", {}, "a d", []),
        ("a b c", "a b c", {"quorum": "one"}, "a b", []),
        ("a b c", "a b c", {"quorum": "one"}, "a b c", [(3, 0, 1)]),
        ("a b c", "a b c", {"quorum": 3}, "a", [(3, 2, 3)]),
        ("a! b c", "a b c", {}, "b", [(2, 1, 2)]),
        ("a b", "a . b", {}, "a", [(2, 1, 2)]),
        ("a b c", "a a a", {}, "a", [(1, 0, 2)]),
        # No quorum as it is: another copy less is no new harm, unless it is the last.
        ("a! b! c", "a b c", {}, "c", [(1, 0, 2)]),
        ("a b! c! d! e", "a b c d e", {"factor": 5}, "a", []),
        ("a! b!", "a b", {"factor": 2}, "a b", []),
        ("a b c", "a b c", {}, "", []),
    ],
)
def test_quorums(nodes, held, more, away, broken):
    topology = fleet(nodes)
    gone = [topology.index[name] for name in away.split()]
    found = exposed_shards(topology, [shard(topology, held, **more)], gone)
    assert [(each.live, each.left, each.quorum) for each in found] == broken


def test_shards_come_in_natural_order_and_are_named():
    topology = fleet("a b c")
    shards = [shard(topology, "a b c", number) for number in (10, 2, 1)]
    found = exposed_shards(topology, shards, [0, 1])
    assert list(map(str, found)) == ["s/1", "s/2", "s/10"]
    reason = exposure_reason(found, "without a and b")
    assert (reason.code, reason.need, reason.have) == (Code.QUORUM_BROKEN, 2, 1)
    assert reason.message == "without a and b, there would be no quorum for s/1, s/2, s/10"
    last = [*found, ExposedShard("t", 3, 1, 0, 2)]
    reason = exposure_reason(last, "without a and b")
    assert (reason.code, reason.message) == (
        Code.LAST_COPY,
        "without a and b, no copy would be left of t/3",
    )
    assert exposure_reason((), "without a") is None
    many = exposed_shards(topology, [shard(topology, "a b c", n) for n in range(12)], [0, 1])
    assert exposure_reason(many, "without a").message.endswith("s/9 and 2 more")


def test_copies_beside_the_voters_do_not_vote_but_may_be_the_last():
    topology = fleet("a b c")
    asked = {"strategy": "cost", "weights": {}}
    policy = compile_policy(None, asked, asked, topology, STRATEGIES)
    assert isinstance(policy, Policy)
    assert policy.extra_copies == 1
    one = AffectedShard(StreamSpec("s", 1, 2, asked), policy, 0, [0, 1, 2])
    assert [(each.live, each.left) for each in exposed_shards(topology, [one], [0])] == [(2, 1)]
    assert exposed_shards(topology, [one], [2]) == ()


def test_what_repair_leaves_exposed():
    topology = fleet("a~ b- c- d e")
    waits, stuck, apart = (
        shard(topology, "a c d", 0),
        shard(topology, "a c e", 1),
        shard(topology, "b c d", 2),
    )
    found = exposed_after_repair(topology, [waits, stuck, apart], {("s", 1)})
    assert list(map(str, found)) == ["s/1", "s/2"]
    kept = shard(topology, "a c e", 3, repair="dead_only")
    assert list(map(str, exposed_after_repair(topology, [kept], ()))) == ["s/3"]
    assert [topology.ids[node] for node in nodes_in_maintenance(topology)] == ["b", "c"]


def test_a_copy_under_way_is_none_yet():
    """The running reconciler's shards: while a move runs its source counts, not its target."""
    state = ClusterState(Configuration())
    reconciler = Reconciler(state.configuration, state)
    nodes = [
        NodeChanged(0, name, "i", 1, Liveness.UP, NodeAttributes(f"/{name}")) for name in "abcd"
    ]
    asked = StreamCreated(0, "s", 1, 1, 3, replicas=(("a", "b", "c"),))
    reconciler.apply([*nodes, asked], 0)
    index = state.topology.index
    drained = NodeChanged(1, "a", "i", 2, Liveness.UP, administrative=AdministrativeState.DRAINING)
    ready = reconciler.apply([drained], 1)
    ((move_id, (move, _)),) = ready.moves.items()
    assert (move.remove, move.add) == ("a", "d")
    for gone, left in (("ab", [1]), ("bd", []), ("cd", [])):
        away = [index[name] for name in gone]
        found = exposed_shards(state.topology, affected_shards(state, away), away)
        assert [each.left for each in found] == left
    reconciler.apply([MoveAcked(2, AckKind.COMPLETED, move_id, "s", 0)], 2)
    for gone, left in (("ab", []), ("bd", [1])):
        away = [index[name] for name in gone]
        found = exposed_shards(state.topology, affected_shards(state, away), away)
        assert [each.left for each in found] == left


def test_a_copy_out_of_sync_counts_for_no_quorum():
    topology = fleet("n1 n2 n3 n4!")
    whole = shard(topology, "n1 n2 n3")
    assert exposed_shards(topology, [whole], [0]) == ()
    behind = replace(whole, out_of_sync=frozenset([2]))
    found = exposed_shards(topology, [behind], [0])
    assert found == (ExposedShard("s", 0, 2, 1, 2, ("n3",)),)
    reason = exposure_reason(found, "without n1")
    assert reason is not None
    assert (reason.code, reason.need, reason.have) == (Code.QUORUM_BROKEN, 2, 1)
    assert reason.message == (
        "without n1, there would be no quorum for s/0; "
        "s/0 has 2 copies in sync, 1 would be left, its quorum is 2; not in sync: n3"
    )
    # The copy that is behind may go, and one that is on a dead node is gone anyway.
    assert exposed_shards(topology, [behind], [2]) == ()
    dead = replace(shard(topology, "n1 n4 n3"), out_of_sync=frozenset([3]))
    assert exposed_shards(topology, [dead], [0]) == (ExposedShard("s", 0, 2, 1, 2),)


def test_the_last_copy_in_sync_is_named():
    topology = fleet("n1 n2 n3")
    behind = replace(shard(topology, "n1 n2 n3"), out_of_sync=frozenset([1, 2]))
    reason = exposure_reason(exposed_shards(topology, [behind], [0]), "without n1")
    assert reason is not None
    assert reason.code is Code.LAST_COPY
    assert "no copy in sync would be left of s/0" in reason.message
    assert "s/0 has 1 copy in sync, 0 would be left" in reason.message
