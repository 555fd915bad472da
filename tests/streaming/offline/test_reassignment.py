"""The JSON of `kafka-reassign-partitions`: read and written as Kafka's tool does.

The texts are those that its own tests and its documentation show (ReassignPartitionsCommandTest),
and what the tool of Kafka 4.3.1 prints of a broker's present assignments: with directories.
"""

import orjson
import pytest

from streaming.offline.reassignment import (
    Listed,
    ReassignmentInvalid,
    parse_reassignment,
    reassignment_json,
    shard_lists,
)
from tests.builders.offline_clusters import run

KAFKA = (
    '{"version":1,"partitions":[{"topic":"bar","partition":0,"replicas":[2,3,0],'
    '"log_dirs":["any","any","any"]},{"topic":"foo","partition":1,"replicas":[1,2,3],'
    '"log_dirs":["any","any","any"]},{"topic":"foo","partition":10,"replicas":[0],'
    '"log_dirs":["any"]}]}'
)

# Topics as Java sorts them, partitions by number.
PRESENT = (
    '{"version":1,"partitions":[{"topic":"Zed","partition":0,"replicas":[1],'
    '"log_dirs":["/var/lib/kafka/data"]},{"topic":"bar.b","partition":1,"replicas":[1,0],'
    '"log_dirs":["/var/lib/kafka/data","/var/lib/kafka/more"]},{"topic":"foo","partition":2,'
    '"replicas":[1],"log_dirs":["any"]},{"topic":"foo","partition":10,"replicas":[1],'
    '"log_dirs":["any"]}]}'
)


def brokers(count=6, **status):
    """A document of brokers 0 to count - 1 over three racks."""
    nodes = [
        {"id": str(n), "location": f"/r{n % 3}", "status": status.get(f"b{n}", "up")}
        for n in range(count)
    ]
    return {"levels": ["rack"], "nodes": nodes, "streams": []}


@pytest.mark.parametrize("text", [KAFKA, PRESENT])
def test_what_was_read_is_written_byte_for_byte(text):
    found = parse_reassignment(text)
    assert reassignment_json(found) == text
    assert reassignment_json(dict(reversed(found.items()))) == text


def test_nothing_is_written_as_nothing():
    assert reassignment_json({}) == '{"version":1,"partitions":[]}'


@pytest.mark.parametrize(
    "text",
    [
        '{"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]}]}',
        (
            '{"partitions":[{"topic":"foo","partition":0,"replicas":[1,2],'
            '"log_dirs":["/data/a","any"]}],"version":1}'
        ),
    ],
)
def test_version_and_directories_may_be_left_out(text):
    assert {key: listed.nodes for key, listed in parse_reassignment(text).items()} == {
        ("foo", 0): ("1", "2")
    }


ROW = '{"topic":"t","partition":0,"replicas":[1,2]}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[]", "not an object"),
        ('{"version":2,"partitions":[]}', "not supported version field value 2"),
        ('{"version":1}', "'partitions' is missing"),
        ('{"version":1,"partitions":[]}', "the list of partitions is empty"),
        (f'{{"partitions":[{ROW},{ROW}]}}', "t-0 is listed twice"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[]}]}', "of t-0 is empty"),
        (
            '{"partitions":[{"topic":"t","partition":0,"replicas":[1,2,1]}]}',
            "t-0 lists 1 more than once",
        ),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":["a"]}]}', "no broker numbers"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[-1]}]}', "no broker numbers"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[true]}]}', "no broker numbers"),
        ('{"partitions":[{"topic":"t","partition":-1,"replicas":[1]}]}', "partition is missing"),
        ('{"partitions":[{"topic":"t","partition":99999999,"replicas":[1]}]}', "not below 10000"),
        ('{"partitions":[{"topic":"a/b","partition":0,"replicas":[1]}]}', "no name of a topic"),
        ('{"partitions":[7]}', "partitions[0] is no object"),
        # The documentation's own sample: one directory for two replicas.
        (
            '{"partitions":[{"topic":"t","partition":0,"replicas":[5,6],"log_dirs":["any"]}]}',
            "not as many log_dirs as replicas",
        ),
        (
            '{"partitions":[{"topic":"t","partition":0,"replicas":[5],"log_dirs":["data"]}]}',
            "neither 'any' nor an absolute path",
        ),
    ],
)
def test_what_kafka_refuses_is_refused(text, says):
    with pytest.raises(ReassignmentInvalid, match=says.replace("[", r"\[")):
        parse_reassignment(text)


@pytest.mark.parametrize("node", ["n1", "01", "-1", "1.0", "²", "2147483648"])
def test_nodes_that_are_no_broker_numbers_cannot_be_written(node):
    with pytest.raises(ReassignmentInvalid, match="is no broker number"):
        reassignment_json({("t", 0): Listed((node,))})


def test_lists_of_topics_have_no_holes():
    assert shard_lists(parse_reassignment(KAFKA))["foo"][:3] == [[], ["1", "2", "3"], []]
    assert len(shard_lists(parse_reassignment(KAFKA))["foo"]) == 11


def test_a_dead_broker_is_replaced_from_kafkas_own_files(tmp_path):
    """What the tool never could: no generate for a decommission; reason and way back included."""
    rows = [
        {"topic": "orders", "partition": n, "replicas": [0, 1, 2], "log_dirs": ["/d0", "any", "/d"]}
        for n in range(2)
    ]
    given = orjson.dumps({"version": 1, "partitions": rows}).decode()
    (tmp_path / "now.json").write_text(given)
    now, back = str(tmp_path / "now.json"), tmp_path / "back.json"
    result = run(
        brokers(b1="dead"), "--assignments", now, "--output", "kafka", "--rollback", str(back)
    )
    assert result.exit_code == 0, result.output
    assert back.read_text() == given + "\n"
    wanted = parse_reassignment(result.stdout)
    assert {listed.nodes for listed in wanted.values()} == {("0", "4", "2")}
    assert result.stdout == reassignment_json(wanted) + "\n"
    # The way back of the way there is the way there.
    (tmp_path / "then.json").write_text(result.stdout)
    again = run(brokers(), "--assignments", str(tmp_path / "then.json"), "--phase", "repair")
    assert again.stdout.startswith("nothing to move")


def test_a_topic_keeps_the_factor_that_the_cluster_file_gives(tmp_path):
    """While a reassignment runs the tools of others take the longer list for the factor."""
    document = brokers()
    document["streams"] = [{"stream": "orders", "shards": 1, "replication_factor": 3}]
    (tmp_path / "now.json").write_text(
        '{"partitions":[{"topic":"orders","partition":0,"replicas":[0,1,2,4]}]}'
    )
    result = run(document, "--assignments", str(tmp_path / "now.json"), "--output", "kafka")
    (after,) = parse_reassignment(result.stdout).values()
    assert len(after.nodes) == 3


@pytest.fixture
def unhealthy(tmp_path):
    """A document with a dead broker, and the options that plan for its four partitions."""
    rows = [{"topic": "t", "partition": n, "replicas": [0, 1, 2]} for n in range(4)]
    now = tmp_path / "now.json"
    now.write_text(orjson.dumps({"partitions": rows}).decode())
    return brokers(b1="dead"), ("--assignments", str(now), "--until-balanced")


def test_every_wave_is_a_file(tmp_path, unhealthy):
    document, options = unhealthy
    waves = tmp_path / "new" / "waves"
    result = run(document, *options, "--max-moves", "2", "--output-dir", str(waves))
    assert result.exit_code == 0, result.output
    found = sorted(waves.glob("wave-*.json"))
    assert len(found) > 2
    assert all(len(parse_reassignment(each.read_text())) <= 2 for each in found[:2])
    said = " ".join(result.stdout.split())
    for each in found:
        assert f"--execute \\ --reassignment-json-file {each}" in said
    assert f"--path-to-json-file {waves / 'leader-election.json'}" in said


def test_waves_after_one_another_lead_to_the_end(tmp_path, unhealthy):
    """Each file states whole lists: what the last one names of a partition is what stays."""
    document, options = unhealthy
    waves, net = tmp_path / "waves", tmp_path / "net"
    whole = orjson.loads(run(document, *options, "--output", "json").stdout)["final"]["replicas"]
    run(document, *options, "--output-dir", str(waves))
    told = run(document, *options, "--squash", "--output", "json", "--output-dir", str(net))
    then = {}
    for each in sorted(waves.glob("wave-*.json")):
        then |= parse_reassignment(each.read_text())
    squashed = parse_reassignment((net / "wave-1.json").read_text())
    assert {key: listed.nodes for key, listed in then.items()} == {
        ("t", n): tuple(nodes) for n, nodes in enumerate(whole["t"]) if ("t", n) in then
    }
    before = ("0", "1", "2")
    assert squashed == {key: listed for key, listed in then.items() if listed.nodes != before}
    kafka = orjson.loads(told.stdout)["kafka"]
    copies = sum(len({*listed.nodes} - {*before}) for listed in squashed.values())
    elections = [key for key, listed in squashed.items() if listed.nodes[0] != "0"]
    assert (kafka["squashed"], kafka["copies"]) == (True, copies)
    assert [(each["stream"], each["shard"]) for each in kafka["elections"]] == sorted(elections)
    election = orjson.loads((net / "leader-election.json").read_text())["partitions"]
    assert [(each["topic"], each["partition"]) for each in election] == sorted(elections)
    assert elections
    assert kafka["files"] == [str(net / "wave-1.json"), str(net / "leader-election.json")]


def test_several_waves_are_not_written_where_kafkas_tool_reads_one(tmp_path, unhealthy):
    document, options = unhealthy
    back = tmp_path / "back.json"
    result = run(
        document, *options, "--max-moves", "2", "--output", "kafka", "--rollback", str(back)
    )
    assert (result.exit_code, result.stdout, back.exists()) == (2, "", False)
    said = " ".join(result.stderr.replace("│", "").split())
    assert "kafka-reassign-partitions silently ignores all but the first of a file" in said
    squashed = run(document, *options, "--squash", "--output", "kafka")
    assert len(parse_reassignment(squashed.stdout)) > 2
    assert "kafka-leader-election --election-type preferred" in squashed.stderr


def test_files_of_an_earlier_plan_are_not_mixed_with_others(tmp_path, unhealthy):
    document, options = unhealthy
    waves = tmp_path / "waves"
    assert run(document, *options, "--output-dir", str(waves)).exit_code == 0
    (waves / "wave-1.json").write_text("kept")
    again = run(document, *options, "--output-dir", str(waves))
    assert (again.exit_code, again.stdout) == (2, "")
    assert "is of an earlier plan" in " ".join(again.stderr.replace("│", "").split())
    assert (waves / "wave-1.json").read_text() == "kept"


def test_a_plan_without_moves_writes_no_file(tmp_path):
    waves = tmp_path / "waves"
    result = run(brokers(), "--output-dir", str(waves), "--output", "json")
    assert orjson.loads(result.stdout)["kafka"] == {
        "files": [],
        "squashed": False,
        "copies": 0,
        "elections": [],
        "commands": [],
    }
    assert not waves.exists()


# As ReassignPartitionsCommand prints with --generate.
GENERATED = f"""Current partition replica assignment
{KAFKA}

Proposed partition reassignment configuration
{PRESENT}
"""
# And with --execute.
EXECUTED = f"""Current partition replica assignment

{KAFKA}

Save this to use as the --reassignment-json-file option during rollback
Successfully started partition reassignment for foo-1
"""


@pytest.mark.parametrize("printed", [GENERATED, EXECUTED])
def test_what_the_tool_prints_is_read_as_it_comes(printed):
    assert parse_reassignment(printed) == parse_reassignment(KAFKA)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{KAFKA}\n{PRESENT}\n", "2 JSON documents, of which Kafka's tool reads the first"),
        ("Current partition replica assignment\n", "not JSON"),
        (f"{KAFKA}\n{{", "not JSON"),
    ],
)
def test_what_is_more_or_less_than_one_document_is_refused(text, says):
    with pytest.raises(ReassignmentInvalid, match=says):
        parse_reassignment(text)


def assigned(tmp_path, *rows):
    """The options that name such partitions: topic, number, brokers."""
    rows = [{"topic": t, "partition": n, "replicas": list(nodes)} for t, n, *nodes in rows]
    path = tmp_path / "assigned.json"
    path.write_text(orjson.dumps({"partitions": rows}).decode())
    return "--assignments", str(path)


@pytest.mark.parametrize("command", ["check", "plan", "explain"])
def test_assignments_outrank_the_file(tmp_path, command):
    document = brokers()
    rules = {"strategy": "spread", "rules": [{"at_most": 1, "per": "rack"}]}
    stream = {"stream": "t", "shards": 2, "replication_factor": 2, "policy": rules}
    document["streams"] = [stream | {"replicas": [["0", "1"], ["1", "2"]]}]
    given = assigned(tmp_path, ("t", 1, 0, 3))
    before, after = (
        orjson.loads(run(document, *each, "--output", "json", command=command).stdout)
        for each in ((), given)
    )
    assert before != after
    if command == "check":
        assert before["violations"] == []
        assert {(each["stream"], each["shard"]) for each in after["violations"]} == {("t", 1)}
    elif command == "plan":
        assert {(each["stream"], each["shard"]) for each in after["moves"]} == {("t", 1)}


@pytest.mark.parametrize("command", ["check", "plan", "explain"])
@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([("new", 2, 0, 1)], "topic 'new' have partition 2 and lack 0, 1; the cluster file has no"),
        ([("t", 3, 0, 1)], "topic 't' have partition 3 and lack 2; the cluster file has 2 part"),
    ],
)
def test_a_gap_in_the_partitions_is_told(tmp_path, command, rows, says):
    document = brokers()
    document["streams"] = [{"stream": "t", "shards": 2, "replication_factor": 2}]
    result = run(document, *assigned(tmp_path, *rows), command=command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in " ".join(result.stderr.replace("│", "").split())


@pytest.mark.parametrize("command", ["check", "plan", "explain"])
def test_a_topic_that_the_cluster_file_does_not_list_is_named(tmp_path, command):
    document = brokers()
    given = assigned(tmp_path, ("new", 0, 0, 1))
    assert run(document, *given, command=command).stderr == ""
    document["streams"] = [{"stream": "t", "shards": 1, "replication_factor": 1}]
    document["streams"][0]["replicas"] = [["0"]]
    result = run(document, *given, command=command)
    assert result.exit_code == 0
    assert "that the cluster file does not list" in result.stderr
    assert result.stderr.endswith("partitions: new\n")


def test_what_cannot_be_written_is_told(tmp_path):
    document = brokers(b1="dead")
    document["nodes"].append({"id": "n9", "location": "/r0"})
    document["streams"] = [
        {"stream": "s", "shards": 1, "replication_factor": 3, "replicas": [["n9", "1", "2"]]}
    ]
    result = run(document, "--output", "kafka")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "node 'n9' is no broker number" in " ".join(result.stderr.replace("│", "").split())
    for wrong in ("{", '{"partitions":[]}'):
        (tmp_path / "wrong.json").write_text(wrong)
        assert run(document, "--assignments", str(tmp_path / "wrong.json")).exit_code == 2
    assert run(document, "--assignments", str(tmp_path / "none.json")).exit_code == 2
