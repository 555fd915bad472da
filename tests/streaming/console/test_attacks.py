"""Goal: what is hostile is refused before it reaches a page, and shown harmlessly where it is data.

Method: requests and sockets as a browser on a foreign page, a stranger without a token, and a
thief of half a secret would send them.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from streaming.console import page_policy
from tests.builders.api_service import READER, TOKEN, ServedModel, bearer, token_rules
from tests.builders.console_app import (
    BASE,
    OWN_SOCKET,
    console_client,
    live_console,
    socket_path,
)


def is_refused(client: TestClient, path: str, headers: dict[str, str]) -> bool:
    try:
        with client.websocket_connect(path, headers=headers):
            return False
    except WebSocketDisconnect as error:
        return error.code == 1008


@pytest.fixture(scope="module")
def opened() -> Iterator[TestClient]:
    rules = token_rules()
    with console_client(live_console(ServedModel().fill(), rules), rules) as client:
        yield client


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost:9"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": BASE, "Host": "evil.example"},
        {"Origin": "http://evil.example:8750", "Host": "evil.example:8750"},
        {"Origin": BASE, "Authorization": "Bearer wrong"},
    ],
)
def test_a_socket_is_opened_by_our_pages_alone(opened: TestClient, headers: dict[str, str]) -> None:
    page = opened.get("/nodes").text
    assert is_refused(opened, socket_path(page), OWN_SOCKET | headers)


def test_polling_is_held_to_the_same(opened: TestClient) -> None:
    polling = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert opened.get(polling, headers=headers).status_code == 403
        assert opened.post(polling, content=b"40", headers=headers).status_code == 403
    answer = opened.get(polling, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 200
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_a_socket_elsewhere_is_refused(opened: TestClient) -> None:
    for path in ("/", "/nodes", "/api/v1/events"):
        assert is_refused(opened, path, OWN_SOCKET)


def test_a_program_without_an_origin_opens_none(opened: TestClient) -> None:
    page = opened.get("/nodes").text
    assert is_refused(
        opened,
        socket_path(page),
        {name: value for name, value in OWN_SOCKET.items() if name != "Origin"},
    )


def test_our_own_page_opens_its_socket(opened: TestClient) -> None:
    page = opened.get("/nodes").text
    with opened.websocket_connect(socket_path(page), headers=OWN_SOCKET) as socket:
        assert socket.receive_text().startswith("0{")


def test_a_page_belongs_to_whom_it_was_made_for(opened: TestClient) -> None:
    page = opened.get("/nodes", headers=bearer(TOKEN)).text
    assert is_refused(opened, socket_path(page), OWN_SOCKET)
    assert is_refused(opened, socket_path(page), OWN_SOCKET | bearer(READER))
    with opened.websocket_connect(socket_path(page), headers=OWN_SOCKET | bearer(TOKEN)) as socket:
        assert socket.receive_text().startswith("0{")


def test_open_pages_are_counted(opened: TestClient) -> None:
    page = opened.get("/nodes").text
    with ExitStack() as held:
        for _ in range(page_policy.OPEN_PAGES_EACH):
            held.enter_context(opened.websocket_connect(socket_path(page), headers=OWN_SOCKET))
        assert is_refused(opened, socket_path(page), OWN_SOCKET)
        token = OWN_SOCKET | bearer(TOKEN)
        other = opened.get("/nodes", headers=bearer(TOKEN)).text
        assert not is_refused(opened, socket_path(other), token)
    assert not is_refused(opened, socket_path(page), OWN_SOCKET)


# What a page may do, and paths


def test_scripts_are_ours_by_a_nonce_of_each_page(opened: TestClient) -> None:
    nonces = set()
    for _ in range(2):
        page = opened.get("/nodes")
        policy = page.headers["Content-Security-Policy"]
        for word in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"):
            assert word in policy
        script = re.search(r"script-src ([^;]*)", policy)
        assert script is not None
        assert "'unsafe-inline'" not in script.group(1)
        assert "http" not in policy
        nonce = re.search(r"'nonce-([^']+)'", policy)
        assert nonce is not None
        nonces.add(nonce.group(1))
        inline = re.findall(r"<script(?![^>]*\bsrc=)[^>]*>", page.text)
        assert inline
        assert all(nonce.group(1) in each for each in inline)
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert page.headers["Referrer-Policy"] == "same-origin"
    assert len(nonces) == 2


@pytest.mark.parametrize(
    "path", ["/nodes/%2e%2e/x", "/assets/..%2f..%2fconsole.py", "/assets//x", "/nodes/a%0d%0aX:1"]
)
def test_hidden_paths_are_refused(opened: TestClient, path: str) -> None:
    assert opened.get(path).status_code == 400


def test_what_is_not_there_is_said_so(opened: TestClient) -> None:
    assert opened.get("/assets/console.py").status_code == 404
    assert opened.get("/nothing").status_code == 404
    assert opened.get("/nodes/nobody").status_code == 404
    assert opened.get("/streams/orders/shards/99").status_code == 404
    assert opened.get("/streams/orders/shards/x").status_code == 404
    unknown = opened.get("/api/v1/nothing")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "NOT_FOUND")


def test_a_token_in_the_address_is_refused(opened: TestClient) -> None:
    answer = opened.get("/nodes", params={"token": TOKEN})
    assert answer.status_code == 400
    assert TOKEN not in answer.text
