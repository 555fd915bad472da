"""`location_majority` for one more replica: what Kudu's re-replication answers.

Goal: the published tables of PlaceExtraTabletReplica, dead and REPLACE-marked members, and one
limit for planner and judge. Method: `extend` asked for many tablets, so that the lots fall in
every way.
"""

import numpy as np
import pytest

from placement.allocator import ReplicaRequest, View
from placement.assignments import AssignmentTable
from placement.model import AdministrativeState, Guard, Liveness, NodeAttributes
from placement.policy import compile_policy
from placement.rules import RuleContext
from placement.strategies import STRATEGIES
from placement.strategies.location_majority import NoMajority
from placement.topology import Topology

KUDU = {"strategy": "location_majority"}


class Extra:
    """Servers with loads, and the question where a tablet's next replica goes."""

    def __init__(self, servers, **status):
        self.topology = Topology()
        for place, held in servers.items():
            for name in held:
                liveness = Liveness(status.get(name, "up"))
                self.topology.upsert(
                    name,
                    NodeAttributes(f"/{place}"),
                    liveness,
                    AdministrativeState.NONE,
                    Guard.NONE,
                )
        self.view = View(self.topology, AssignmentTable())
        for held in servers.values():
            for name, count in held.items():
                self.view.load[self.topology.index[name]] = count

    def asked(self, kept, factor, stream_name="s", replaces=None):
        index = self.topology.index
        policy = compile_policy(None, KUDU, KUDU, self.topology, STRATEGIES)
        need = ReplicaRequest(stream_name, 0, len(kept), factor, [index[name] for name in kept])
        if replaces:
            need = need._replace(replaces=index[replaces], excluded=frozenset({index[replaces]}))
        mask = self.topology.eligible.copy()
        found = STRATEGIES["kudu"].extend(need, policy, mask, self.view)
        return self.topology.ids[found] if isinstance(found, int | np.integer) else found

    def any_of(self, kept, factor, **more):
        """Answers for many tablets: the lots fall differently."""
        return {self.asked(kept, factor, f"s{n}", **more) for n in range(60)}


VIOLATED = {
    "A": {"A0": 10, "A1": 9, "A2": 8, "A3": 0},
    "B": {"B0": 25, "B1": 50, "B2": 100},
    "C": {"C0": 0, "C1": 1, "C2": 2},
}
TEN = {
    "A": {"A0": 1, "A1": 1, "A2": 0},
    "B": {"B0": 2, "B1": 1, "B2": 1, "B3": 0},
    "C": {"C0": 1},
    "D": {"D0": 2},
    "E": {"E0": 3},
}
SIXTEEN = {
    "A": {"A0": 1, "A1": 0, "A2": 0, "A3": 0},
    "B": {"B0": 1, "B1": 0, "B2": 0, "B3": 0},
    "C": {"C0": 1, "C1": 1, "C2": 0},
    "D": {"D0": 1, "D1": 1, "D2": 0},
    "E": {"E0": 1, "E1": 0},
}


@pytest.mark.parametrize(
    ("servers", "kept", "answers"),
    [
        (VIOLATED, "A0 A1 A2", {"C0", "C1"}),
        (VIOLATED, "A0 A1 C1 C2", {"B0", "B1"}),
        (TEN, "A0 B0 C0 D0 E0", {"A2"}),
        (TEN, "A0 A1 B0 B1 C0", {"D0"}),
        (TEN, "A0 B0 B1 B2 E0", {"A2", "C0"}),
        (SIXTEEN, "C0 C1 D0 D1 E0", {"A1", "A2", "A3", "B1", "B2", "B3"}),
    ],
)
def test_the_published_extra_replicas(servers, kept, answers):
    """PlaceExtraTabletReplica*: a tablet's own replicas count twice in its locations' loads."""
    assert Extra(servers).any_of(kept.split(), len(kept.split())) == answers


def test_no_server_is_left_for_an_extra_replica():
    assert Extra({"A": {"A0": 0, "A1": 0}}).asked(["A0", "A1"], 3).code == "NODES_TOO_FEW"


def test_the_location_of_a_dead_member_is_free_again():
    """Rather a violated policy than a missing replica: docs/administration.adoc."""
    servers = {"1": {"A": 0, "B": 0}, "2": {"C": 0, "D": 0}, "3": {"E": 0}}
    assert Extra(servers, C="dead").any_of(["A", "C", "E"], 3) == {"D"}
    assert Extra(servers, E="dead").any_of(["A", "C", "E"], 3) == {"B", "D"}


def test_a_replaced_replica_does_not_join_another():
    """A REPLACE mark on a live server: Kudu counts it and may put the new one beside another."""
    servers = {place: {f"{place}{n}": 0 for n in range(2)} for place in "ABC"}
    assert Extra(servers).any_of(["B0", "C0"], 3, replaces="A0") == {"A1"}
    four = servers | {"D": {"D0": 90}}
    assert Extra(four).any_of(["B0", "C0"], 3, replaces="A0") == {"D0"}
    full = {"A": {"A0": 0, "A1": 0}, "B": {"B0": 0}, "C": {"C0": 0}}
    assert Extra(full).any_of(["B0", "C0"], 3, replaces="A0") == {"A1"}


def test_the_judge_agrees_with_the_planner():
    """One limit for both (in Kudu they differ, and an even factor was moved without end)."""
    topology = Extra({place: {f"{place}{n}": 0 for n in range(4)} for place in "ABC"}).topology
    limits = {2: 0, 3: 1, 4: 1, 5: 2, 6: 2, 7: 3, 8: 3}
    for factor, limit in limits.items():
        for count in range(1, 5):
            row = [topology.index[f"A{n}"] for n in range(count)]
            found = NoMajority().violations(RuleContext(topology, factor, row))
            assert [(f.domain, f.count, f.limit) for f in found] == (
                [("/A", count, limit)] if count > limit else []
            )
    assert NoMajority().violations(RuleContext(topology, 1, [0])) == []
