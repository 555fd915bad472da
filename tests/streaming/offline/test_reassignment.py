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


def test_every_wave_is_a_line(tmp_path):
    rows = [{"topic": "t", "partition": n, "replicas": [0, 1, 2]} for n in range(4)]
    (tmp_path / "now.json").write_text(orjson.dumps({"partitions": rows}).decode())
    document, limit = brokers(b1="dead"), ("--until-balanced", "--max-moves", "2")
    result = run(document, "--assignments", str(tmp_path / "now.json"), "--output", "kafka", *limit)
    lines = result.stdout.splitlines()
    assert len(lines) > 2
    assert all(len(parse_reassignment(line)) <= 2 for line in lines[:2])


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
