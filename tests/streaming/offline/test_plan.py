"""`placer plan`: the moves for a file, its options, its exit codes."""

import re

import pytest

from schemas.words import CAUSES
from tests.builders.offline_clusters import cluster, plan, run, stream, ways


def test_every_field_of_an_answer():
    status, answer = plan(cluster("a1 b1:dead b2 c1", stream("s", "a1 b1 c1"), name="one"))
    assert status == 0
    reason = {"code": "NODE_DEAD", "message": "node b1 is dead", "band": "soft"}
    assert answer == {
        "name": "one",
        "moves": [
            {
                "stream": "s",
                "shard": 0,
                "kind": "replace",
                "remove": "b1",
                "add": "b2",
                "cause": "under_replicated",
                "reason": reason,
            }
        ],
        "unfixable": [],
        "warnings": [],
        "hold": None,
        "lower_bound": 1,
        "traffic": {"copies": 1, "crossing": 0, "level": "region"},
        "impact": {
            "hash": answer["impact"]["hash"],
            "moves": 1,
            "copies": 1,
            "shards": 1,
            "streams": ["s"],
            "violations_made": [],
            "violations_healed": [{"stream": "s", "shard": 0, "rule": "replicas", "domain": None}],
        },
        "final": {"replicas": {"s": [["a1", "b2", "c1"]]}},
    }


@pytest.mark.parametrize(
    ("nodes", "lists", "more", "moves"),
    [
        ("a1 b1 c1", "a1 b1", {}, [("s", 0, "add", None, "c1")]),
        ("a1 a2 b1 c1", "a1 a2 b1 c1", {}, [("s", 0, "remove", "a2", None)]),
        ("a1 b1 c1 d1", "a1 b1 gone", {}, [("s", 0, "replace", "gone", "c1")]),
        ("a1 b1:draining b2 c1", "a1 b1 c1", {}, [("s", 0, "replace", "b1", "b2")]),
        ("a1 b1 b2 c1", "a1 b1 c1", {}, []),
    ],
)
def test_kinds(nodes, lists, more, moves):
    status, answer = plan(cluster(nodes, stream("s", lists, **more)), "--phase", "repair")
    found = ways(answer)
    if moves and moves[0][3] == "gone":
        # c1 and d1 are as good.
        assert found[0][:4] == moves[0][:4]
        assert found[0][4] in ("c1", "d1")
    else:
        assert found == moves
    assert status == 0
    assert {move["cause"] for move in answer["moves"]} <= set(CAUSES)


def test_who_leads():
    _, answer = plan(cluster("a1:dead a2 b1 c1", stream("s", "a1 b1 c1")))
    (move,) = answer["moves"]
    assert (move["kind"], move["remove"], move["add"], move["leader"]) == (
        "replace",
        "a1",
        "a2",
        "b1",
    )
    assert answer["final"]["replicas"]["s"][0][0] == "b1"
    document = cluster("a1 b1 c1", stream("s", "a1 b1 c1"))
    document["nodes"][0]["leader"] = False
    _, answer = plan(document)
    (move,) = answer["moves"]
    assert (move["kind"], move["remove"], move["add"]) == ("leader", None, None)
    assert (move["leader"], move["reason"]["code"]) == ("b1", "LEADER_NOT_ALLOWED")
    assert answer["lower_bound"] == 0


def test_moves_of_the_document_count_as_done():
    nodes, lists = "a1 b1:dead b2 c1", stream("s", "a1 b1 c1", "a1 b1 c1")
    moves = [{"stream": "s", "shard": 0, "remove": "b1", "add": "b2"}]
    _, answer = plan(cluster(nodes, lists, moves=moves))
    assert ways(answer) == [("s", 1, "replace", "b1", "b2")]
    # A target that died is none; the list may show the copy that is on its way.
    moves = [{"stream": "s", "shard": 0, "remove": "b1", "add": "d1"}]
    nodes = "a1 b1:dead b2 c1 d1:dead"
    _, answer = plan(cluster(nodes, stream("s", "a1 b1 c1 d1"), moves=moves))
    assert ways(answer) == [("s", 0, "replace", "b1", "b2")]
    # Wanted, with its target open.
    moves = [{"stream": "s", "shard": 0, "remove": "c1"}]
    _, answer = plan(cluster("a1 b1 c1 d1", stream("s", "a1 b1 c1"), moves=moves))
    assert ways(answer) == [("s", 0, "replace", "c1", "d1")]


def test_what_if(tmp_path):
    document = cluster("a1 a2 b1 b2 c1", stream("s", "a1 b1 c1"))
    _, answer = plan(document, "--lose", "/eu/b")
    assert ways(answer) == [("s", 0, "replace", "b1", "a2")]
    _, answer = plan(document, "--drain", "b1")
    assert [(move["remove"], move["cause"]) for move in answer["moves"]] == [("b1", "drain")]
    _, answer = plan(document, "--drain", "/eu/b")
    assert ways(answer) == [("s", 0, "replace", "b1", "a2")]
    joining = tmp_path / "nodes.yaml"
    joining.write_text("nodes: [{id: d1, location: /us/d}]")
    _, answer = plan(document, "--drain", "b1", "--drain", "b2", "--add", str(joining))
    assert ways(answer) == [("s", 0, "replace", "b1", "d1")]
    assert run(document, "--lose", "/nowhere").exit_code == 2
    assert run(document, "--add", str(tmp_path / "none")).exit_code == 2


def test_what_nothing_mends_is_told():
    rules = {"strategy": "spread", "rules": [{"at_most": 1, "per": "zone"}]}
    document = cluster("a1 a2 b1 c1:draining", stream("s", "a1 b1 c1", policy=rules))
    status, answer = plan(document)
    assert (status, answer["moves"]) == (1, [])
    (broken,) = answer["unfixable"]
    assert (broken["rule"], broken["domain"], broken["class"]) == ("drain", "c1", "unfixable")
    assert plan(document, "--fail-on", "never")[0] == 0


def test_a_drain_that_would_take_the_last_copy_is_told():
    """It waits for a node that fits; whoever stops n1 before loses the shard."""
    rules = {"strategy": "spread", "within": ["/eu/a"]}
    document = cluster("a1 b1", stream("s", "a1", "a1", factor=1, policy=rules))
    status, answer = plan(document, "--drain", "a1")
    assert status == 1
    (warning,) = answer["warnings"]
    assert (warning["code"], warning["band"]) == ("LAST_COPY", "required-rule")
    message = "without the nodes that are to go, no copy would be left of s/0, s/1"
    assert warning["message"] == message
    document["nodes"].append({"id": "a2", "location": "/eu/a"})
    assert plan(document, "--drain", "a1")[1]["warnings"] == []


def test_nothing_is_planned_for_shards_that_are_not_observed():
    lists = stream("s", "a1 b1 c1", "", "a1 a2 b1")
    _, answer = plan(cluster("a1 a2 b1 c1", lists | {"unobserved": [1]}))
    assert {move["shard"] for move in answer["moves"]} == {2}
    assert answer["unfixable"] == []


def test_two_maintenances_that_together_break_a_quorum_are_told():
    document = cluster("a1:maintenance a2 b1:maintenance c1 d1", stream("s", "a1 b1 c1"))
    _, answer = plan(document)
    (warning,) = answer["warnings"]
    assert (warning["code"], warning["need"], warning["have"]) == ("QUORUM_BROKEN", 2, 1)
    assert "s/0" in warning["message"]
    document["nodes"][2]["status"] = "up"
    assert plan(document)[1]["warnings"] == []


def test_a_hold_is_told_and_withholds_nothing():
    document = cluster("a1 a2 b1 c1 c2 d1", stream("s", "a1 b1 c1"))
    status, answer = plan(document, "--lose", "/eu")
    assert status == 0
    assert answer["hold"] == {"domain": "/eu", "reason": "all 3 nodes of /eu are dead"}
    assert len(answer["moves"]) == 1


def test_bounds():
    lists = ["a1 b1 c1"] * 6
    document = cluster("a1 a2 b1 c1:dead c2 d1", stream("s", *lists))
    _, answer = plan(document, "--max-moves", "2")
    assert len(answer["moves"]) == 2
    assert [each["code"] for each in answer["warnings"]] == ["LIMIT_REACHED"]
    _, answer = plan(document, "--max-moves-per-node", "1")
    targets = [move["add"] for move in answer["moves"]]
    assert len(targets) == len(set(targets))


def test_rebalancing_waits_for_repair():
    document = cluster("a1 b1:dead b2 c1", stream("s", "a1 b1 c1"))
    _, answer = plan(document, "--phase", "rebalance")
    assert answer["moves"] == []
    assert [each["code"] for each in answer["warnings"]] == ["REPAIR_FIRST"]
    balanced = cluster("a1 a2 b1 b2 c1 c2", stream("s", *["a1 b1 c1"] * 4))
    _, answer = plan(balanced, "--phase", "rebalance")
    assert len(answer["moves"]) == 4
    assert {move["cause"] for move in answer["moves"]} == {"balance"}
    assert plan(balanced, "--phase", "repair")[1]["moves"] == []


def test_other_replication_factors():
    document = cluster("a1 a2 b1 c1 d1", stream("s", "a1 b1 c1"), stream("t", "a1 b1", factor=2))
    _, answer = plan(document, "--rf", "s=2", "--rf", "t=3")
    assert {(m["stream"], m["kind"]) for m in answer["moves"]} == {("s", "remove"), ("t", "add")}
    assert [len(shards[0]) for shards in answer["final"]["replicas"].values()] == [2, 3]
    _, answer = plan(document, "--rf", "4", "--rf", "t=2", "--until-balanced")
    assert [len(shards[0]) for shards in answer["final"]["replicas"].values()] == [4, 2]
    status, answer = plan(document, "--rf", "s=0")
    assert (status, answer["decisions"][0]["reasons"][0]["code"]) == (
        1,
        "REPLICATION_FACTOR_OUT_OF_RANGE",
    )
    for wrong in ("u=3", "s=", "=3", "many"):
        assert run(document, "--rf", wrong).exit_code == 2


def test_a_factor_that_contradicts_the_policy_is_refused():
    policy = {"strategy": "network_topology", "replication": {"eu": 2, "us": 1}}
    document = cluster("a1 a2 b1 c1 d1", stream("s", "a1 b1 c1", policy=policy))
    status, answer = plan(document, "--rf", "5")
    assert (status, answer["moves"]) == (1, [])
    assert answer["decisions"][0]["outcome"] == "rejected"


def test_wave_by_wave():
    lists = ["a1 b1 c1"] * 6
    document = cluster("a1 a2 b1 b2 c1:dead c2 d1", stream("s", *lists))
    status, answer = plan(document, "--until-balanced", "--max-moves", "2")
    assert (status, answer["fixpoint"]["reached"], answer["fixpoint"]["reason"]) == (0, True, None)
    assert answer["fixpoint"]["plans"] == len(answer["waves"]) + 1
    assert [each["waiting"] for each in answer["waves"]][:3] == [4, 2, 0]
    per_wave = [sum(m["wave"] == each["wave"] for m in answer["moves"]) for each in answer["waves"]]
    assert per_wave == [each["moves"] for each in answer["waves"]]
    assert answer["traffic"]["copies"] == sum(each["copies"] for each in answer["waves"])
    assert answer["traffic"]["copies"] >= answer["lower_bound"]
    text = run(document, "--until-balanced", "--max-moves", "2").stdout
    assert f"plan {answer['fixpoint']['plans']} has nothing to move: done" in text
    _, stuck = plan(document, "--until-balanced", "--max-moves", "0")
    assert stuck["fixpoint"]["reason"]["code"] == "LIMIT_REACHED"
    assert [each["code"] for each in stuck["warnings"]] == ["LIMIT_REACHED", "LIMIT_REACHED"]


def test_copies_that_cross_a_region_are_counted():
    """Need N26: of two copies that are lost one has a live one beside it."""
    streams = stream("s", "a1 b1", factor=2), stream("t", "a1 b1", factor=2)
    for asked, region in zip(streams, ("/eu", "/us"), strict=True):
        asked["policy"]["rules"] = [{"at_least": {region: 2 - (region == "/us")}}]
    document = cluster("a1:dead a2 b1 c1", *streams)
    _, answer = plan(document, "--phase", "repair")
    assert {move["stream"]: move["add"] for move in answer["moves"]} == {"s": "a2", "t": "c1"}
    assert answer["traffic"] == {"copies": 2, "crossing": 1, "level": "region"}


def test_refused_streams_and_documents():
    document = cluster("a1 b1 c1", stream("s", "a1 b1 c1", repair="sometimes"))
    status, answer = plan(document)
    assert status == 1
    assert answer["decisions"][0]["reasons"][0]["code"] == "POLICY_UNKNOWN_VALUE"
    status, answer = plan({"streams": []})
    assert (status, set(answer)) == (2, {"error"})
    status, answer = plan({"nodes": [], "streams": []})
    assert (status, answer["moves"]) == (0, [])


def test_a_person_reads_what_moves_and_why():
    text = run(cluster("a1 b1:dead b2 c1", stream("s", "a1 b1 c1"))).stdout
    assert "node b1 is dead" in text
    # What stands before and after, where it differs.
    assert re.search(r"b1 █+ 1 → 0 dead", text)
    assert re.search(r"b2 0 → █+ 1", text)
    assert "1 move: 1 copy, 0 of them from another region; at least 1 needed" in text
    assert run(cluster("a1 b1 c1", stream("s", "a1 b1 c1"))).stdout.startswith("nothing to move")
