"""`explain` and `nearest`, bad input in every form, exit codes, and that the README is true."""

import shlex
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from streaming.cli.main import app
from tests.documentation.console_blocks import hold, steps

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "deploy" / "examples"
NODES = "nodes: [{id: n1, location: /a}, {id: n2, location: /b}, {id: n3, location: /c}]\n"
GOOD = "  - {stream: good, shards: 1, replication_factor: 2}\n"


def run(command, text=None):
    """Run a `placer` command; returns exit status, standard output and error."""
    result = CliRunner().invoke(app, shlex.split(command), input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def answers(command, text):
    status, out, _ = run(f"{command} --output json", text)
    return status, [orjson.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize(
    ("wrong", "code", "says"),
    [
        (
            "policy: {strategy: magic}, shards: 1, replication_factor: 1",
            "STRATEGY_UNKNOWN",
            "unknown strategy 'magic'; known are affinity",
        ),
        ("shards: 1, replication_factor: 0", "REPLICATION_FACTOR_OUT_OF_RANGE", "1 to 64"),
        ("shards: 1000000, replication_factor: 1", "SHARDS_OUT_OF_RANGE", "1 to 10000"),
        ("shards: 9999999999, replication_factor: 1", "STREAM_MALFORMED", "at most 2147483647"),
        ("shards: 9000, replication_factor: 64", "REPLICAS_OUT_OF_RANGE", "at most 100000"),
        ("shards: 0, replication_factor: 1", "SHARDS_OUT_OF_RANGE", "shards is 0"),
        ("shards: -1, replication_factor: 1", "SHARDS_OUT_OF_RANGE", "shards is -1"),
        ("shards: one, replication_factor: 1", "STREAM_MALFORMED", "'shards' must be an integer"),
        ("replication_factor: 1", "STREAM_MALFORMED", "'shards' is missing"),
        (
            "shards: 1, replication_factor: 1, ranges: [a, b]",
            "SHARDS_OUT_OF_RANGE",
            "lists 2 labels",
        ),
        (
            "shards: 1, replication_factor: 1, policy: {within: [eu]}",
            "LOCATION_MALFORMED",
            "must start with '/'",
        ),
    ],
)
@pytest.mark.parametrize("command", ["place -", "explain -"])
def test_one_clear_error_and_the_other_streams_are_answered(command, wrong, code, says):
    text = f"{NODES}streams:\n  - {{stream: bad, {wrong}}}\n{GOOD}"
    status, [answer] = answers(command, text)
    bad, good = answer["decisions" if "place" in command else "explain"]
    assert (status, bad["outcome"], good["outcome"]) == (1, "rejected", "placed")
    [reason] = bad["reasons"]
    assert (reason["code"], reason["band"], says in reason["message"]) == (code, "config", True)


@pytest.mark.parametrize("command", ["place -", "explain -", "nearest -"])
@pytest.mark.parametrize(
    ("document", "line", "field", "says"),
    [
        ("nodes: [{id: a}, {id: a, location: /x}]", 1, "nodes[1].id", "first in 'nodes[0].id'"),
        ("nodes:\n- {id: a,\n   location: eu}", 3, "nodes[0].location", "of the form /eu/az1"),
        ("nodes:\n- {id: a, status: gone}", 2, "nodes[0].status", "'up', 'suspect'"),
        ("streams: []", 1, "nodes", "'nodes' is missing"),
        ("nodes: [", 1, None, "not YAML"),
        ("nodes: []\nclients: [{id: c, location: eu}]", 2, "clients[0].location", "of the form"),
    ],
)
def test_a_document_with_a_mistake_gets_its_line_and_field(command, document, line, field, says):
    status, found = answers(command, f"{document}\n---\nnodes: []\n" if field else document)
    error = found[0]["error"]
    assert (status, error["line"], error["field"]) == (2, line, field)
    assert says in error["message"]
    # The next document is answered.
    assert len(found) == (2 if field else 1)
    _, out, told = run(command, document)
    assert (out, told.startswith(f"standard input:{line}: ")) == ("", True)


def test_the_second_stream_of_a_name_is_refused_and_the_first_answered():
    status, [answer] = answers("place -", f"{NODES}streams:\n{GOOD}{GOOD}")
    assert [each["outcome"] for each in answer["decisions"]] == ["placed", "rejected"]
    [reason] = answer["decisions"][1]["reasons"]
    assert (status, reason["field"]) == (1, "streams[1].stream")


def test_unknown_fields_are_named_and_ignored():
    text = "nodes:\n  - {id: a, place: /x}\nversion: 3\nstreams: []\n"
    status, out, told = run("place - --output json", text)
    assert (status, orjson.loads(out)) == (0, {"decisions": []})
    unknown = "field '{}' is not known, ignored"
    assert told.splitlines() == [
        f"standard input:2: {unknown.format('nodes[0].place')}",
        f"standard input:3: {unknown.format('version')}",
    ]


@pytest.mark.parametrize("command", ["place", "check", "plan", "explain", "nearest"])
def test_strict_refuses_unknown_fields(command):
    text = "nodes:\n  - {id: a, lction: /x}\nversion: 3\n---\nnodes: []\n"
    status, found = answers(f"{command} - --strict", text)
    [error, answered] = [each.get("error") for each in found]
    assert (status, error["line"], error["field"], answered) == (2, 2, "nodes[0].lction", None)
    assert error["message"] == (
        "field 'nodes[0].lction' is not known; did you mean location? Also not known: 'version'"
    )
    many = "nodes: []\n" + "".join(f"x{n}: 1\n" for n in range(30))
    _, [answer] = answers(f"{command} - --strict", many)
    assert answer["error"]["message"].endswith("'x17' and 20 more")


@pytest.mark.parametrize(
    ("text", "line", "field", "meant"),
    [
        ("nodes: []\nstream: []\n", 2, "stream", "streams"),
        ("nodes: []\nstrems: []\n", 2, "strems", "streams"),
        ("node: []\n", 1, "node", "nodes"),
        ("nodes: []\nLevels: [az]\n", 2, "Levels", "levels"),
        ("nodes:\n- id: a\n- id: b\n  wieght: 2\n", 4, "nodes[1].wieght", "weight"),
        ("nodes: []\nclients:\n- {id: c, locaton: /x}\n", 3, "clients[0].locaton", "location"),
    ],
)
@pytest.mark.parametrize("command", ["place", "check", "plan", "explain", "nearest"])
def test_a_misspelt_field_is_refused(command, text, line, field, meant):
    """Goal: a file whose streams nobody reads does not look placed, nor healthy."""
    status, [answer] = answers(f"{command} -", text)
    error = answer["error"]
    assert (status, error["line"], error["field"]) == (2, line, field)
    assert error["message"] == f"field '{field}' is not known; did you mean '{meant}'?"


def test_a_misspelt_field_of_a_stream_is_that_streams_fault():
    bad = "  - {stream: b, shards: 1, replication_factor: 1, polcy: {within: [/x]}}\n"
    status, [answer] = answers("place -", f"{NODES}streams:\n{GOOD}{bad}")
    good, refused = answer["decisions"]
    assert (status, good["outcome"], refused["outcome"]) == (1, "placed", "rejected")
    [reason] = refused["reasons"]
    assert reason["field"] == "streams[1].polcy"
    assert reason["message"].endswith("is not known; did you mean 'policy'?")


def test_a_field_of_ones_own_beside_a_known_one_is_no_misspelling():
    status, out, _ = run("place - --output json", "node: &n {id: a}\nnodes: [*n]\n")
    assert (status, orjson.loads(out)) == (0, {"decisions": []})


def test_the_nodes_that_join_are_held_to_strict_too(tmp_path):
    joins = tmp_path / "joins.yaml"
    joins.write_text("nodes: [{id: b, wght: 2}]\n")
    arguments = ["plan", "-", "--add", str(joins)]
    warned = CliRunner().invoke(app, arguments, input="nodes: [{id: a}]\n")
    assert (warned.exit_code, "did you mean weight?" in warned.stderr) == (0, True)
    refused = CliRunner().invoke(app, [*arguments, "--strict"], input="nodes: [{id: a}]\n")
    assert (refused.exit_code, "did you mean weight?" in refused.stderr) == (2, True)


def test_long_answers_are_cut_and_what_is_wrong_is_not(tmp_path):
    """Goal: a large file does not scroll away what a person looks for."""
    nodes = ", ".join(f"{{id: n{n}, location: /z{n}}}" for n in range(60))
    client = "clients: [{id: c, location: /z0}]\n"
    asked = "".join(
        f"  - {{stream: s{n}, shards: 60, replication_factor: {70 if n == 49 else 2}, "
        "policy: {strategy: simple}}\n"
        for n in range(50)
    )
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(f"nodes: [{nodes}]\n{client}streams:\n{asked}")
    for command in ("place", "check", "plan", "nearest"):
        _, out, _ = run(f"{command} {cluster}")
        assert len(out.splitlines()) < 400, command
    _, out, _ = run(f"place {cluster}")
    assert "s49 rejected" in out
    assert "more placed streams: --summary" in out
    _, out, _ = run(f"nearest {cluster}")
    assert "more rows" in out


@pytest.mark.parametrize("status", ["suspect", "fenced", "draining", "maintenance", "cordoned"])
@pytest.mark.parametrize("gone", ["dead", "down", "unregistered", "held_down", "quarantined"])
def test_only_nodes_that_are_up_receive_replicas(status, gone):
    text = (
        f"nodes: [{{id: n1}}, {{id: n2, status: {status}}}, {{id: n3, status: {gone}}},"
        "{id: n4, status: registered}, {id: n5, status: up}]\n"
        "streams: [{stream: s, shards: 9, replication_factor: 2},"
        "{stream: t, shards: 1, replication_factor: 3, replicas: [[n3, n2, n1]]}]"
    )
    exit_status, [answer] = answers("place -", text)
    first, given = answer["decisions"]
    assert (exit_status, {n for nodes in first["replicas"] for n in nodes}) == (0, {"n1", "n5"})
    # What is given stays as it is, the leader too: mending is the plan's business.
    assert given["replicas"] == [["n3", "n2", "n1"]]


@pytest.mark.parametrize(
    ("stream", "fail_on", "status"),
    [
        ("replication_factor: 1", "", 0),
        ("replication_factor: 9", "", 1),
        ("replication_factor: 9", "--fail-on never", 0),
        ("replication_factor: 2, policy: {rules: [{even: tag:x, strength: preferred}]}", "", 0),
        ("replication_factor: 3, replicas: [[n1, n2]]", "--fail-on degraded", 0),
    ],
)
@pytest.mark.parametrize("command", ["place -", "explain -", "nearest -"])
def test_exit_codes(command, stream, fail_on, status):
    text = f"{NODES}streams: [{{stream: s, shards: 1, {stream}}}]\n"
    assert run(f"{command} {fail_on}", text)[0] == (0 if command == "nearest -" else status)


def test_a_degraded_stream_fails_only_where_asked():
    text = (
        "nodes: [{id: n1, location: /a}, {id: n2, location: /a}, {id: n3, location: /b}]\n"
        "streams: [{stream: s, shards: 1, replication_factor: 2, replicas: [[n1, n2]]}]\n"
    )
    for command in ("place -", "explain -"):
        assert run(command, text)[0] == 0
        assert run(f"{command} --fail-on degraded", text)[0] == 1


def test_nearest_answers_for_every_client_and_shard():
    status, [answer] = answers("nearest -", (EXAMPLES / "cluster.yaml").read_text("utf-8"))
    rows = {(r["client"], r["stream"], r["shard"]): r["replica"] for r in answer["nearest"]}
    assert rows["web", "legacy", 0] == "n1"
    assert rows["web", "ledger", None] is None
    assert all(
        set(r) == {"client", "stream", "shard", "replica", "reason"} for r in answer["nearest"]
    )
    assert status == 1


def test_replica_state_of_stream_and_client_outranks_the_documents():
    text = (
        "nodes: [{id: n1, location: /a}, {id: n2, location: /a}, {id: n3, location: /b}]\n"
        "streams:\n"
        "- {stream: s, shards: 1, replication_factor: 3, replicas: [[n3, n1, n2]]}\n"
        "- {stream: t, shards: 1, replication_factor: 3, replicas: [[n3, n1, n2]],\n"
        "   replica_state: {n2: {offset: 9}}}\n"
        "clients:\n- {id: c1, location: /a}\n"
        "- {id: c2, location: /a, replica_state: {n2: {offset: 1}}}\n"
        "replica_state: {n1: {offset: 5}, n2: {offset: 4}}\n"
    )
    _, [answer] = answers("nearest -", text)
    assert [row["replica"] for row in answer["nearest"]] == ["n1", "n2", "n1", "n1"]
    _, [flat] = answers("nearest - --exact-rack", text)
    assert [row["replica"] for row in flat["nearest"]] == ["n1", "n2", "n1", "n1"]


def test_a_client_without_a_location_stands_where_its_node_does():
    nodes = "nodes: [{id: a, location: /x/r1}, {id: b, location: /x/r1}, {id: c, location: /y}]\n"
    streams = "streams: [{stream: s, shards: 1, replication_factor: 2, replicas: [[c, b]]}]\n"
    for command in ("nearest -", "nearest - --exact-rack"):
        _, [body] = answers(command, nodes + streams + "clients: [{id: a}]")
        assert body["nearest"][0]["replica"] == "b"


@pytest.mark.parametrize(
    ("policy", "advice"),
    [
        ("{within: [/us]}", "2 more nodes in /us"),
        ("{rules: [{at_least: {/us: 1}}]}", "one more node in /us"),
        ("{rules: [{leader_in: [/us/az1]}]}", "one more node in /us/az1"),
        ("{strategy: cassandra, replication: {a: 1, us: 1}}", "one more node in /us"),
        ('{rules: [{at_most: 1, per: "tag:zone"}]}', "2 more values of tag zone, with a node each"),
        ("{with_tags: {disk: ssd}}", "2 more nodes in /b, tagged disk=ssd"),
        ("{rules: [{with_tags: {disk: ssd}}]}", "2 more nodes in /a, tagged disk=ssd"),
    ],
)
def test_advice_names_the_places_and_tags_that_the_policy_names(policy, advice):
    stream = f"  - {{stream: s, shards: 1, replication_factor: 2, policy: {policy}}}\n"
    status, [body] = answers("explain -", NODES + "streams:\n" + stream)
    told = [each["message"] for each in body["explain"][0]["advice"]]
    assert (status, advice in told) == (1, True), told


@pytest.mark.parametrize("strategy", ["affinity", "ring", "hdfs", "spread"])
def test_a_shard_without_a_node_that_may_lead_is_degraded(strategy):
    nodes = "nodes: [{id: a, location: /x, leader: false}, {id: b, location: /y, leader: false}]\n"
    stream = f"{{stream: s, shards: 1, replication_factor: 2, policy: {{strategy: {strategy}}}}}"
    _, [body] = answers("place -", f"{nodes}streams: [{stream}]")
    [decision] = body["decisions"]
    assert decision["outcome"] == "degraded"
    assert "LEADER_NOT_ALLOWED" in [warning["code"] for warning in decision["warnings"]]


def test_two_streams_of_one_name_are_explained_each():
    one, two = "shards: 1, replication_factor: 1", "shards: 1, replication_factor: 2"
    streams = f"streams: [{{stream: s, {one}}}, {{stream: s, {two}}}]"
    _, [body] = answers("explain -", NODES + streams)
    assert [each["outcome"] for each in body["explain"]] == ["placed", "rejected"]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("explain - nobody", "the file has no stream 'nobody'"),
        ("explain - s/7", "stream 's' has 2 shards, counted from 0"),
        ("explain - s --node n9", "the file has no node 'n9'"),
    ],
)
def test_asking_for_what_is_not_there_is_wrong_usage(command, says):
    text = f"{NODES}streams: [{{stream: s, shards: 2, replication_factor: 1}}]\n"
    status, out, _ = run(command, text)
    assert (status, out.strip()) == (2, says)
    status, [answer] = answers(command, text)
    assert (status, answer["error"]["message"]) == (2, says)


def test_explain_takes_a_shard_and_a_node():
    text = f"{NODES}streams: [{{stream: s, shards: 2, replication_factor: 2}}]\n"
    _, [answer] = answers("explain - s/1", text)
    [stream] = answer["explain"]
    assert {(row["shard"], row["slot"]) for row in stream["replicas"]} == {(1, 0), (1, 1)}
    assert stream["replicas"][0]["funnel"][0] == {"step": "candidates", "left": 3}
    held = {row["node"] for row in stream["replicas"]}
    [other] = {"n1", "n2", "n3"} - held
    _, [answer] = answers(f"explain - s/1 --node {other}", text)
    [stream] = answer["explain"]
    assert (stream["replicas"], [row["node"] for row in stream["absent"]]) == ([], [other])
    assert run("explain - s/x", text)[0] == 2


def test_a_long_list_is_cut_for_people():
    nodes = ", ".join(f"{{id: n{n}, location: /r{n % 9}}}" for n in range(100))
    text = f"nodes: [{nodes}]\nstreams: [{{stream: s, shards: 90, replication_factor: 1}}]\n"
    _, out, _ = run("place -", text)
    assert "more rows" in out
    assert "r3" in out
    assert "n77 █" not in out
    _, out, _ = run("explain -", text)
    assert "more; ask for s/SHARD" in out


LARGE = (
    "levels: [az]\nnodes: ["
    + ", ".join(f"{{id: n{n}, location: /z{n % 9}}}" for n in range(100))
    + "]\nstreams:\n  - {stream: s, shards: 90, replication_factor: 2}\n"
    "  - {stream: t, shards: 3, replication_factor: 2}\n"
    "  - {stream: u, shards: 1, replication_factor: 9, placement_policies: node=exclusive}\n"
    "  - {stream: v, shards: 1, replication_factor: 10, placement_policies: node=exclusive}\n"
)


def test_place_shows_some_streams_or_a_summary():
    """Goal: thousands of lines are not the answer to everything; nothing else is placed."""
    _, whole, _ = run("place - --output json", LARGE)
    decisions = {each["stream"]: each for each in orjson.loads(whole)["decisions"]}
    status, out, _ = run("place - --stream t --stream v --output json", LARGE)
    assert (status, orjson.loads(out)["decisions"]) == (1, [decisions["t"], decisions["v"]])
    _, out, _ = run("place - --stream t", LARGE)
    assert out.startswith("t placed")
    assert "/az" not in out
    status, out, _ = run("place - --summary", LARGE)
    assert status == 1
    lines = out.splitlines()
    assert lines[0] == "4 streams: 3 placed, 1 rejected; 195 replicas of 94 shards"
    # 195 replicas on 100 nodes: how even they are is the strategy's.
    assert lines[1].startswith("100 nodes: 1 to ")
    assert "v rejected" in lines
    assert len(lines) < 60
    told = orjson.loads(run("place - --summary --output json", LARGE)[1])
    assert (told["outcomes"], told["replicas"]) == ({"placed": 3, "rejected": 1}, 195)
    assert all("replicas" not in each for each in told["decisions"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--stream nobody", "the file has no stream 'nobody'"),
        ("--stream s --summary", "--summary covers all streams"),
        ("--summary --output cluster", "--output cluster writes the whole file"),
    ],
)
def test_what_place_cannot_show_is_refused(words, says):
    status, out, told = run(f"place - {words}", LARGE)
    assert (status, out) == (2, "")
    assert says in " ".join(told.replace("│", " ").split())


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_understood_completely(file):
    status, out, told = run(f"place {file} --output json")
    assert (status in (0, 1), told) == (True, "")
    assert all("decisions" in orjson.loads(line) for line in out.splitlines())


def test_the_readme_shows_commands():
    assert len(steps("placement/README.md")) >= 3


@pytest.mark.parametrize("step", steps("placement/README.md"), ids=str)
def test_the_readme_shows_what_is_answered(step, monkeypatch, request):
    monkeypatch.chdir(ROOT)
    _, out, _ = run(step.command.removeprefix("placer "))
    hold(step, out, request.config.getoption("--rewrite"))
