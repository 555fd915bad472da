"""The selector: KIP-392's rule for one rack, and ours for paths, tags and freshness."""

import random

import pytest

from placement.model import AdministrativeState, Liveness, NodeAttributes, parse_location
from placement.replica_selector import Client, Freshness, select_exact_rack, select_nearest
from placement.topology import Topology
from tests.builders.drawn import share

FLEET = {
    "n1": "/eu/az1/r1",
    "n2": "/eu/az1/r2",
    "n3": "/eu/az2/r1",
    "n10": "/eu/az10/r1",
    "n4": "/us/az1/r1",
    "n5": "",
}


def fleet(nodes=FLEET, **status):
    topology = Topology(["region", "az", "rack"])
    for name, location in nodes.items():
        tags = (("disk", "ssd"), ("zone", name[-1]))
        told = NodeAttributes(location, tags, host=f"{name}.example:9092")
        topology.upsert(name, told, Liveness(status.get(name, "up")))
    return topology


def choose(
    topology, replicas, location="", *, exact=False, fresh=None, tags=(), client="c", host=None
):
    who = Client(client, parse_location(location), tuple(tags), host)
    states = {topology.index[name]: Freshness(*state) for name, state in (fresh or {}).items()}
    rule = select_exact_rack if exact else select_nearest
    choice = rule(who, [topology.index[name] for name in replicas.split()], topology, states)
    return None if choice.node is None else topology.ids[choice.node], choice.reason


@pytest.mark.parametrize(
    ("replicas", "location", "chosen", "says"),
    [
        ("n4 n3 n2 n1", "/eu/az1/r1", "n1", "in /eu/az1/r1 with the client (3 of 3 levels)"),
        ("n4 n3 n2", "/eu/az1/r1", "n2", "in /eu/az1 with the client (2 of 3 levels)"),
        ("n4 n3", "/eu/az1/r1", "n3", "in /eu with the client"),
        # Whole components: az1 is no prefix of az10.
        ("n3 n10", "/eu/az1/r9", "n3", "as n10 is; it is the leader"),
        ("n4 n10 n3", "/eu/az1/r9", "n10", "as n3 is; the highest id breaks the tie"),
        # Nothing in common: the leader, as in KIP-392 and the vendor's selector.
        ("n4 n3", "/asia", "n4", "no replica shares a location or tag"),
        ("n4 n5", "", "n4", "it is the leader"),
        # A client deeper or shallower than the nodes.
        ("n4 n2 n1", "/eu/az1/r1/box7", "n1", "3 of 4 levels"),
        ("n4 n3 n1", "/eu", "n3", "1 of 1 levels"),
    ],
)
def test_the_longest_common_prefix_by_whole_components(replicas, location, chosen, says):
    found, reason = choose(fleet(), replicas, location)
    assert (found, says in reason) == (chosen, True), reason


@pytest.mark.parametrize(
    "standing",
    [{"client": "n3"}, {"host": "n3.example"}, {"location": "/eu/az2/r1/n3"}],
)
def test_the_clients_own_node_comes_first(standing):
    found, reason = choose(fleet(), "n1 n3", **standing)
    assert (found, reason) == ("n3", "n3 is the client's own node")


def test_without_a_location_the_most_common_tags_decide():
    found, reason = choose(fleet(), "n1 n2 n3", tags=[("disk", "ssd"), ("zone", "2")])
    assert (found, reason) == ("n2", "n2 shares 2 of the client's 2 tags")
    # A location outranks tags; tags decide between those equally near.
    assert choose(fleet(), "n1 n2 n3", "/eu/az2", tags=[("zone", "1")])[0] == "n3"
    assert choose(fleet(), "n1 n2 n3", "/eu/az1", tags=[("zone", "2")])[0] == "n2"


@pytest.mark.parametrize(
    ("fresh", "chosen", "says"),
    [
        ({"n1": (90, 0), "n2": (100, 9)}, "n2", "its log is the longest"),
        ({"n1": (100, 5), "n2": (100, 9)}, "n1", "it lags least"),
        ({"n1": (100, 9), "n2": (100, 9)}, "n2", "the highest id breaks the tie"),
        ({"n1": (100, 9)}, "n1", "its log is the longest"),
        ({"n1": (None, 5), "n2": (None, 3)}, "n2", "it lags least"),
        ({}, "n2", "the highest id breaks the tie"),
    ],
)
@pytest.mark.parametrize("exact", [False, True])
def test_among_equals_the_freshest_then_the_highest_id(fresh, chosen, says, exact):
    """Method: two followers in one rack, the leader elsewhere; both rules rank them alike."""
    topology = fleet({"n1": "/a/r1", "n2": "/a/r1", "n4": "/b/r1"})
    found, reason = choose(topology, "n4 n1 n2", "/a/r1", exact=exact, fresh=fresh)
    assert (found, says in reason) == (chosen, True), reason


def test_a_leader_among_the_nearest_is_complete_unless_it_says_otherwise():
    topology = fleet({"n1": "/a/r1", "n2": "/a/r1"})
    assert choose(topology, "n1 n2", "/a/r1", fresh={"n2": (7, 0)})[0] == "n1"
    stale = {"n1": (3, 0), "n2": (7, 0)}
    assert choose(topology, "n1 n2", "/a/r1", fresh=stale)[0] == "n2"
    # KIP-392 asks no more once the leader is in the rack.
    assert choose(topology, "n1 n2", "/a/r1", exact=True, fresh=stale)[0] == "n1"


@pytest.mark.parametrize(
    ("location", "chosen", "says"),
    [
        ("/eu/az1/r2", "n2", "n2 is at /eu/az1/r2 as the client is"),
        ("/us/az1/r1", "n4", "the leader n4 is at /us/az1/r1"),
        ("/eu/az1", "n4", "no replica is at /eu/az1, so the leader n4 serves it"),
        ("", "n4", "the client has no location"),
    ],
)
def test_exact_rack_knows_no_hierarchy(location, chosen, says):
    found, reason = choose(fleet(), "n4 n1 n2", location, exact=True)
    assert (found, says in reason) == (chosen, True), reason


@pytest.mark.parametrize("exact", [False, True])
def test_dead_replicas_are_never_chosen_and_suspect_ones_last(exact):
    topology = fleet(n1="dead", n4="suspect")
    assert choose(topology, "n1 n4 n3", "/eu/az1/r1", exact=exact)[0] == "n3"
    found, reason = choose(topology, "n1 n4", "/eu/az1/r1", exact=exact)
    assert found == "n4"
    assert reason.endswith("; it is suspect, but no replica of the shard is up")
    assert choose(topology, "n1", "/eu/az1/r1", exact=exact) == (
        None,
        "no replica lives: n1 is dead",
    )
    assert choose(topology, "", "/eu", exact=exact) == (None, "no replica is placed")


@pytest.mark.parametrize("exact", [False, True])
def test_the_leader_is_the_first_live_replica_that_may_lead(exact):
    topology = fleet(n1="dead")
    told = NodeAttributes("/us/az1/r1", leader=False)
    topology.upsert("n4", told, Liveness.UP)
    topology.upsert("n3", NodeAttributes("/eu/az2/r1"), Liveness.UP, AdministrativeState.DRAINING)
    # A draining node still has its replicas, and serves them.
    assert choose(topology, "n1 n4 n3 n2", exact=exact)[0] == "n3"


def test_the_answer_does_not_depend_on_the_order_of_nodes_and_keeps_the_rules():
    """Goal: on random fleets the choice is live, up where one is, and of the longest prefix;
    registering the fleet backwards changes nothing."""
    rng = random.Random(20_240_901)
    for _ in range(share(200)):
        nodes = {
            f"n{number}": "".join(f"/{rng.choice('ab')}" for _ in range(rng.randint(0, 3)))
            for number in range(8)
        }
        status = {name: rng.choice(["up", "up", "suspect", "dead"]) for name in nodes}
        replicas = " ".join(rng.sample(sorted(nodes), 4))
        location = "".join(f"/{rng.choice('ab')}" for _ in range(3))
        fresh = {name: (rng.choice([None, 1, 2]), rng.choice([None, 1, 2])) for name in nodes}
        forth = fleet(nodes, **status)
        back = fleet(dict(reversed(nodes.items())), **status)
        for exact in (False, True):
            found = choose(forth, replicas, location, exact=exact, fresh=fresh)
            assert found == choose(back, replicas, location, exact=exact, fresh=fresh)
            states = {status[name] for name in replicas.split()}
            usable = "up" if "up" in states else "suspect"
            assert (found[0] is None) == (states == {"dead"})
            if found[0] is None:
                continue
            assert status[found[0]] == usable
            if not exact:
                depth = {
                    name: forth.locations[forth.index[name]].common_depth(parse_location(location))
                    for name in replicas.split()
                    if status[name] == usable
                }
                assert depth[found[0]] == max(depth.values())
