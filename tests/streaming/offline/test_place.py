"""The offline tool: cluster files in, one answer per document out."""

import orjson
import pytest
from typer.testing import CliRunner

from streaming.cli.main import app

SITES = """
nodes:
  - {id: node-0x1, location: /site1}
  - {id: node-0x2, location: /site1}
  - {id: node-0x3, location: /site2}
  - {id: node-0x4, location: /site2}
  - {id: node-0x5, location: /site3}
  - {id: node-0x6, location: /site3}
streams:
"""


def place(text, *arguments):
    """Run `placer place -` on a text; returns the exit status and the answers."""
    result = CliRunner().invoke(app, ["place", "-", "--output", "json", *arguments], input=text)
    return result.exit_code, [orjson.loads(line) for line in result.stdout.splitlines()]


def test_the_documented_examples():
    """Goal: the three examples of Timeplus' page, from a file, exactly."""
    text = SITES + (
        "  - {stream: one, shards: 2, replication_factor: 3, placement_policies: ''}\n"
        "  - {stream: two, shards: 2, replication_factor: 3, placement_policies: shard=exclusive}\n"
        "  - {stream: three, shards: 1, replication_factor: 5, "
        "placement_policies: node=exclusive}\n"
    )
    # Each example stands on an empty cluster.
    answers = []
    for wanted in range(3):
        lines = text.splitlines()
        status, [answer] = place("\n".join([*lines[:-3], lines[-3 + wanted]]))
        answers.append((status, answer["decisions"][0]))
    assert (
        answers[0][0],
        answers[0][1]["replicas"],
    ) == (0, [["node-0x1", "node-0x3", "node-0x5"]] * 2)
    assert (answers[1][1]["replicas"]) == [
        ["node-0x1", "node-0x3", "node-0x5"],
        ["node-0x2", "node-0x4", "node-0x6"],
    ]
    status, decision = answers[2]
    assert (status, decision["outcome"]) == (1, "rejected")
    [reason] = decision["reasons"]
    assert (reason["code"], reason["need"], reason["have"]) == ("DOMAINS_TOO_FEW", 5, 3)
    assert reason["seen"] == ["/site1", "/site2", "/site3"]


def test_given_replicas_stay_and_short_lists_are_completed():
    status, [answer] = place(
        SITES + "  - {stream: s, shards: 2, replication_factor: 3, replicas: "
        "[[node-0x6], [node-0x1, node-0x2]]}\n"
    )
    [decision] = answer["decisions"]
    assert (status, decision["outcome"]) == (0, "degraded")
    first, second = decision["replicas"]
    assert (first[0], len(set(first)), len(set(second))) == ("node-0x6", 3, 3)
    assert second[:2] == ["node-0x1", "node-0x2"]
    assert "even per location" in decision["warnings"][0]["message"]


@pytest.mark.parametrize(
    ("replicas", "says"),
    [
        ("[[nobody]]", "'nobody', which is not registered"),
        ("[[node-0x1, node-0x1]]", "a node twice"),
        ("[[], [], []]", "lists 3 shards"),
    ],
)
def test_replicas_that_cannot_be_adopted_are_rejected(replicas, says):
    status, [answer] = place(
        SITES + f"  - {{stream: s, shards: 2, replication_factor: 3, replicas: {replicas}}}\n"
    )
    [decision] = answer["decisions"]
    assert (status, decision["outcome"]) == (1, "rejected")
    assert says in decision["reasons"][0]["message"]


def test_a_surplus_is_kept():
    status, [answer] = place(
        SITES + "  - {stream: s, shards: 2, replication_factor: 2, policy: {strategy: spread},"
        " replicas: [[node-0x1, node-0x3, node-0x5], [node-0x4]]}\n"
    )
    [decision] = answer["decisions"]
    assert (status, decision["outcome"]) == (0, "placed")
    first, second = decision["replicas"]
    assert first == ["node-0x1", "node-0x3", "node-0x5"]
    assert (second[0], len(second)) == ("node-0x4", 2)


def test_one_wrong_stream_does_not_silence_the_others():
    status, [answer] = place(
        SITES + "  - {stream: bad, shards: 1, replication_factor: 0}\n"
        "  - {stream: worse, shards: many, replication_factor: 1}\n"
        "  - {stream: key, shards: 1, replication_factor: 1, placement_policies: color=red}\n"
        "  - {stream: good, shards: 1, replication_factor: 1}\n"
    )
    outcomes = {each["stream"]: each["outcome"] for each in answer["decisions"]}
    assert status == 1
    assert outcomes == {
        "bad": "rejected",
        "worse": "rejected",
        "key": "rejected",
        "good": "placed",
    }
    codes = [each["reasons"][0]["code"] for each in answer["decisions"][:3]]
    assert codes == ["REPLICATION_FACTOR_OUT_OF_RANGE", "STREAM_MALFORMED", "POLICY_UNKNOWN_KEY"]


def test_documents_are_answered_one_by_one():
    """Method: NDJSON with a malformed line, a fault in a field, and two that are fine."""
    lines = [
        '{"name": "empty", "nodes": [], "streams": []}',
        '{"nodes": [{"id": "a"}',
        '{"nodes": [{"id": "a", "location": "rack1"}]}',
        (
            '{"name": "fine", "nodes": [{"id": "a"}], "streams": '
            '[{"stream": "s", "shards": 1, "replication_factor": 1}]}'
        ),
    ]
    status, answers = place("\n".join(lines))
    assert status == 2
    assert [len(answers), answers[0]["name"], answers[3]["name"]] == [4, "empty", "fine"]
    assert answers[1]["error"]["line"] == 2
    assert (
        answers[2]["error"]["line"],
        answers[2]["error"]["field"],
    ) == (3, "nodes[0].location")
    assert answers[3]["decisions"][0]["replicas"] == [["a"]]


def test_a_fault_names_its_line():
    text = SITES.replace("/site2}", "/si te}", 1) + "  []\n"
    status, [answer] = place(text)
    assert status == 2
    assert (answer["error"]["line"], answer["error"]["field"]) == (5, "nodes[2].location")


def test_text_output_draws_the_topology():
    text = SITES + "  - {stream: s, shards: 2, replication_factor: 3}\n"
    result = CliRunner().invoke(app, ["place", "-"], input=text)
    assert result.exit_code == 0
    assert "site2" in result.stdout
    assert "node-0x3 ████" in result.stdout
    assert "s placed" in result.stdout


def test_a_file_that_is_not_there_is_a_usage_error():
    result = CliRunner().invoke(app, ["place", "no-such-file.yaml"])
    assert result.exit_code == 2
    assert "No such file" in result.output
