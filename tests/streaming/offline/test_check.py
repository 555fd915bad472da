"""`placer check`: violations with their class, health, what-if, risk and report."""

import orjson
import pytest
from typer.testing import CliRunner

from placement.strategies import registry
from schemas.words import HEALTH, RULES
from streaming.cli.main import app

ZONES = {"a": "/eu/a", "b": "/eu/b", "c": "/us/c", "d": "/us/d"}


def cluster(nodes, *streams, **more):
    """`nodes`: words like a1, or a1:dead; the letter is the zone."""
    listed = []
    for word in nodes.split():
        name, _, status = word.partition(":")
        node = {"id": name, "location": ZONES[name[0]], "tags": {"power": str(len(listed) % 2)}}
        listed.append(node | ({"status": status} if status else {}))
    return {"levels": ["region", "zone"], "nodes": listed, "streams": list(streams), **more}


def stream(name, *shards, factor=3, rules=({"at_most": 1, "per": "zone"},), policy=None, **more):
    """`shards`: words of node ids."""
    replicas = [words.split() for words in shards]
    policy = {"strategy": "spread", "rules": list(rules)} if policy is None else policy
    asked = {"stream": name, "shards": len(shards), "replication_factor": factor}
    return asked | {"replicas": replicas, "policy": policy} | more


def check(document, *arguments):
    text = orjson.dumps(document).decode()
    command = ["check", "-", "--output", "json", *arguments]
    result = CliRunner().invoke(app, command, input=text)
    assert result.exit_code in (0, 1, 2), result.output
    return result.exit_code, orjson.loads(result.stdout.splitlines()[0]) if result.stdout else None


def found(answer, *names):
    """The violations as tuples of these fields, required ones only."""
    names = names or ("stream", "shard", "rule", "domain", "count", "limit", "class")
    listed = (v for v in answer["violations"] if v["strength"] == "required")
    return [tuple(violation[name] for name in names) for violation in listed]


def test_a_healthy_cluster():
    status, answer = check(cluster("a1 b1 c1 d1", stream("s", "a1 b1 c1")))
    assert status == 0
    assert answer["violations"] == []
    health = answer["health"]
    assert (health["worst"], health["streams"]) == ("healthy", {"s": "healthy"})
    assert health["shards"] == {"s": ["healthy"]}
    # Two of three copies are in /eu: its loss leaves one.
    assert health["critical"] == [
        {"level": "region", "domain": "/eu", "shards": 1, "streams": ["s"]}
    ]
    assert health["under_diversified"] == []


def test_every_field_of_a_violation():
    _, answer = check(cluster("a1 a2 b1 c1", stream("s", "a1 a2 b1")))
    [violation] = [v for v in answer["violations"] if v["strength"] == "required"]
    assert list(violation) == [
        *("stream", "shard", "rule", "strength", "level"),
        *("domain", "count", "limit", "class", "reason"),
    ]
    assert found(answer) == [("s", 0, "at_most 1 per zone", "/eu/a", 2, 1, "fixable")]
    assert (violation["level"], violation["reason"]["seen"]) == (
        "zone",
        ["/eu/a", "/eu/b", "/us/c"],
    )
    assert answer["health"]["worst"] == "degraded"


def test_a_tag_rule_names_key_and_values():
    rules = [{"at_most": 1, "per": "tag:power"}]
    _, answer = check(cluster("a1 b1 c1 d1", stream("s", "a1 c1", factor=2, rules=rules)))
    [violation] = [v for v in answer["violations"] if v["strength"] == "required"]
    assert (violation["level"], violation["domain"]) == ("power", "power=0")
    assert violation["reason"]["seen"] == ["0", "1"]


@pytest.mark.parametrize(
    ("nodes", "replicas", "factor", "expected"),
    [
        ("a1 a2 b1 c1", "a1 a2 b1", 3, ["fixable"]),
        ("a1 a2 b1 b2", "a1 a2 b1", 3, ["unfixable"]),
        ("a1 a2 a3 b1", "a1 a2 a3", 3, ["unfixable"]),
        # Two copies have no minority: Kudu reports every arrangement, one entry per location here.
        ("a1 b1 c1", "a1 b1", 2, ["unfixable", "unfixable"]),
        ("a1 a2 b1 c1", "a1 a2 b1 c1", 4, ["unfixable"]),
        ("a1 a2 b1 c1 d1", "a1 a2 b1 c1", 4, ["fixable"]),
        # A dead zone leaves nowhere to go; a suspect one is not a target either.
        ("a1 a2 b1 c1:dead", "a1 a2 b1", 3, ["unfixable"]),
        ("a1 a2 b1 c1:suspect", "a1 a2 b1", 3, ["unfixable"]),
        # What stands on a suspect node may stay there.
        ("a1 a2 b1:suspect c1", "a1 a2 b1", 3, ["fixable"]),
    ],
)
def test_kudu_majorities(nodes, replicas, factor, expected):
    """Kudu's placement_policy_util: a majority in one location, and when it cannot be helped."""
    rules = [{"at_most": "minority", "per": "location"}]
    _, answer = check(cluster(nodes, stream("s", replicas, factor=factor, rules=rules)))
    assert [kind for rule, kind in found(answer, "rule", "class") if "minority" in rule] == expected


def test_which_domains_count():
    """Draining and dead zones leave the denominator, suspect ones and maintenance stay in it."""
    share = [{"at_most": "share", "per": "zone"}]
    for status, count in (("dead", 0), ("draining", 0), ("suspect", 1), ("maintenance", 1)):
        nodes = f"a1 a2 b1 c1:{status}"
        _, answer = check(cluster(nodes, stream("s", "a1 a2 b1", rules=share)))
        broken = [rule for (rule,) in found(answer, "rule") if "share" in rule]
        assert len(broken) == count, status


def test_copies_that_are_lost_leaving_twice_or_too_many():
    document = cluster(
        "a1 a2 b1:dead b2 c1:draining d1",
        stream("s", "a1 b1 d1", "a1 gone d1", "a1 b2", "a1 a1 d1", "a1 c1 b2", "a1 b2 d1 a2"),
    )
    status, answer = check(document)
    assert status == 1
    assert found(answer) == [
        ("s", 0, "replicas", None, 2, 3, "fixable"),
        ("s", 1, "replicas", None, 2, 3, "fixable"),
        ("s", 2, "replicas", None, 2, 3, "fixable"),
        ("s", 3, "replicas", None, 2, 3, "fixable"),
        ("s", 3, "distinct nodes", "a1", 2, 1, "fixable"),
        ("s", 4, "drain", "c1", 1, 0, "fixable"),
        ("s", 5, "surplus", None, 4, 3, "fixable"),
        ("s", 5, "at_most 1 per zone", "/eu/a", 2, 1, "fixable"),
    ]
    codes = [v["reason"]["code"] for v in answer["violations"] if v["rule"] == "replicas"]
    assert codes == ["NODE_DEAD", "NODE_UNREGISTERED", "REPLICA_MISSING", "REPLICA_TWICE"]
    words = answer["health"]["shards"]["s"]
    assert words == ["under_replicated"] * 4 + ["degraded"] * 2


def test_a_drain_that_a_rule_blocks_is_unfixable():
    _, answer = check(cluster("a1 a2 b1 c1:draining", stream("s", "a1 b1 c1")))
    [(rule, kind, reason)] = found(answer, "rule", "class", "reason")
    assert (rule, kind, reason["code"]) == ("drain", "unfixable", "DOMAINS_TOO_FEW")
    assert (reason["need"], reason["have"]) == (3, 2)


@pytest.mark.parametrize(
    ("dead", "factor", "quorum", "word"),
    [
        ("", 3, None, "healthy"),
        ("a", 3, None, "under_replicated"),
        ("ab", 3, None, "unavailable"),
        ("ab", 3, "one", "at_risk"),
        ("abc", 3, "one", "unavailable"),
        ("a", 3, 3, "unavailable"),
        ("a", 2, None, "unavailable"),
        ("a", 2, 1, "at_risk"),
        ("", 1, None, "healthy"),
    ],
)
def test_the_ladder(dead, factor, quorum, word):
    nodes = " ".join(f"{z}1:dead" if z in dead else f"{z}1" for z in "abcd")
    replicas = " ".join(f"{z}1" for z in "abc"[:factor])
    _, answer = check(cluster(nodes, stream("s", replicas, factor=factor, quorum=quorum, rules=())))
    assert answer["health"]["streams"] == {"s": word}


def test_moves_count_as_done_for_rules_and_not_for_copies():
    asked = stream("s", "a1 a2 b1", rules=[{"at_most": 1, "per": "zone"}])
    move = {"stream": "s", "shard": 0, "kind": "replace", "remove": "a2", "add": "c1"}
    status, answer = check(cluster("a1 a2 b1 c1 d1", asked, moves=[move]))
    assert (status, found(answer)) == (0, [])
    assert answer["health"]["worst"] == "rebalancing"
    dead = cluster("a1 a2:dead b1 c1 d1", asked, moves=[move])
    assert check(dead)[1]["health"]["worst"] == "under_replicated"


def test_rules_on_the_whole_stream_have_no_shard():
    together = {"strategy": "affinity", "node": "colocated", "shard": "balanced"}
    alone = {"strategy": "affinity", "shard": "exclusive"}
    units = {"strategy": "affinity", "shard": "colocated"}
    document = cluster(
        "a1 a2 b1 b2 c1",
        stream("one", "a1 a2", "b1 b2", factor=2, policy=together),
        stream("two", "a1 b1", "a1 b2", factor=2, policy=alone),
        stream("three", "a1 b1", "a1 b2", factor=2, policy=units),
    )
    _, answer = check(document)
    wide = [v for v in answer["violations"] if v["shard"] is None]
    assert [(v["stream"], v["domain"], v["count"], v["limit"], v["class"]) for v in wide] == [
        ("one", None, 2, 1, "fixable"),
        ("two", "a1", 2, 1, "fixable"),
        ("three", None, 1, 0, "fixable"),
    ]
    assert [v["level"] for v in wide] == ["location", "node", None]


def test_exclusive_nodes_that_do_not_suffice_are_unfixable():
    alone = {"strategy": "affinity", "shard": "exclusive"}
    asked = stream("s", "a1 b1", "a1 b1", factor=2, policy=alone)
    _, answer = check(cluster("a1 b1 c1", asked))
    assert set(found(answer, "class")) == {("unfixable",)}


def test_lose_tells_what_would_be_below_quorum():
    document = cluster("a1 a2 b1 c1", stream("s", "a1 b1 c1", "a1 a2 b1"))
    status, answer = check(document, "--lose", "/eu/a")
    assert status == 1
    assert answer["lost"] == {
        "domains": ["/eu/a"],
        "nodes": ["a1", "a2"],
        "below_quorum": [{"stream": "s", "shard": 1, "live": 1, "quorum": 2}],
    }
    assert answer["health"]["shards"]["s"] == ["under_replicated", "unavailable"]
    _, more = check(document, "--lose", "/eu/a", "--lose", "power=0")
    assert more["lost"]["nodes"] == ["a1", "a2", "b1"]
    assert len(more["lost"]["below_quorum"]) == 2


@pytest.mark.parametrize("arguments", [("--lose", "/eu/x"), ("--lose", "/e"), ("--fail", "many")])
def test_what_stands_for_nothing_is_a_usage_error(arguments):
    assert check(cluster("a1 b1", stream("s", "a1 b1", factor=2)), *arguments)[0] == 2


def test_risk_and_report():
    document = cluster(
        "a1 a2 b1 b2 c1 c2 d1 d2:dead",
        stream("s", "a1 b1 c1", "c1 a1 b1", "a2 b2 d1", ranges=["x", "x", "y"]),
    )
    _, answer = check(document, "--fail", "50%", "--report")
    risk = answer["risk"]
    assert (risk["failed"], risk["copysets"]) == (3, 2)
    assert risk["scatter_width"] == {"min": 2, "mean": 2.0, "max": 2}
    assert risk["loss_probability"] == pytest.approx(1 - (1 - 1 / 35) ** 2)
    report = answer["report"]
    assert report["nodes"] == {
        "a1": 2, "a2": 1, "b1": 2, "b2": 1, "c1": 2, "c2": 0, "d1": 1, "d2": 0,
    }  # fmt: skip
    assert report["streams"] == [
        {"stream": "s", "range": "x", "skew": 2, "replicas": 6},
        {"stream": "s", "range": "y", "skew": 1, "replicas": 3},
    ]
    assert report["locations"][2] == {
        "location": "/us/c", "load": 1.0, "min": 0, "max": 2, "average": 1.0, "violations": 0,
    }  # fmt: skip


def test_the_report_names_violations_and_what_a_plan_would_do():
    """Kudu's ksck never did the one, its report not the other."""
    document = cluster(
        "a1 a2 b1 c1 d1:dead d2", stream("s", "a1 a2 b1", "a1 b1 d1"), stream("t", "a1", factor=1)
    )
    _, answer = check(document, "--report")
    report = answer["report"]
    assert report["servers"][0] == {
        "node": "a1", "location": "/eu/a", "status": "up", "replicas": 3, "leaders": 3,
    }  # fmt: skip
    assert [each["status"] for each in report["servers"]].count("dead") == 1
    assert report["total"] == {"nodes": 5, "min": 0, "max": 3, "average": 1.2, "skew": 3}
    assert report["skews"][0] == {
        "location": "/eu/a", "nodes": 2, "min": 1, "max": 1, "average": 1.0,
    }  # fmt: skip
    assert report["skews"][2] == {
        "location": "/us/c", "nodes": 1, "min": None, "max": None, "average": None,
    }  # fmt: skip
    # Even over regions is spread's own wish.
    assert report["violations"]["domains"] == [
        {"domain": "/eu", "streams": 1, "shards": 2},
        {"domain": "/eu/a", "streams": 1, "shards": 1},
    ]
    here = [each for each in report["violations"]["details"] if each["domain"] == "/eu/a"]
    assert {each["rule"] for each in here} == {"at_most 1 per zone", "even per location"}
    detail = here[0]
    assert (detail["stream"], detail["shard"], detail["replicas"]) == ("s", 0, 2)
    assert (detail["replication_factor"], detail["class"]) == (3, "fixable")
    assert report["plan"]["repair"] == {"moves": 2, "copies": 2}
    assert report["plan"]["unfixable"] == 0
    _, lost = check(document, "--report", "--lose", "/eu")
    assert lost["report"]["plan"]["unfixable"] > 0


def test_exit_codes():
    broken = cluster("a1 a2 b1 b2", stream("s", "a1 a2 b1"))
    mendable = cluster("a1 a2 b1 c1", stream("s", "a1 a2 b1"))
    refused = cluster("a1", {"stream": "s", "shards": 1, "replication_factor": 0})
    assert check(broken)[0] == check(mendable)[0] == check(refused)[0] == 1
    assert check(mendable, "--fail-on", "fixable")[0] == 1
    assert check(mendable, "--fail-on", "degraded")[0] == 1
    for document in (broken, mendable, refused):
        assert check(document, "--fail-on", "never")[0] == 0
    only = {"strategy": "affinity", "node": "exclusive"}
    unfixable = cluster("a1 a2", stream("s", "a1 a2", factor=2, policy=only))
    assert check(unfixable, "--fail-on", "fixable")[0] == 0


def test_refused_streams_are_named_and_the_others_judged():
    _, answer = check(
        cluster(
            "a1 b1 c1",
            stream("bad", "a1", factor=1, policy={"strategy": "nope"}),
            stream("good", "a1 b1 c1"),
        )
    )
    [decision] = answer["decisions"]
    assert (decision["stream"], decision["outcome"]) == ("bad", "rejected")
    assert decision["reasons"][0]["code"] == "STRATEGY_UNKNOWN"
    assert answer["health"]["streams"] == {"good": "healthy"}


def test_capacity_and_leaders():
    document = cluster("a1 b1 c1 d1", stream("s", "a1 b1 c1", "a1 b1 c1"))
    document["nodes"][0] |= {"capacity": 1, "leader": False}
    _, answer = check(document)
    assert found(answer) == [
        ("s", 0, "leader", "a1", 1, 0, "fixable"),
        ("s", 1, "leader", "a1", 1, 0, "fixable"),
        (None, None, "capacity", "a1", 2, 1, "fixable"),
    ]


def test_under_diversified_shards():
    rules = [{"at_most": 2, "per": "zone"}]
    _, answer = check(cluster("a1 a2 b1 c1", stream("s", "a1 a2 b1", "a1 b1 c1", rules=rules)))
    levels = [(u["level"], u["shards"], u["domains"], u["possible"])
              for u in answer["health"]["under_diversified"]]  # fmt: skip
    assert levels == [("region", [0], 1, 2), ("location", [0], 2, 3)]


def word_of(rule):
    """The word of `schemas.words.RULES` that a violation's rule begins with; None if none does."""
    return max((w for w in RULES if rule == w or rule.startswith(f"{w} ")), key=len, default=None)


def broken(*rules):
    """Shards that break whatever is asked of their zones and regions."""
    return cluster("a1 a2 b1 c1 d1", stream("s", "a1 a2", "a1 c1", factor=2, rules=rules))


WORDS = [
    (
        cluster("a1 a2 b1:dead c1:draining", stream("s", "a1 b1 c1", "a1 a1", "a1 a2 b1 c1")),
        {"at_most", "distinct nodes", "drain", "replicas", "surplus"},
        ["under_replicated", "unavailable", "degraded"],
    ),
    (broken({"exactly": {"/us": 2}}), {"exactly", "even"}, ["degraded", "degraded"]),
    (broken({"exclusive": "nodes"}), {"exclusive nodes", "even"}, ["degraded", "degraded"]),
    (broken({"colocate": "slots"}), {"colocate slots", "even"}, ["degraded", "degraded"]),
    (broken({"leader_in": ["/us"]}), {"leader_in", "even"}, ["degraded", "degraded"]),
    (broken({"balance": 0.1, "per": "zone"}), {"balance", "even"}, ["degraded", "degraded"]),
]


@pytest.mark.parametrize(("document", "words", "health"), WORDS, ids=range(len(WORDS)))
def test_every_word_is_enumerated(document, words, health):
    """Method: documents that break one rule each; the words that come are exactly the expected, of
    `schemas.words`, which consumers read."""
    _, answer = check(document)
    assert {word_of(violation["rule"]) for violation in answer["violations"]} == words
    assert answer["health"]["shards"]["s"] == health
    assert {*health} <= {*HEALTH}


def shown(document, *arguments):
    """The lines that people see, up to the tree of locations."""
    text = orjson.dumps(document).decode()
    result = CliRunner().invoke(app, ["check", "-", *arguments], input=text)
    assert result.exit_code in (0, 1), result.output
    return result.stdout[: result.stdout.index("/region/zone")].splitlines()


def test_the_totals_are_values_too():
    document = cluster(
        "a1 a2 b1:dead c1:draining",
        stream("s", "a1 b1", factor=2, rules=()),
        stream("t", "a1 a2", factor=2, rules=()),
        stream("u", "a1", policy={"strategy": "nonsense"}),
    )
    _, answer = check(document)
    assert answer["summary"] == {
        "violations": {"total": 1, "fixable": 1},
        "streams": {"unavailable": 1, "healthy": 1},
        "refused": 1,
        "nodes": {"dead": 1, "draining": 1, "up": 2},
    }


def test_text_begins_with_the_totals_and_what_is_broken():
    """Method: shards that break one rule alike share a row; healthy streams are only counted."""
    document = cluster(
        "a1 a2 b1 b2:dead c1",
        stream("fine", "a1 b1 c1"),
        stream("narrow", "a1 a2 b1", "a1 a2 c1", "a1 b1 c1", "a1 a2 b1"),
        stream("short", "a1 b2 c1"),
        stream("wrong", "a1", policy={"strategy": "nonsense"}),
    )
    lines = shown(document)
    assert lines[0] == (
        "9 violations: 9 fixable; 2 of 3 streams not healthy; 1 rejected; 1 dead of 5 nodes"
    )
    assert lines[1].startswith("wrong rejected policy: unknown strategy 'nonsense'")
    assert lines[2:8] == [
        "stream  health            shards  violations",
        "short   under_replicated  1 of 1  1 fixable",
        "narrow  degraded          3 of 4  8 fixable",
        "1 stream healthy",
        "",
        "shard         rule                domain  count (limit)  class    why",
    ]
    rows = [line.split()[0] for line in lines[8:12]]
    assert rows == ["short/0", "narrow/0,1,3", "narrow/0,3", "narrow/0,1,3"]


def test_a_healthy_cluster_is_one_line():
    document = cluster("a1 b1 c1 d1", stream("s", "a1 c1", factor=2, rules=(), quorum="one"))
    assert shown(document) == ["no violations; 1 stream: 1 healthy; 4 nodes up", ""]


def test_a_stream_that_needs_all_its_copies_does_not_list_every_node():
    """Goal: two copies with a majority for quorum make every node critical; one line says so, and
    what else is critical is seen."""
    pairs = [f"a{n} b{n}" for n in range(1, 41)]
    nodes = " ".join(["a1 b1 c1", *(f"a{n} b{n}" for n in range(2, 41))])
    document = cluster(
        nodes,
        stream("pairs", *pairs, factor=2, rules=()),
        stream("thirds", "a1 b1 c1", rules=()),
    )
    lines = shown(document)
    at = lines.index("Critical domains: the loss of one alone takes the quorum of shards")
    assert lines[at + 1 : at + 4] == [
        "every node with a replica of pairs, which needs all copies for the quorum",
        "level   domain  shards  streams",
        "region  /eu         41  pairs, thirds",
    ]
    assert not any(line.startswith(("node ", "location ")) for line in lines)


def test_long_lists_are_cut_and_say_so():
    shards = [f"a{n} b1" for n in range(1, 60)]
    nodes = " ".join(f"a{n}:dead" for n in range(1, 60)) + " b1 c1"
    many = [stream(f"s{n:02}", *shards, factor=2, rules=()) for n in range(30)]
    lines = shown(cluster(nodes, *many))
    assert lines[0].startswith(f"{30 * 59} violations: ")
    assert len(lines) < 90
    assert "… and 10 more streams: --output json" in lines
    [left] = [line for line in lines if line.endswith("more violations: --output json")]
    rows = [line for line in lines if " is dead" in line]
    others = [int(line.split()[3]) for line in lines if line.endswith(" more violations")]
    assert int(left.split()[2]) + sum(others) + len(rows) == 30 * 59


def test_what_is_lost_is_dead_in_the_tree():
    """Method: a fleet that has to be folded; the branch with what is lost stays open."""
    nodes = " ".join(f"{zone}{n}" for zone in "abcd" for n in range(1, 30))
    text = orjson.dumps(cluster(nodes, stream("s", "a1 b1 c1"))).decode()
    result = CliRunner().invoke(app, ["check", "-", "--lose", "b7"], input=text)
    tree = result.stdout[result.stdout.index("/region/zone") :]
    assert [line.split()[-1] for line in tree.splitlines() if " b7 " in line] == ["dead"]
    assert " b8 " not in tree


def test_text_names_what_is_wrong():
    text = orjson.dumps(cluster("a1 a2 b1 c1", stream("s", "a1 a2 b1"))).decode()
    result = CliRunner().invoke(app, ["check", "-", "--fail", "2", "--report"], input=text)
    assert result.exit_code == 1
    assert "s       degraded" in result.stdout
    assert "at_most 1 per zone" in result.stdout
    assert "Critical domains" in result.stdout
    assert "probability" in result.stdout


def test_a_follower_may_come_to_a_suspect_node_where_the_strategy_allows_it():
    """`striped` puts one there, so a missing one can be mended."""
    fleet = "a1 b1:suspect c1"
    for strategy, kind in (("striped", "fixable"), ("simple", "unfixable")):
        asked = stream("s", "a1 c1", policy={"strategy": strategy})
        _, answer = check(cluster(fleet, asked))
        assert found(answer, "rule", "class") == [("replicas", kind)]


@pytest.fixture
def plugged():
    known = set(registry.STRATEGIES)
    yield "tests.placement.strategies.one_site:OneSite"
    for name in registry.STRATEGIES.keys() - known:
        del registry._BY_NAME[name]


@pytest.mark.parametrize("command", ["check", "explain", "nearest"])
def test_strategies_of_the_users_own(command, plugged):
    policy = {"strategy": "one_site"}
    document = cluster("a1 a2 b1", stream("s", "a1 a2", factor=2, policy=policy))
    text = orjson.dumps(document).decode()
    result = CliRunner().invoke(app, [command, "-", "--plugin", plugged], input=text)
    assert result.exit_code == 0, result.output
    refused = CliRunner().invoke(app, [command, "-", "--plugin", "nowhere:OneSite"], input=text)
    assert refused.exit_code == 2
