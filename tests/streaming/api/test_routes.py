"""Goal: each route answers from one commit, which it names, in the bodies of `schemas`.

Method: the application on a model that is filled without Kafka; answers are held against the models
that OpenAPI publishes.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from placement.model import Liveness, NodeChanged, StreamDropped
from streaming.api import EventHub, Service, bodies, make_application
from streaming.errors import BrokerUnreachable
from streaming.read_model import ReadModel
from streaming.read_model.fold import Fold
from streaming.requests import NoAnswer
from tests.builders.api_service import (
    IMPACT,
    READER,
    TOKEN,
    ServedModel,
    bearer,
    token_rules,
)

V1 = "/api/v1"


@pytest.fixture
def served() -> ServedModel:
    return ServedModel().fill()


@pytest.fixture
def client(served: ServedModel) -> Iterator[TestClient]:
    with served.client() as made:
        yield made


def refused(answer: Any, status: int, code: str) -> str:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    return answer.json()["message"]


def test_a_shard(client: TestClient) -> None:
    answer = client.get(f"{V1}/streams/orders/shards/1")
    body = answer.json()
    bodies.ShardAnswer.model_validate_json(answer.content)
    assert body["leader"] == body["assignment"]["replicas"][0]
    assert len(body["assignment"]["replicas"]) == 2
    assert body["marker"] == {
        "cell": "main", "sequence": 2, "writer_epoch": 1, "now": 1_001, "stale_seconds": 0.0,
    }  # fmt: skip
    marker = "cell=main, sequence=2, writer_epoch=1, now=1001"
    assert answer.headers["Placer-Marker"] == marker
    assert answer.headers["ETag"] == f'"{body["assignment"]["epoch"]}"'


@pytest.mark.parametrize("given", ['"1"', 'W/"1"', '"9", "1"'])
def test_an_unchanged_shard_is_not_sent_again(client: TestClient, given: str) -> None:
    answer = client.get(f"{V1}/streams/orders/shards/1", headers={"If-None-Match": given})
    assert (answer.status_code, answer.content) == (304, b"")
    assert "sequence=2" in answer.headers["Placer-Marker"]
    other = client.get(f"{V1}/streams/orders/shards/1", headers={"If-None-Match": '"2"'})
    assert other.status_code == 200


def test_waiting_for_an_epoch(served: ServedModel, client: TestClient) -> None:
    path = f"{V1}/streams/orders/shards/1"
    assert client.get(path, params={"wait_for_epoch": 1}).status_code == 200
    late = client.get(path, params={"wait_for_epoch": 2, "timeout_seconds": 0.05})
    message = refused(late, 504, "EPOCH_NOT_REACHED")
    assert "orders/1 has epoch 1 and not epoch 2 after 0.05 s" in message
    refused(client.get(path, params={"timeout_seconds": 31}), 400, "VALUE_INVALID")


def test_what_is_not_there(client: TestClient) -> None:
    missing = client.get(f"{V1}/streams/nope/shards/0")
    assert "'nope'" in refused(missing, 404, "STREAM_UNKNOWN")
    beyond = refused(client.get(f"{V1}/streams/orders/shards/3"), 404, "SHARD_UNKNOWN")
    assert beyond == ("there is no shard orders/3: stream orders has 3 shards, counted from 0")
    refused(client.get(f"{V1}/streams/nope"), 404, "STREAM_UNKNOWN")
    refused(client.get(f"{V1}/streams/nope/shards"), 404, "STREAM_UNKNOWN")
    refused(client.get(f"{V1}/nodes/n9"), 404, "NODE_UNKNOWN")
    assert "openapi.json" in refused(client.get("/nope"), 404, "NOT_FOUND")
    assert "use GET" in refused(client.post(f"{V1}/nodes", json={}), 405, "METHOD_NOT_ALLOWED")


def test_many_shards_at_once(client: TestClient) -> None:
    asked = [{"stream": "orders", "shard": 2}, {"stream": "logs", "shard": 7}]
    answer = client.post(f"{V1}/shards:lookup", json={"shards": asked})
    bodies.LookupAnswer.model_validate_json(answer.content)
    first, second = answer.json()["shards"]
    assert (first["assignment"]["shard"], first["code"]) == (2, None)
    assert (second["assignment"], second["code"]) == (None, "SHARD_UNKNOWN")
    many = [{"stream": "orders", "shard": 0}] * (bodies.SHARDS_PER_LOOKUP_MAX + 1)
    refused(client.post(f"{V1}/shards:lookup", json={"shards": many}), 400, "VALUE_INVALID")
    wrong = client.post(f"{V1}/shards:lookup", json={"shards": [{"stream": 5, "shard": 0}]})
    assert "shards.0.stream" in refused(wrong, 400, "VALUE_INVALID")


def test_the_nearest_replica(client: TestClient) -> None:
    found = client.get(f"{V1}/streams/logs/shards/0").json()["assignment"]["replicas"]
    params = {"stream": "logs", "shard": 0, "client": found[-1]}
    answer = client.get(f"{V1}/nearest", params=params)
    bodies.NearestAnswer.model_validate_json(answer.content)
    assert answer.json()["replica"] == found[-1]
    wrong = client.get(f"{V1}/nearest", params=params | {"location": "no slash"})
    assert "location" in refused(wrong, 400, "VALUE_INVALID")
    refused(client.get(f"{V1}/nearest", params=params | {"shard": 5}), 404, "SHARD_UNKNOWN")


@pytest.mark.parametrize(
    ("path", "model", "keys"),
    [
        ("streams", bodies.DecisionPage, {"logs", "orders"}),
        ("streams/logs/shards", bodies.AssignmentPage, {0, 1}),
        ("nodes", bodies.NodePage, {"n1", "n2", "n3", "n4"}),
        ("locations", bodies.LocationPage, {"/a", "/a/r1", "/a/r2", "/a/r3"}),
    ],
)
def test_lists_come_by_pages(client: TestClient, path: str, model: Any, keys: set[Any]) -> None:
    whole = client.get(f"{V1}/{path}")
    model.model_validate_json(whole.content)
    assert whole.json()["next"] is None
    pages, cursor = [], None
    while not pages or cursor is not None:
        answer = client.get(
            f"{V1}/{path}", params={"limit": 1} | ({"cursor": cursor} if cursor else {})
        )
        pages.append(answer.json()["items"])
        cursor = answer.json()["next"]
    assert len(pages) == len(keys)
    assert [item for each in pages for item in each] == whole.json()["items"]


def test_a_cursor_of_somebody_else(client: TestClient) -> None:
    for cursor in ("%%%", "a", "_w"):
        message = refused(
            client.get(f"{V1}/nodes", params={"cursor": cursor}), 400, "VALUE_INVALID"
        )
        assert message.startswith("cursor:")


def test_lists_are_filtered(served: ServedModel, client: TestClient) -> None:
    served.commit(NodeChanged(9, "n1", "a", 2, Liveness.DEAD, None))
    dead = client.get(f"{V1}/nodes", params={"status": "dead"}).json()["items"]
    assert [each["node"]["node_id"] for each in dead] == ["n1"]
    rack = client.get(f"{V1}/nodes", params={"location": "/a/r2"}).json()["items"]
    assert [each["node"]["node_id"] for each in rack] == ["n2"]
    none = client.get(f"{V1}/streams", params={"outcome": "rejected"}).json()["items"]
    assert none == []


def test_moves_and_violations_are_those_of_the_records(
    served: ServedModel, client: TestClient
) -> None:
    served.commit(NodeChanged(9, "n1", "a", 2, Liveness.DEAD, None))
    moves = client.get(f"{V1}/moves")
    bodies.MovePage.model_validate_json(moves.content)
    assert {each["remove"] for each in moves.json()["items"]} == {"n1"}
    assert client.get(f"{V1}/moves", params={"state": "completed"}).json()["items"] == []
    violations = client.get(f"{V1}/violations")
    bodies.ViolationPage.model_validate_json(violations.content)
    found = violations.json()["items"]
    assert found
    fixable = client.get(f"{V1}/violations", params={"class": "fixable"}).json()["items"]
    assert fixable == [each for each in found if each["class"] == "fixable"]
    assert client.get(f"{V1}/violations", params={"stream": "nope"}).json()["items"] == []
    alerts = client.get(f"{V1}/alerts")
    bodies.AlertPage.model_validate_json(alerts.content)


def test_a_stream_and_a_node_are_described(client: TestClient) -> None:
    stream = client.get(f"{V1}/streams/orders")
    bodies.StreamAnswer.model_validate_json(stream.content)
    assert stream.json()["description"]["health"] == "healthy"
    node = client.get(f"{V1}/nodes/n2")
    bodies.NodeAnswer.model_validate_json(node.content)
    assert node.json()["description"]["location"] == "/a/r2"


def test_the_status(served: ServedModel, client: TestClient) -> None:
    answer = client.get(f"{V1}/status")
    bodies.StatusAnswer.model_validate_json(answer.content)
    body = answer.json()
    assert body["status"]["nodes"] == {"up": 4}
    assert [each["role"] for each in body["status"]["processes"]] == ["active", "standby"]
    assert (body["shards"], body["fault"]) == (5, None)


def test_a_stale_state_is_not_answered(served: ServedModel, client: TestClient) -> None:
    served.seconds += 15
    assert client.get(f"{V1}/streams/orders/shards/0").json()["marker"]["stale_seconds"] == 15.0
    served.seconds += 1
    served.model.note_fault("no broker answers at b:9092")
    for path in ("streams/orders/shards/0", "nodes", "streams/orders", "events"):
        answer = client.get(f"{V1}/{path}")
        message = refused(answer, 503, "STALE")
        assert "16 s ago" in message
        assert "no broker answers at b:9092" in message
        assert (answer.headers["Retry-After"], answer.json()["stale_seconds"]) == ("5", 16.0)
    status = client.get(f"{V1}/status").json()
    assert (status["marker"]["stale_seconds"], status["fault"]) == (
        16.0,
        "no broker answers at b:9092",
    )


def test_before_the_first_commit() -> None:
    with ServedModel().client() as client:
        message = refused(client.get(f"{V1}/nodes"), 503, "NOT_READY")
        assert "start one with: placer run" in message


def test_a_dropped_stream_is_unknown_once_it_is_forgotten(
    served: ServedModel, client: TestClient
) -> None:
    served.commit(StreamDropped(3, "orders", 2))
    refused(client.get(f"{V1}/streams/orders/shards/0"), 404, "SHARD_UNKNOWN")


def test_openapi_names_every_route(client: TestClient) -> None:
    paths = client.get(f"{V1}/openapi.json").json()["paths"]
    assert {name.removeprefix(V1) for name in paths} == {
        "/streams", "/streams/{stream}", "/streams/{stream}/shards",
        "/streams/{stream}/shards/{shard}", "/shards:lookup", "/nearest", "/nodes", "/nodes/{node}",
        "/locations", "/violations", "/moves", "/alerts", "/events", "/status",
        "/requests:dry-run", "/requests",
    }  # fmt: skip


# Requests


DRAIN = {"type": "Drain", "target": "n1", "reason": "new disks"}


def test_a_service_that_only_reads_takes_no_requests(client: TestClient) -> None:
    for path in ("requests", "requests:dry-run"):
        message = refused(client.post(f"{V1}/{path}", json=DRAIN), 403, "OPERATING_DISABLED")
        assert message == "this service only reads; start it with --operate"


def test_a_request_says_who_asked() -> None:
    served = ServedModel(operate=True).fill()
    with served.client(token_rules()) as client:
        seen = client.post(f"{V1}/requests:dry-run", json=DRAIN, headers=bearer(TOKEN))
        assert seen.json() == {"target": "n1", "impact": IMPACT}
        agreed = DRAIN | {"expected_impact_hash": IMPACT["impact_hash"], "request_id": "r1"}
        answer = client.post(f"{V1}/requests", json=agreed, headers=bearer(TOKEN))
        bodies.RequestAnswer.model_validate_json(answer.content)
    (previewed,), (sent,) = served.operating.previewed, served.operating.sent
    assert (sent.requested_by, sent.request_id, sent.expected_impact_hash) == (
        "alice",
        "r1",
        "abc1",
    )
    assert (type(previewed).__name__, previewed.requested_by) == ("Drain", "alice")


def test_who_may_only_read_asks_for_nothing() -> None:
    served = ServedModel(operate=True).fill()
    with served.client(token_rules()) as client:
        bob = client.post(f"{V1}/requests", json=DRAIN, headers=bearer(READER))
        assert "'bob' may only read" in refused(bob, 403, "ROLE_MISSING")
        nobody = client.post(f"{V1}/requests:dry-run", json=DRAIN)
        assert "an anonymous request" in refused(nobody, 403, "ROLE_MISSING")
    assert served.operating.sent == served.operating.previewed == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"type": "Explode"}, "type"),
        ({"target": ""}, "target"),
        ({"ttl_seconds": 5}, "ttl_seconds: Drain does not end by itself"),
        ({"expected_impact_hash": "not hex"}, "expected_impact_hash"),
        ({"requested_by": "mallory"}, "requested_by"),
    ],
)
def test_a_request_that_makes_no_sense(change: dict[str, Any], said: str) -> None:
    served = ServedModel(operate=True).fill()
    with served.client(token_rules()) as client:
        answer = client.post(f"{V1}/requests", json=DRAIN | change, headers=bearer(TOKEN))
        assert said in refused(answer, 400, "VALUE_INVALID")
    assert served.operating.sent == []


def test_answers_that_are_none() -> None:
    served = ServedModel(operate=True).fill()
    with served.client(token_rules()) as client:

        def ask() -> Any:
            return client.post(f"{V1}/requests", json=DRAIN, headers=bearer(TOKEN))

        served.operating.outcome = "refused"
        answer = ask()
        assert refused(answer, 409, "IMPACT_CHANGED") == "look again"
        assert answer.json()["answer"]["outcome"] == "refused"
        served.operating.failure = NoAnswer("no answer to request r")
        answer = ask()
        refused(answer, 504, "NO_ANSWER")
        assert answer.json()["request_id"] == served.operating.sent[-1].request_id
        served.operating.failure = BrokerUnreachable("no broker answers at b:9092")
        refused(ask(), 503, "BROKER_UNREACHABLE")


def test_probes_need_no_token_and_wait_until_the_topics_are_read() -> None:
    model = ReadModel("main", "placement.")
    app = make_application(Service(model, EventHub(model)), token_rules(anonymous=False))
    with TestClient(app, base_url="http://localhost:8750") as client:
        assert client.get("/livez").text == "serving\n"
        assert client.get("/readyz").status_code == 503
        model.begin(Fold(), 0.0)
        model.note_fault("no broker answers")
        assert client.get("/readyz").text == "the topics are read\n"
        for path in ("/readyz/", "/livez/x", f"{V1}/status"):
            assert client.get(path).status_code == 401
