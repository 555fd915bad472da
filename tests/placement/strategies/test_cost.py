"""`cost`: the rules of the source's case study, its corner cases, and the least cost by force."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from placement.diagnosis import diagnose_cluster
from placement.diagnosis.cluster import StreamToDiagnose
from placement.model import Configuration, Liveness, Published, StreamSpec
from placement.reconciler import Reconciler
from placement.state import ClusterState
from placement.state.restore import slots_of
from tests.builders.drawn import seeds
from tests.builders.placements import ask, ask_one, node, random_nodes, stream, usable

COST = {"strategy": "cost"}


def fleet(regions=2, zones=3, racks=2, nodes=1, **more):
    return [
        node(f"n{r}{z}{k}{i}", f"/g{r}/z{z}/r{k}", **more)
        for r in range(regions)
        for z in range(zones)
        for k in range(racks)
        for i in range(nodes)
    ]


def domain(location, depth):
    """The deepest component counts where a path is shorter."""
    return "/".join(location.split("/")[: depth + 1])


def broken(lists, places, factor, cold):
    """Which of the source's rules about single shards the lists break."""
    for nodes in lists:
        assert len(nodes) == len(set(nodes)) == factor + cold
        voters = [places[name] for name in nodes[:factor]]
        aside = {domain(places[name], 1) for name in nodes[factor:]}
        racks = Counter(domain(places[name], 3) for name in nodes)
        if max(racks.values()) > 1:
            yield "rack"
        if len({domain(place, 2) for place in voters}) < min(2, factor):
            yield "zones"
        if aside & {domain(place, 1) for place in voters}:
            yield "region"


def out_of_balance(lists, nodes, depth):
    """Domains beyond max(10 % of their weighted share, one replica)."""
    weight = Counter()
    live = usable(nodes)
    for each in nodes:
        if each.node_id in live:
            weight[domain(each.attributes.location, depth)] += each.attributes.weight
    held = Counter(domain(live[name], depth) for each in lists for name in each)
    total, whole = sum(held.values()), sum(weight.values())
    for name, part in weight.items():
        share = total * part / whole
        if abs(held[name] - share) > max(0.1 * share, 1) + 1e-9:
            yield name, held[name], share


def test_three_zones_and_a_cold_copy_elsewhere():
    """The case study: N=3 primaries plus one cold replica; R=2 survives a zone."""
    nodes = fleet()
    answer = ask_one(nodes, {"strategy": "bytedance"}, shards=12)
    assert answer.outcome == "placed"
    assert answer.codes == ["COST_TERMS"]
    assert answer.decision.strategy == "cost"
    assert answer.decision.shards_placed == 12
    places = usable(nodes)
    assert not list(broken(answer.replicas, places, 3, 1))
    for depth in (1, 2, 3):
        assert not list(out_of_balance(answer.replicas, nodes, depth))
    assert all(len({domain(places[n], 2) for n in each[:3]}) == 3 for each in answer.replicas)
    assert set(Counter(each[0] for each in answer.replicas).values()) == {1}


def test_the_reason_shows_the_terms():
    """Four copies on an empty cluster: 1 each for rack, zone and node; 1 + 3 + 5 in the region of
    the primaries and 1 in the other."""
    [reason] = ask_one(fleet(), COST).decision.reasons
    assert reason.band == "ok"
    assert reason.message == (
        "the cheapest placement within the rules costs 22.000: region 10.000 + zone 4.000 + "
        "rack 4.000 + node 4.000 + zones 0.000 + regions 0.000"
    )
    [reason] = ask_one(fleet(zones=2), COST).decision.reasons
    assert "zones 1000.000" in reason.message
    assert reason.message.endswith("; 1 of 1 shards in fewer than three zones")


@pytest.mark.parametrize(
    ("nodes", "policy", "factor", "code", "level"),
    [
        (fleet(regions=1), {}, 3, "DOMAINS_TOO_FEW", "region"),
        (fleet(zones=1, racks=3), {}, 3, "DOMAINS_TOO_FEW", "rack"),
        (fleet(regions=1, zones=1, racks=4), {"cold": 0}, 3, "DOMAINS_TOO_FEW", "zone"),
        (fleet(zones=2, racks=1, nodes=5), {}, 3, "DOMAINS_TOO_FEW", "rack"),
        (fleet(zones=1, racks=1, nodes=3), {}, 3, "DOMAINS_TOO_FEW", "rack"),
        (fleet(zones=1, racks=1), {}, 3, "NODES_TOO_FEW", None),
        (fleet(status="dead"), {}, 3, "NODES_TOO_FEW", None),
    ],
)
def test_what_cannot_be_met_is_rejected(nodes, policy, factor, code, level):
    answer = ask_one(nodes, COST | policy, factor=factor)
    assert answer.outcome == "rejected"
    assert answer.codes == [code]
    assert answer.decision.reasons[0].level == level
    assert answer.replicas == [[]]


def test_imbalance_is_rejected_even_if_the_rest_is_lawful():
    """Only one region can hold the primaries: it would take three quarters of the load."""
    nodes = [*fleet(zones=2, racks=1), node("x", "/g0/z0/r9")]
    assert ask_one(nodes, COST).outcome == "placed"
    answer = ask_one(nodes, COST, shards=8)
    assert answer.outcome == "rejected"
    assert answer.codes == ["RULE_NOT_MET"]
    assert "region /g0 would hold 24, limit 21" in answer.decision.reasons[0].message
    # Weights say what a domain's share is: with them the same is in balance.
    heavy = [
        node("a", "/g0/z0/r0"),
        node("b", "/g0/z1/r0"),
        node("c", "/g0/z0/r9"),
        node("d", "/g1/z0/r0", weight=0.5),
        node("e", "/g1/z1/r0", weight=0.5),
    ]
    answer = ask_one(heavy, COST, shards=8)
    assert answer.outcome == "placed"
    assert Counter(each[3] for each in answer.replicas) == {"d": 4, "e": 4}


def test_balance_is_that_of_the_cluster():
    """What other streams hold counts: the racks that are full already get nothing."""
    nodes = fleet(zones=3, racks=2)
    old = stream({"strategy": "simple"}, 1, 4, "old", replicas=[["n0000"]] * 4)
    new = stream(COST, name="new")
    answers = ask(nodes, old, new)
    assert answers["new"].outcome == "placed"
    [[*primaries, cold]] = answers["new"].replicas
    assert {name[:2] for name in primaries} == {"n1"}
    assert cold not in ("n0000", "n0010")
    # The cold copy or the primaries would have to go to the region that is full.
    old = stream({"strategy": "simple"}, 1, 5, "old", replicas=[["n0000"]] * 5)
    answers = ask(nodes, old, new)
    assert answers["new"].outcome == "rejected"
    assert "region /g0 would hold 6, limit 5" in answers["new"].decision.reasons[0].message


def test_cold_copies_are_a_parameter():
    assert len(ask_one(fleet(regions=1), COST | {"cold": 0}).replicas[0]) == 3
    [nodes] = ask_one(fleet(), COST | {"cold": 2}).replicas
    assert len(nodes) == 5
    assert not list(broken([nodes], usable(fleet()), 3, 2))
    assert len(ask_one(fleet(), COST, factor=1).replicas[0]) == 2
    for wrong in (-1, "one", 64, 1.5, None):
        answer = ask_one(fleet(), COST | {"cold": wrong})
        assert (answer.outcome, answer.codes) == ("rejected", ["POLICY_UNKNOWN_VALUE"])
        assert repr(wrong) in answer.decision.reasons[0].message
    answer = ask_one(fleet(), COST | {"cold": 2}, factor=63)
    assert answer.codes == ["REPLICATION_FACTOR_OUT_OF_RANGE"]


def test_weights_are_a_parameter():
    """Without a price of zones they are as good as load; with one of regions only, they decide."""
    nodes = [*fleet(regions=1, zones=2, racks=4), *fleet(2, 1, 4)[4:], node("x", "/g0/z2/r0")]
    assert "x" in ask_one(nodes, COST).replicas[0]
    careless = COST | {"weights": {"zones": 0, "regions": 0.5}}
    assert "x" not in ask_one(nodes, careless).replicas[0]
    for wrong in ({"colour": 1}, {"zone": -1}, {"zone": "x"}, {"rack": True}, {"rack": 1e9}):
        answer = ask_one(nodes, COST | {"weights": wrong})
        assert answer.codes == ["POLICY_UNKNOWN_VALUE"], wrong
        assert next(iter(wrong)) in answer.decision.reasons[0].message
    assert ask_one(nodes, COST | {"weights": [1]}).codes == ["POLICY_MALFORMED"]
    named = COST | {"weights": {"az": 2}}
    assert ask_one(nodes, named, levels=("region", "az", "rack")).outcome == "placed"
    assert ask_one(nodes, COST | {"color": 1}).codes == ["POLICY_UNKNOWN_KEY"]


def test_levels():
    """By name where levels have these names, else by position; short paths end early."""
    deep = [node(f"n{i}", f"/world/g{i % 2}/z{i % 6}/r{i}") for i in range(12)]
    [nodes] = ask_one(deep, COST, levels=("continent", "region", "az", "rack")).replicas
    assert len({int(name[1:]) % 2 for name in nodes[:3]}) == 1
    assert int(nodes[3][1:]) % 2 != int(nodes[0][1:]) % 2
    assert ask_one(deep, COST).codes == ["DOMAINS_TOO_FEW"]
    two = [node(f"n{i}", f"/g{i % 2}/r{i}") for i in range(8)]
    [nodes] = ask_one(two, COST, levels=("dc", "rack")).replicas
    assert [int(name[1:]) % 2 for name in nodes[1:]].count(int(nodes[0][1:]) % 2) == 2
    flat = [node(f"n{i}", f"/r{i}") for i in range(4)]
    assert ask_one(flat, COST).outcome == "placed"
    assert ask_one(flat[:3], COST).codes == ["NODES_TOO_FEW"]
    bare = [node(f"n{i}") for i in range(9)]
    assert ask_one(bare, COST).codes == ["DOMAINS_TOO_FEW"]


def test_leaders_are_nodes_that_may_lead():
    nodes = [
        node("a", "/g0/z0/r0", leader=False),
        node("b", "/g0/z0/r0"),
        node("c", "/g0/z1/r1", leader=False),
        node("d", "/g0/z2/r1", leader=False),
        node("e", "/g1/z0/r1", leader=True),
    ]
    busy = stream({"strategy": "simple"}, 1, 1, "old", replicas=[["b"]])
    answers = ask(nodes, busy, stream(COST, name="new"))
    assert answers["new"].replicas == [["b", "c", "d", "e"]]


def test_the_users_rules_and_filters_are_kept():
    nodes = [
        node(
            f"n{r}{z}{k}", f"/g{r}/z{z}/r{k}", tags={"host": f"h{k}", "disk": "ssd" if k else "hdd"}
        )
        for r in range(2)
        for z in range(3)
        for k in range(4)
    ]
    rules = [{"at_most": 1, "per": "tag:host"}]
    [held] = ask_one(nodes, COST | {"rules": rules}).replicas
    assert len({name[3] for name in held}) == 4
    [held] = ask_one(nodes, COST | {"with_tags": {"disk": "ssd"}}).replicas
    assert all(name[3] != "0" for name in held)
    [held] = ask_one(nodes, COST | {"rules": [{"leader_in": ["/g1/z2"]}]}).replicas
    assert held[0].startswith("n12")
    wish = [{"at_most": 1, "per": "tag:host", "strength": "preferred"}]
    [held] = ask_one(nodes, COST | {"rules": wish}).replicas
    assert len({name[3] for name in held}) == 4
    assert ask_one(nodes, COST | {"within": "/g0"}).outcome == "rejected"
    far = [{"exactly": {"/g0": 4}}]
    assert ask_one(nodes, COST | {"rules": far}).outcome == "rejected"


def test_lists_that_are_given_are_completed():
    """The first `replication_factor` entries are the primaries, what follows is cold."""
    nodes = fleet()
    answer = ask_one(nodes, COST, replicas=[["n0000", "n0100", "n0200", "n1000"]])
    assert (answer.outcome, answer.warned) == ("placed", [])
    for short in (["n0000"], ["n0000", "n0010"], ["n0000", "n0100", "n0200"], []):
        if len(short) == 2:
            continue
        answer = ask_one(nodes, COST, replicas=[short])
        assert answer.outcome == "placed", short
        assert answer.replicas[0][: len(short)] == short
        assert not list(broken(answer.replicas, usable(nodes), 3, 1))
    answer = ask_one(nodes, COST, replicas=[["n0000", "n0100", "n1200", "n0200"]])
    assert answer.outcome == "degraded"
    assert "role cold" in answer.decision.warnings[0].message


def follow(lists, ready):
    """Take over the lists that a batch published."""
    lists.update({shard: each.replicas for (_, shard), each in ready.assignments.items()})
    return ready


def repair(core, lists, now):
    """Run all moves to their end, and follow what they do to the lists."""
    for _ in range(50):
        if not follow(lists, core.apply([], now)).moves:
            return
    raise AssertionError(f"still moving: {lists}")


def test_repair_keeps_the_rules():
    """A dead primary and a dead cold copy are replaced in their kind; a cold copy never leads."""
    nodes = fleet(racks=3)
    core = Reconciler(Configuration(acked=False))
    core.apply(nodes, 0)
    before = {}
    follow(before, core.apply([stream(COST, shards=4)], 0))
    places = usable(nodes)
    by_id = {each.node_id: each for each in nodes}
    for position in (0, 3):
        victim = before[0][position]
        dead = by_id[victim]
        gone = type(dead)(1, victim, "i", 1, Liveness.DEAD)
        follow(before, core.apply([gone], 1))
        repair(core, before, 1)
        lists = [before[shard] for shard in sorted(before)]
        assert all(victim not in each for each in lists)
        assert not list(broken(lists, places, 3, 1))


@pytest.mark.parametrize("seed", seeds(40))
def test_random_fleets(seed):
    """Rules hold or a reason says why not; the order of nodes and of streams changes nothing."""
    rng = random.Random(seed)
    nodes = random_nodes(rng, 30)
    factor, shards = rng.choice([1, 2, 3, 3, 5]), rng.choice([1, 2, 6])
    cold = rng.choice([0, 1, 1, 2])
    policy = COST | {"cold": cold}
    answer = ask_one(nodes, policy, factor=factor, shards=shards)
    if answer.outcome == "rejected":
        assert answer.codes[0] in (
            "NODES_TOO_FEW",
            "DOMAINS_TOO_FEW",
            "RULE_NOT_MET",
            "NO_CANDIDATE",
        )
    else:
        assert answer.outcome == "placed"
        assert not list(broken(answer.replicas, usable(nodes), factor, cold))
        for depth in (1, 2, 3):
            assert not list(out_of_balance(answer.replicas, nodes, depth))
        load = Counter(name for each in answer.replicas for name in each)
        for each in nodes:
            room = each.attributes.capacity
            assert room is None or load[each.node_id] <= room
    rng.shuffle(nodes)
    assert ask_one(nodes, policy, factor=factor, shards=shards).replicas == answer.replicas


def test_roles_are_published_and_restored():
    """`roles` names the cold copy, while a move runs and after a rebuild."""
    core = Reconciler(Configuration())
    core.apply(fleet(), 0)
    ready = core.apply([stream(COST, shards=2)], 0)
    everything = ready.assignments
    assert {each.roles for each in everything.values()} == {("replica",) * 3 + ("cold",)}
    dead = everything["s", 0].replicas[3]
    gone = next(each for each in fleet() if each.node_id == dead)
    ready = core.apply([replace(gone, sequence=1, at=1, liveness=Liveness.DEAD)], 1)
    move = next(each for each, _ in ready.moves.values())
    assert (move.slot, move.add[:2]) == (3, dead[:2])
    everything |= ready.assignments
    published = Published(
        core.state.nodes.values(),
        [each.decision for each in core.state.streams.values()],
        everything.values(),
        [each for each, _ in ready.moves.values()],
        list(core.state.publisher.violations.values()),
        core.state.memory.values(),
    )
    again = Reconciler.restore(Configuration(), published, 1)
    assert again.digest == core.digest
    shards = core.state.streams["s"].shards
    for shard in shards:
        assert again.state.table.nodes(shard) == core.state.table.nodes(shard)


def test_a_cold_copy_keeps_its_slot_where_a_primary_is_missing():
    state = ClusterState(Configuration())
    core = Reconciler(state.configuration, state)
    core.apply(fleet(), 0)
    core.apply([stream(COST)], 0)
    [shard] = state.streams["s"].shards
    nodes = state.table.nodes(shard)
    state.table.set(shard, 1, -1)
    state.publisher.mark_changed(shard)
    record = state.finish().assignments["s", 0]
    assert record.roles == ("replica", "replica", "cold")
    assert slots_of(state, record) == [nodes[0], nodes[2], -1, nodes[3]]


def test_quorums_and_health_do_not_count_the_cold_copy():
    """Two of three primaries dead: unavailable, whatever the cold copy does."""
    nodes = fleet(racks=1)
    state = ClusterState(Configuration())
    for each in nodes:
        state.topology.upsert(each.node_id, each.attributes, Liveness.UP)
    compiled = state.streams.compile(None, COST)
    spec = StreamSpec("s", 1, 3, COST)
    index = state.topology.index
    held = [[index[name] for name in ("n0000", "n0100", "n0200", "n1000")]]

    def health(*dead):
        for each in nodes:
            alive = Liveness.DEAD if each.node_id in dead else Liveness.UP
            state.topology.upsert(each.node_id, each.attributes, alive)
        found = diagnose_cluster(state.topology, [StreamToDiagnose(spec, compiled, held, held)])
        return str(found.worst), {each.rule for each in found.violations}

    assert health() == ("healthy", set())
    assert health("n1000") == ("degraded", {"replicas", "load balance 0.1 per region"})
    assert health("n0100")[0] == "under_replicated"
    assert health("n0000", "n0100")[0] == "unavailable"
    assert health("n0000", "n0100", "n0200")[0] == "unavailable"
