"""A saved plan, and a cluster that has changed since."""

import orjson
import pytest

from tests.builders.offline_clusters import cluster, plan, run, stream, ways

FLEET = "a1 b1:dead b2 c1 d1"
LISTS = ("a1 b1 c1", "a1 b1 c1")


@pytest.fixture
def saved(tmp_path):
    """The file of a plan for the fleet."""
    return tmp_path / "plan.json"


def kept(saved, document, *more):
    status, answer = plan(document, "--save", str(saved), *more)
    assert status == 0
    assert orjson.loads(saved.read_bytes())["hash"] == answer["impact"]["hash"]
    return answer


def test_a_plan_stands_while_what_it_touches_does(saved):
    document = cluster(FLEET, stream("s", *LISTS), stream("t", "a1", factor=1))
    answer = kept(saved, document)
    status, told = plan(document, "--verify", str(saved))
    assert (status, told["stands"], told["changes"]) == (0, True, [])
    assert told["hash"] == answer["impact"]["hash"]
    assert ways(told) == ways(answer)
    # Another stream, another node: nothing that the moves rest on.
    document["nodes"].append({"id": "d2", "location": "/us/d"})
    document["streams"][1]["replicas"] = [["c1"]]
    assert plan(document, "--verify", str(saved))[0] == 0
    text = run(document, "--verify", str(saved)).stdout
    assert text.startswith("the plan is valid: nothing that its 2 moves depend on has changed")


@pytest.mark.parametrize(
    ("nodes", "streams", "says"),
    [
        ("a1 b1 b2 c1 d1", [stream("s", *LISTS)], 'node b1: status was "dead", is "up"'),
        (
            "a1 b1:dead b2:draining c1 d1",
            [stream("s", *LISTS)],
            'node b2: status was "up", is "draining"',
        ),
        (
            FLEET,
            [stream("s", "a1 b2 c1", LISTS[1])],
            'shard s/0: replicas was ["a1", "b1", "c1"], is ["a1", "b2", "c1"]',
        ),
        (
            FLEET,
            [stream("s", *LISTS, factor=2)],
            "stream s: replication_factor was 3, is 2",
        ),
        (FLEET, [], "stream s is gone"),
    ],
)
def test_a_changed_cluster_is_refused_with_what_changed(saved, nodes, streams, says):
    kept(saved, cluster(FLEET, stream("s", *LISTS)))
    result = run(cluster(nodes, *streams), "--verify", str(saved))
    assert result.exit_code == 2
    lines = result.stdout.splitlines()
    assert lines[0] == "the plan is refused: the cluster has changed"
    assert f"  {says}" in lines
    status, told = plan(cluster(nodes, *streams), "--verify", str(saved))
    assert (status, told["stands"], told["moves"]) == (2, False, [])
    assert {each["kind"] for each in told["changes"]} <= {"node", "shard", "stream"}


def test_what_was_asked_is_asked_again(saved, tmp_path):
    """A plan of a drain stands on the cluster without the drain, and with it."""
    joining = tmp_path / "nodes.yaml"
    joining.write_text("nodes: [{id: b3, location: /eu/b}]")
    document = cluster("a1 b1 c1", stream("s", *LISTS))
    answer = kept(saved, document, "--drain", "b1", "--add", str(joining), "--rf", "s=3")
    assert ways(answer) == [("s", n, "replace", "b1", "b3") for n in range(2)]
    assert plan(document, "--verify", str(saved))[0] == 0
    document["nodes"][1]["status"] = "draining"
    document["nodes"].append({"id": "b3", "location": "/eu/b"})
    assert plan(document, "--verify", str(saved))[0] == 0
    document["nodes"][3]["location"] = "/eu/x"
    # The file says what is to join, not what has: where it stands is the plan's own word.
    assert plan(document, "--verify", str(saved))[0] == 0
    del document["nodes"][1]
    assert run(document, "--verify", str(saved)).exit_code == 2


def test_other_answers_have_other_hashes(saved):
    document = cluster(FLEET, stream("s", *LISTS))
    whole = kept(saved, document)["impact"]["hash"]
    again = kept(saved, document)["impact"]["hash"]
    part = kept(saved, document, "--max-moves", "1")["impact"]["hash"]
    assert whole == again != part


def test_a_plan_that_is_not_the_expected_one_is_not_given(saved):
    document = cluster(FLEET, stream("s", *LISTS))
    _, answer = plan(document)
    seen = answer["impact"]["hash"]
    assert plan(document, "--expect", seen) == (0, answer)
    document["nodes"][2]["status"] = "draining"
    result = run(document, "--expect", seen, "--save", str(saved))
    assert (result.exit_code, result.stdout, saved.exists()) == (2, "", False)
    assert "the cluster or the options have changed" in " ".join(
        result.stderr.replace("│", "").split()
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda plan: plan["moves"][0].update(add="c1"), "its moves have the hash"),
        (lambda plan: plan["touched"]["nodes"]["b1"].update(status="up"), "have the hash"),
        (lambda plan: plan.update(version=2), "version 2 of saved plans is not known"),
        (lambda plan: plan.pop("moves"), "not a plan that --save has written"),
        (lambda plan: plan["moves"][0].update(kind="teleport"), "not a plan that --save"),
        (lambda plan: plan["asked"].update(add=[{"id": "/"}]), "id"),
    ],
)
def test_a_file_that_was_written_to_is_refused(saved, change, says):
    document = cluster(FLEET, stream("s", *LISTS))
    kept(saved, document)
    value = orjson.loads(saved.read_bytes())
    change(value)
    saved.write_bytes(orjson.dumps(value))
    result = run(document, "--verify", str(saved))
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in " ".join(result.stderr.replace("│", "").split())


def test_files_that_are_no_plans(saved, tmp_path):
    document = cluster(FLEET, stream("s", *LISTS))
    for text in ("", "[]", "null", "{}", '"plan"'):
        saved.write_text(text)
        assert run(document, "--verify", str(saved)).exit_code == 2
    assert run(document, "--verify", str(tmp_path / "none")).exit_code == 2
    assert run(document, "--save", str(tmp_path / "no" / "where")).exit_code == 2
    kept(saved, document)
    assert run(document, "--verify", str(saved), "--drain", "a1").exit_code == 2


def test_a_plan_is_kept_of_one_document(saved):
    two = orjson.dumps(cluster(FLEET)).decode()
    from typer.testing import CliRunner

    from streaming.cli.main import app

    result = CliRunner().invoke(app, ["plan", "-", "--save", str(saved)], input=f"{two}\n{two}\n")
    assert result.exit_code == 2
