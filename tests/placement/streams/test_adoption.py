"""Adoption: what a stream brings stays; what is missing is placed as for any other stream.

Goal: only living replicas are judged, as in diagnosis; a shard without any gets a leader that may
lead; a stream that is to be colocated and is not says so. One of any size is adopted by
observations.
"""

from placement.model import (
    Configuration,
    Liveness,
    NodeAttributes,
    NodeChanged,
    Outcome,
    ReplicasObserved,
    StreamCreated,
)
from placement.reconciler import Reconciler
from tests.builders.placements import ask, node, stream

KUDU = {"strategy": "location_majority"}
AWARE = {"strategy": "awareness", "attributes": ["zone"]}


def test_a_dead_replica_breaks_no_rule():
    """The new one stands beside the dead one, which is no majority of its location."""
    nodes = [node("a", "/1"), node("b", "/2", status="dead"), node("c", "/2"), node("d", "/3")]
    answer = ask(nodes, stream(KUDU, 4, replicas=[["a", "b", "d"]]))["s"]
    assert answer.replicas == [["a", "b", "d", "c"]]
    assert (answer.outcome, answer.warned) == ("placed", [])


def test_a_shard_without_replicas_gets_a_leader_that_may_lead():
    """The strategy fills it replica by replica, the least loaded first."""
    nodes = [node(f"n{n}", tags={"zone": f"z{n}"}, leader=n == 2) for n in range(3)]
    answer = ask(nodes, stream(AWARE, 3, 3, replicas=[["n2", "n0", "n1"]]))["s"]
    assert (answer.outcome, [row[0] for row in answer.replicas]) == ("placed", ["n2"] * 3)


def test_given_replicas_that_are_not_colocated_are_a_warning():
    nodes = [node(f"n{n}", f"/r{n}") for n in range(4)]
    policy = {"strategy": "multi_level", "rules": [{"colocate": "slots"}]}
    given = [["n0", "n1"], ["n0", "n2"], ["n0", "n1"]]
    answer = ask(nodes, stream(policy, 2, 3, replicas=given))["s"]
    assert (answer.outcome, answer.replicas) == ("degraded", given)
    [warning] = answer.decision.warnings
    assert warning.message == "the given replicas of shards 1 break the rule 'colocate slots'"
    whole = ask(nodes, stream(policy, 2, 3, replicas=[["n0", "n1"]]))["s"]
    assert (whole.outcome, whole.replicas) == ("placed", [["n0", "n1"]] * 3)


def test_ten_thousand_shards_are_adopted_in_chunks():
    """As many as fit into a record of 64 KiB; half of them before the others, in two batches."""
    ids, shards, chunk = [f"broker-{n}" for n in range(30)], 10_000, 500
    lists = [tuple(ids[(shard + n) % 30] for n in range(3)) for shard in range(shards)]
    core = Reconciler(Configuration())
    racks = [NodeAttributes(f"/r{n % 3}") for n in range(30)]
    up = zip(ids, racks, strict=True)
    core.apply([NodeChanged(0, name, "i", 1, Liveness.UP, rack) for name, rack in up], 0)
    core.apply([StreamCreated(1, "big", 1, shards, 3, adopt="observed")], 1)
    found = [
        ReplicasObserved(2, "big", at, 0, lists[at], following=tuple(lists[at + 1 : at + chunk]))
        for at in range(0, shards, chunk)
    ]
    ready = core.apply(found[1::2], 2)
    stream = core.state.streams["big"]
    (awaited,) = stream.decision.reasons
    assert (awaited.need, awaited.have) == (10_000, 5_000)
    assert len(ready.assignments) == 5_000
    ready = core.apply(found[::2], 3)
    assert stream.decision.outcome is Outcome.PLACED
    assert not ready.moves
    assert not ready.violations
    held = [core.state.current_replicas(shard) for shard in stream.shards]
    names = core.state.topology.ids
    assert [tuple(names[node] for node in nodes) for nodes in held] == lists
