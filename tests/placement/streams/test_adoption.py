"""Adoption: what a stream brings stays; what is missing is placed as for any other stream.

Goal: only living replicas are judged, as in diagnosis; a shard without any gets a leader that may
lead; a stream that is to be colocated and is not says so.
"""

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
