"""Goal: each page shows what the model holds, at once after a commit, and says when it may be old.

Method: pages of a model that is filled without Kafka, their elements as a browser reads them, and
the messages on a page's own socket.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from placement.model import Liveness, NodeChanged, StreamCreated
from streaming.api import GuardRules
from streaming.console import Console, make_file_model
from streaming.offline import CheckOptions, Document, check_cluster, parse_documents
from tests.builders.api_service import NOW_MS, ServedModel
from tests.builders.console_app import (
    OWN_SOCKET,
    console_client,
    elements_of,
    live_console,
    socket_path,
    texts_of,
)


@pytest.fixture(scope="module")
def served() -> ServedModel:
    return ServedModel().fill()


@pytest.fixture(scope="module")
def client(served: ServedModel) -> Iterator[TestClient]:
    with console_client(live_console(served)) as client:
        yield client


def table_of(page: str) -> Any:
    (table,) = [each for each in elements_of(page) if "columns" in each.get("props", {})]
    return table["props"]["page"]


def first_cells(page: str) -> list[str]:
    return [row[0]["value"] for row in table_of(page)["rows"]]


def test_the_overview_counts(client: TestClient) -> None:
    texts = texts_of(client.get("/").text)
    texts = texts[texts.index("How the fleet is now, and what happened in the last hour.") :]
    for label, value in (("Streams", "2"), ("Nodes that are up", "4"), ("Holds", "0")):
        assert value in texts[texts.index(label) :][:4], label
    assert "host-1" in texts


def test_the_topology_is_walked_down_to_a_node(client: TestClient) -> None:
    hrefs = []
    for path in ("/", "/?at=%2Fa", "/?at=%2Fa%2Fr1"):
        page = client.get(path).text
        (picture,) = [e for e in elements_of(page) if "tiles" in e.get("props", {})]
        hrefs.append([tile["href"] for tile in picture["props"]["tiles"]])
        (beside,) = [e for e in elements_of(page) if "heads" in e.get("props", {})]
        linked = [row[0]["href"] for row in beside["props"]["rows"]]
        assert linked == hrefs[-1], "the table beside leads where the picture does"
    assert hrefs[0] == ["/?at=%2Fa"]
    assert "/?at=%2Fa%2Fr1" in hrefs[1]
    assert sorted(hrefs[2]) == ["/nodes/n1", "/nodes/n4"]


def test_tables_take_what_the_address_asks_for(client: TestClient) -> None:
    assert first_cells(client.get("/nodes").text) == ["n1", "n2", "n3", "n4"]
    assert first_cells(client.get("/nodes?sort=-node").text) == ["n4", "n3", "n2", "n1"]
    assert first_cells(client.get("/nodes?q=r1").text) == ["n1", "n4"]
    assert first_cells(client.get("/nodes?status=dead").text) == []
    for nonsense in (
        "sort=nothing",
        "page=-1",
        "page=x",
        "page=9999999999999",
        "size=7",
        "status=x",
    ):
        assert len(first_cells(client.get(f"/nodes?{nonsense}").text)) == 4, nonsense


def test_a_node_shows_what_it_holds(client: TestClient) -> None:
    page = client.get("/nodes/n1").text
    assert {"/a/r1", "Facts", "What it holds", "Its history"} <= {*texts_of(page)}
    assert first_cells(page) == ["logs", "orders"]


def test_a_stream_and_its_shards(client: TestClient) -> None:
    page = client.get("/streams/orders").text
    assert {"placed", "What it asks for", "majority"} <= {*texts_of(page)}
    assert first_cells(page) == ["orders/0", "orders/1", "orders/2"]
    assert first_cells(client.get("/shards?stream=logs").text) == ["logs/0", "logs/1"]
    assert first_cells(client.get("/shards?stream=orders&q=2").text) == ["orders/2"]
    held = first_cells(client.get("/shards?stream=orders&q=n1").text)
    assert held
    assert len(held) < 3


def test_a_shard_is_drawn_in_the_topology(client: TestClient, served: ServedModel) -> None:
    _, found = served.model.find_shard("orders", 1)
    assert found.assignment is not None
    texts = texts_of(client.get("/streams/orders/shards/1").text)
    assert {*found.assignment["replicas"], "leader", "no replica"} <= {*texts}
    assert any("no rule is broken" in text for text in texts)


def test_nothing_is_announced_while_the_topics_are_read(
    client: TestClient, served: ServedModel
) -> None:
    assert "The topics cannot be read" not in texts_of(client.get("/nodes").text)
    served.model.note_fault("the broker is away")
    try:
        texts = texts_of(client.get("/nodes").text)
        assert "The topics cannot be read" in texts
        assert any("the broker is away. What is shown is commit" in text for text in texts)
    finally:
        served.model.confirm(served.seconds)


def test_a_model_without_a_commit_says_so() -> None:
    with console_client(live_console(ServedModel())) as client:
        answer = client.get("/nodes")
        assert answer.status_code == 503
        assert any("placer run" in text for text in texts_of(answer.text))


def test_a_commit_reaches_an_open_page() -> None:
    served = ServedModel().fill()
    with console_client(live_console(served)) as client:
        page = client.get("/nodes").text
        with client.websocket_connect(socket_path(page), headers=OWN_SOCKET) as socket:
            assert socket.receive_text().startswith("0{")
            socket.send_text("40")
            assert socket.receive_text().startswith("40{")
            served.commit(NodeChanged(5, "n2", "a", 2, Liveness.DEAD))
            rows = next(
                found for found in iter(lambda: rows_in(socket.receive_text()), ()) if found
            )
    assert rows[1][2] == "dead"


def rows_in(message: str) -> list[Any] | None:
    """The rows of a table that a message brings; None where it brings none."""
    if not message.startswith("42"):
        return None
    name, body = json.loads(message[2:])[:2]
    pages = [
        element["props"]["page"]
        for element in (body.values() if name == "update" else ())
        if isinstance(element, dict) and "columns" in element.get("props", {})
    ]
    return pages[0]["rows"] if pages else None


FILE = """
name: staging
levels: [zone]
nodes: [{id: n1, location: /a}, {id: n2, location: /b}, {id: n3, location: /c, status: dead}]
streams:
- {stream: orders, shards: 2, replication_factor: 2, replicas: [[n1, n2], [n1, n3]]}
- {stream: broken, shards: 1, replication_factor: 1, policy: {strategy: nothing}}
"""


def test_a_file_is_shown_in_the_same_pages() -> None:
    document = next(parse_documents(FILE))
    assert isinstance(document, Document)
    model = make_file_model(document, check_cluster(document, CheckOptions()), NOW_MS)
    service = ServedModel().service
    console = Console(
        type(service)(model, type(service.hub)(model)), lambda: NOW_MS, document=document
    )
    with console_client(console, GuardRules()) as client:
        overview = texts_of(client.get("/").text)
        assert "staging" in overview
        assert "Reconciler processes" not in overview
        assert first_cells(client.get("/nodes").text) == ["n1", "n2", "n3"]
        assert first_cells(client.get("/streams").text) == ["orders"]
        page = client.get("/plan").text
        assert {"Check", "Plan", "node n3 is dead"} <= {*texts_of(page)}
        assert any("nothing" in text for text in texts_of(page)), "the stream that is refused"
        assert first_cells(page) == ["orders/1"]
        shard = texts_of(client.get("/streams/orders/shards/1").text)
        assert "Its story" not in shard
        assert "n3" in shard


def test_more_shards_than_a_page_are_cut(served: ServedModel) -> None:
    many = ServedModel().fill()
    many.commit(StreamCreated(3, "many", 1, 2_000, 2, body_hash="0c"))
    with console_client(live_console(many)) as client:
        page = table_of(client.get("/shards?stream=many&page=3&size=25").text)
        assert (page["found"], page["total"], len(page["rows"])) == (2_000, 2_000, 25)
        assert page["rows"][0][0]["value"] == "many/50"
        last = table_of(client.get("/shards?stream=many&page=999").text)
        assert last["rows"][-1][0]["value"] == "many/1999"
