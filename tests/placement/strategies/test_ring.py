"""`ring`: the tutorial's walks, in their stated intent, and what joins and leaves change.

Goal: the list of every key. Method: the tutorial's own examples; a plain walk that knows nothing of
tokens but their order, on random fleets; and the lists before and after a node comes or goes.
"""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from placement.allocator import ring_of
from placement.model import Configuration, Liveness, NodeAttributes
from placement.reconciler import Reconciler
from placement.topology import Topology
from tests.builders.drawn import share
from tests.builders.placements import ask, ask_one, node, random_nodes, stream, usable

ROOT = Path(__file__).resolve().parents[3]
LEVELS = ("region", "az", "rack")


def on_ring(order, place):
    """Nodes in the order of their tokens 0, 10, 20, …"""
    return [node(name, place(name), [10 * i]) for i, name in enumerate(order.split())]


TUTORIAL = on_ring("C3 C4 A1 B3 A3 A4 B1 B2 A2 B4 C1 C2", lambda name: f"/{name[0]}")


@pytest.mark.parametrize(
    ("key", "naive", "aware"),
    [
        (40, "A3 A4 B1", "A3 B1 C1"),
        (90, "B4 C1 C2", "B4 C1 A1"),
        (0, "C3 C4 A1", "C3 A1 B3"),
        (111, "C3 C4 A1", "C3 A1 B3"),
    ],
)
def test_three_keys_on_a_12_node_cluster(key, naive, aware):
    """The tutorial's table: cart:42, cart:99 and user:alice, on a ring that gives its lists."""
    plain = ask_one(TUTORIAL, {"strategy": "ring", "levels": []}, tokens=[key])
    assert (plain.outcome, plain.replicas) == ("placed", [naive.split()])
    answer = ask_one(TUTORIAL, {"strategy": "ring"}, tokens=[key])
    assert (answer.outcome, answer.replicas) == ("placed", [aware.split()])


EIGHT = on_ring("A B C D E F G H", lambda name: "/rack-1" if name in "ABCD" else "/rack-2")


def test_too_few_racks_fall_back_in_the_order_of_the_walk_with_a_warning():
    """The tutorial's A-H: adds E, skips F, G, H, adds A, then falls back to F."""
    answer = ask_one(EIGHT, {"strategy": "ring"}, tokens=[35])
    assert (answer.outcome, answer.replicas) == ("degraded", [["E", "A", "F"]])
    [warning] = answer.decision.warnings
    assert (warning.code, warning.need, warning.have) == ("DOMAINS_TOO_FEW", 3, 2)
    assert warning.seen == ("/rack-1", "/rack-2")
    assert "2 domains seen: /rack-1, /rack-2" in warning.message


@pytest.mark.parametrize(
    ("more", "outcome", "replicas"),
    [
        ({"strict": True}, "rejected", []),
        ({"on_infeasible": "reject"}, "rejected", []),
        ({"strict": True, "on_infeasible": "wait"}, "waiting", []),
        ({"on_infeasible": "partial"}, "partial", ["E", "A"]),
        ({"strict": True, "on_infeasible": "degrade"}, "degraded", ["E", "A", "F"]),
    ],
)
def test_strict_and_what_becomes_of_the_rule(more, outcome, replicas):
    answer = ask_one(EIGHT, {"strategy": "ring"} | more, tokens=[35])
    assert (answer.outcome, answer.replicas) == (outcome, [replicas])
    if outcome != "degraded":
        [reason] = answer.decision.reasons
        assert (reason.code, reason.need, reason.have) == ("DOMAINS_TOO_FEW", 3, 2)
        assert reason.seen == ("/rack-1", "/rack-2")


def test_nodes_that_run_out_reject():
    for more in ({}, {"strict": True}, {"levels": []}):
        answer = ask_one(EIGHT[:2], {"strategy": "ring"} | more)
        assert answer.outcome == "rejected"
    assert answer.codes == ["NODES_TOO_FEW"]


def test_a_fresh_region_comes_before_a_fresh_zone_before_a_fresh_rack():
    """The printed `preference_list_full` would answer a b c, `RackAwareRing` a b c."""
    order = ["a /eu/z1/r1", "b /eu/z1/r2", "c /eu/z2/r1", "d /us/z1/r1", "e /us/z1/r2"]
    nodes = [node(each.split()[0], each.split()[1], [i]) for i, each in enumerate(order)]
    for factor, expected in ((2, "a d"), (3, "a d c"), (4, "a d c b"), (5, "a d c b e")):
        asked = {"strategy": "ring", "levels": list(LEVELS)}
        answer = ask_one(nodes, asked, factor=factor, tokens=[0], levels=LEVELS)
        assert (answer.outcome, answer.replicas) == ("placed", [expected.split()])
        default = ask_one(nodes, {"strategy": "ring"}, factor=factor, tokens=[0], levels=LEVELS)
        assert default.replicas == answer.replicas
    single = ask_one(nodes, {"strategy": "ring", "levels": ["rack"]}, tokens=[0], levels=LEVELS)
    assert single.replicas == [["a", "b", "c"]]


def test_levels_may_be_tags():
    nodes = [node(f"n{i}", tokens=[i], tags={"power": "xxyz"[i]}) for i in range(4)]
    asked = {"strategy": "ring", "levels": "tag:power"}
    assert ask_one(nodes, asked, tokens=[0]).replicas == [["n0", "n2", "n3"]]
    answer = ask_one(nodes, {"strategy": "ring", "levels": ["floor"]})
    assert (answer.outcome, answer.codes) == ("rejected", ["LEVEL_UNKNOWN"])


@pytest.mark.parametrize(
    ("more", "part"),
    [({"vnodes": 0}, "vnodes"), ({"vnodes": "many"}, "vnodes"), ({"strict": "yes"}, "strict")],
)
def test_unknown_values_are_named(more, part):
    answer = ask_one(EIGHT, {"strategy": "ring"} | more)
    assert (answer.outcome, answer.codes) == ("rejected", ["POLICY_UNKNOWN_VALUE"])
    assert part in answer.decision.reasons[0].message


SMOKE = [node(f"{rack}{i}", f"/dc/az/{rack}") for rack in "ABC" for i in range(1, 5)]


def test_the_smoke_test_of_the_source():
    """12 nodes, 3 racks, 16 vnodes: every key lands on three distinct racks."""
    answer = ask_one(SMOKE, {"strategy": "ring", "vnodes": 16, "strict": True}, shards=1000)
    assert answer.outcome == "placed"
    assert {tuple(sorted(name[0] for name in each)) for each in answer.replicas} == {
        ("A", "B", "C")
    }
    leaders = Counter(each[0] for each in answer.replicas)
    assert len(leaders) == 12
    # The loss of a rack leaves two of three of every key, and nothing else changes.
    assert all(sum(name[0] != "A" for name in each) == 2 for each in answer.replicas)


GOLDEN = [
    (6729169340593306058, "n2"),
    (8034978682410756626, "n1"),
    (12533019599498680424, "n2"),
    (13365827547939295114, "n1"),
]


def test_tokens_are_the_same_everywhere():
    """Python's own hash differs from process to process; a golden value holds across versions."""
    topology = Topology()
    for name in ("n1", "n2"):
        topology.upsert(name, NodeAttributes(), Liveness.UP)
    ring = ring_of(topology, vnodes=2)
    owned = zip(ring.tokens, (topology.ids[owner] for owner in ring.nodes), strict=True)
    assert list(owned) == GOLDEN
    script = (
        "from tests.builders.placements import ask_one, node\n"
        "nodes = [node(f'n{i}', f'/r{i % 3}') for i in range(9)]\n"
        "print(ask_one(nodes, {'strategy': 'ring'}, shards=20).replicas)"
    )
    here = ask_one([node(f"n{i}", f"/r{i % 3}") for i in range(9)], {"strategy": "ring"}, shards=20)
    for seed in ("0", "1"):
        command = [sys.executable, "-c", script]
        salted = {"PYTHONHASHSEED": seed}
        run = subprocess.run(command, env=salted, cwd=ROOT, capture_output=True, check=True)
        assert run.stdout.decode().strip() == str(here.replicas)


def walk(order, place, start, factor, levels):
    """The walk once more: of those not taken, the first with the highest fresh level."""
    path = {name: tuple(p for p in place[name].split("/") if p) for name in order}
    taken: list[str] = []
    turned = order[start:] + order[:start]
    while len(taken) < factor and len(taken) < len(set(order)):
        ranked = []
        for position, name in enumerate(turned):
            if name in taken:
                continue
            fresh = [
                level
                for level in range(1, levels + 1)
                if path[name][:level] not in {path[other][:level] for other in taken}
            ]
            ranked.append((fresh[0] if fresh else levels + 1, position, name))
        taken.append(min(ranked)[2])
    return taken


def test_random_rings_are_walked_as_said():
    rng = random.Random(7)
    for _ in range(share(150)):
        nodes = random_nodes(rng)
        positions = rng.sample(range(1000), 3 * len(nodes))
        owned = [positions[i :: len(nodes)] for i in range(len(nodes))]
        nodes = [
            node(
                each.node_id,
                each.attributes.location,
                owned[i],
                "up" if each.liveness is Liveness.UP else "dead",
            )
            for i, each in enumerate(nodes)
        ]
        place = usable(nodes)
        starts = [rng.randint(0, 1000) for _ in range(6)]
        factor = rng.randint(1, 5)
        answer = ask_one(nodes, {"strategy": "ring"}, factor=factor, shards=6, tokens=starts)
        if len(place) < factor:
            assert answer.outcome == "rejected"
            continue
        ring = sorted((int(t), n.node_id) for n in nodes for t in n.attributes.tokens)
        ring = [(t, n) for t, n in ring if n in place]
        for start, replicas in zip(starts, answer.replicas, strict=True):
            first = next((i for i, (token, _) in enumerate(ring) if token >= start), 0)
            assert replicas == walk([n for _, n in ring], place, first, factor, 3)
        unique = all(len({place[n] for n in each}) == factor for each in answer.replicas)
        assert answer.outcome == ("placed" if unique else "degraded")


def test_random_fleets_are_answered_alike_in_any_order():
    rng = random.Random(5)
    for _ in range(share(60)):
        nodes = random_nodes(rng)
        asked = [stream({"strategy": "ring"}, 2, 3, name) for name in ("s", "t")]
        asked.append(stream({"strategy": "ring", "strict": True}, 2, 3, "u"))
        first = ask(nodes, *asked)
        assert {k: v.replicas for k, v in ask(rng.sample(nodes, len(nodes)), *asked).items()} == {
            k: v.replicas for k, v in first.items()
        }
        place = usable(nodes)
        for answer in first.values():
            assert answer.outcome in ("placed", "degraded", "rejected")
            for replicas in filter(None, answer.replicas):
                assert len(set(replicas)) == 2
                assert set(replicas) <= set(place)
                apart = len({place[name] for name in replicas}) == 2
                assert apart or answer.outcome == "degraded"


def lists(nodes, levels=None, shards=400):
    asked = {"strategy": "ring"} | ({} if levels is None else {"levels": levels})
    return ask_one(nodes, asked, shards=shards).replicas


@pytest.mark.parametrize("levels", [None, [], ["3"]])
def test_a_join_or_leave_changes_only_the_ranges_that_must(levels):
    before = lists(SMOKE, levels)
    joined = node("B9", "/dc/az/B")
    after = lists([*SMOKE, joined], levels)
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert changed
    assert all("B9" in new for _, new in changed)
    # One rank of B9's: it takes over from one node, the others stay where they are in the list.
    assert all(set(old) - set(new) and len(set(old) - set(new)) == 1 for old, new in changed)
    # A thirteenth of the replicas is its share; 16 tokens make it uneven.
    assert len(changed) < 400 * 3 / 13 * 2
    # Leaving is joining, the other way.
    assert lists(SMOKE, levels) == before
    gone = lists([*SMOKE, node("B9", "/dc/az/B", status="dead")], levels)
    assert gone == before


def test_weight_is_a_share_of_the_ring():
    nodes = [node(f"n{i}", weight=4.0 if i == 0 else 1.0) for i in range(5)]
    asked = {"strategy": "ring", "levels": [], "vnodes": 128}
    led = Counter(each[0] for each in ask_one(nodes, asked, factor=1, shards=4000).replicas)
    assert 0.4 < led["n0"] / 4000 < 0.6


def test_explicit_tokens_without_shard_tokens_are_drawn_by_lot():
    nodes = on_ring("a b c d", lambda _: "")
    asked = {"strategy": "ring", "levels": []}
    before = ask_one(nodes, asked, factor=1, shards=400).replicas
    assert min(Counter(each[0] for each in before).values()) > 60
    after = ask_one([*nodes, node("e", tokens=[5])], asked, factor=1, shards=400).replicas
    assert {new[0] for old, new in zip(before, after, strict=True) if old != new} == {"e"}


def test_nodes_without_tokens_are_not_on_a_ring_of_explicit_ones():
    nodes = [*on_ring("a b", lambda name: f"/{name}"), node("c", "/c")]
    answer = ask_one(nodes, {"strategy": "ring"}, factor=3)
    assert (answer.outcome, answer.codes) == ("rejected", ["NODES_TOO_FEW"])


def test_a_node_that_may_not_lead_follows():
    nodes = [node(name, f"/{name}", [i], leader=name != "a") for i, name in enumerate("abc")]
    assert ask_one(nodes, {"strategy": "ring"}, tokens=[0]).replicas == [["b", "a", "c"]]
    nodes = [node(name, f"/{name}", [i], leader=name == "d") for i, name in enumerate("abcd")]
    assert ask_one(nodes, {"strategy": "ring"}, tokens=[0]).replicas == [["d", "a", "b"]]


def test_rules_filters_and_capacity_are_kept():
    asked = {"strategy": "ring", "avoid": ["/B"], "rules": [{"at_most": 1, "per": "location"}]}
    answer = ask_one(TUTORIAL, asked, tokens=[40])
    assert (answer.outcome, answer.codes) == ("rejected", ["NO_CANDIDATE"])
    assert ask_one(TUTORIAL, asked, factor=2, tokens=[40]).replicas == [["A3", "C1"]]
    full = [node(name, f"/{name}", [i], capacity=1) for i, name in enumerate("abc")]
    asked = {"strategy": "ring"}
    answer = ask_one(full, asked, factor=1, shards=3, tokens=[0, 0, 0])
    assert answer.replicas == [["a"], ["b"], ["c"]]


def test_given_replicas_are_completed_by_the_walk():
    asked = {"strategy": "ring"}
    answer = ask_one(TUTORIAL, asked, shards=2, tokens=[40, 90], replicas=[["C1", "A3"], []])
    assert answer.replicas == [["C1", "A3", "B1"], ["B4", "C1", "A1"]]


def test_a_lost_replica_goes_to_the_next_of_the_walk_and_a_return_moves_nothing():
    core = Reconciler(Configuration(acked=False))
    core.apply(TUTORIAL, 0)
    asked = stream({"strategy": "ring"}, tokens=[40])
    assert core.apply([asked], 0).assignments["s", 0].replicas == ("A3", "B1", "C1")
    ready = core.apply([node("B1", "/B", [60], "dead")], 1)
    assert [(m.remove, m.add) for m, _ in ready.moves.values()] == [("B1", "B2")]
    back = core.apply([node("B1", "/B", [60])], 2)
    assert not back.moves
    assert not back.assignments


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        # The walk from 40 is A3 A4 B1 B2 A2 B4 C1 C2 C3 C4 A1 B3.
        ({"leader_in": ["/C", "/A"]}, "C1 A3 B1"),
        ({"leader_in": ["/B"], "strength": "preferred"}, "B1 A3 C1"),
        ({"exactly": {"/A": 2, "/B": 1}}, "A3 B1 A4"),
        ({"at_least": {"/C": 3}}, "C1 C2 C3"),
    ],
)
def test_the_users_rules_outrank_the_walk(rule, expected):
    answer = ask_one(TUTORIAL, {"strategy": "ring", "rules": [rule]}, tokens=[40])
    assert answer.replicas == [expected.split()]


def test_a_colocated_stream_walks_once():
    asked = {"strategy": "ring", "rules": [{"colocate": "slots"}]}
    answer = ask_one(TUTORIAL, asked, shards=3, tokens=[40, 90, 0])
    assert answer.replicas == [["A3", "B1", "C1"]] * 3
