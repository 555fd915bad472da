"""Goal: a token opens a session, once, for its own browser; whoever has none sees nothing.

Method: requests of a stranger, of a browser that signs in and out, and of a foreign page.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from streaming.api.access import Principal, Role
from streaming.console.sessions import IDLE_SECONDS, SESSION_SECONDS, Sessions
from tests.builders.api_service import READER, TOKEN, ServedModel, bearer, token_rules
from tests.builders.console_app import BASE, OWN, console_client, live_console

FORM = {"Content-Type": "application/x-www-form-urlencoded"} | OWN
HTML = {"Accept": "text/html,*/*"}


@pytest.fixture(scope="module")
def closed() -> Iterator[TestClient]:
    """A console that answers nobody without a token."""
    rules = token_rules(anonymous=False)
    served = ServedModel(operate=True).fill()
    with console_client(live_console(served, rules), rules) as client:
        yield client


def sign_in(client: TestClient, token: str, **more: Any) -> Any:
    client.cookies.clear()
    form = {"token": token, **more}
    return client.post("/sign-in", data=form, headers=FORM)


def test_a_token_opens_a_session_that_the_browser_keeps_to_itself(closed: TestClient) -> None:
    answer = sign_in(closed, TOKEN, next="/nodes?q=n1")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/nodes?q=n1")
    cookie = answer.headers["Set-Cookie"]
    for word in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert word in cookie
    assert TOKEN not in cookie
    page = closed.get("/nodes", headers=HTML)
    assert page.status_code == 200
    assert TOKEN not in page.text
    session_id = closed.cookies["placer-session"]
    assert session_id not in page.text
    assert closed.post("/sign-out", headers=FORM).status_code == 303
    closed.cookies.clear()
    closed.cookies.set("placer-session", session_id)
    assert closed.get("/nodes", headers=HTML).status_code == 303


def test_over_tls_the_cookie_is_sent_over_tls_alone(closed: TestClient) -> None:
    closed.cookies.clear()
    base = BASE.replace("http:", "https:")
    own = {**FORM, "Origin": base}
    answer = closed.post(f"{base}/sign-in", data={"token": READER}, headers=own)
    assert "Secure" in answer.headers["Set-Cookie"]


def test_a_stranger_is_sent_to_sign_in_and_sees_nothing(closed: TestClient) -> None:
    closed.cookies.clear()
    for path in ("/", "/nodes?q=a%26b", "/streams/orders", "/nothing"):
        answer = closed.get(path, headers=HTML)
        assert answer.status_code == 303, path
        assert answer.headers["Location"].startswith("/sign-in?next=%2F")
    assert closed.get("/nodes").status_code == 401
    assert closed.get("/api/v1/nodes", headers={"Accept": "*/*"}).status_code == 401
    page = closed.get("/sign-in")
    assert page.status_code == 200
    assert "<script" not in page.text
    # Under no-referrer browsers send `Origin: null` with forms, which is refused.
    assert page.headers["Referrer-Policy"] == "same-origin"
    assert "script-src" not in page.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "target",
    ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/a\nb", "/sign-in", ""],
)
def test_signing_in_leads_nowhere_else(closed: TestClient, target: str) -> None:
    page = closed.get("/sign-in", params={"next": target})
    assert 'name="next" value="/"' in page.text


def test_what_the_address_says_is_no_markup(closed: TestClient) -> None:
    page = closed.get("/sign-in", params={"next": '/"><script>alert(1)</script>'})
    assert "<script" not in page.text


def test_sessions_end() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    who = Principal("alice", Role.OPERATE, "principal alice")
    idle = sessions.open(who)
    now[0] = IDLE_SECONDS - 1
    assert sessions.find(idle) == who
    now[0] += IDLE_SECONDS
    assert sessions.find(idle) is None
    busy = sessions.open(who)
    began = now[0]
    while now[0] < began + SESSION_SECONDS - IDLE_SECONDS / 2:
        assert sessions.find(busy) == who
        now[0] += IDLE_SECONDS / 2
    now[0] += IDLE_SECONDS / 2
    assert sessions.find(busy) is None
    assert sessions.find("") is None
    assert len({sessions.open(who) for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9"},
        {},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_a_foreign_page_signs_nobody_in_or_out(closed: TestClient, headers: dict[str, str]) -> None:
    closed.cookies.clear()
    plain = {"Content-Type": FORM["Content-Type"], **headers}
    for path in ("/sign-in", "/sign-out"):
        answer = closed.post(path, data={"token": TOKEN}, headers=plain)
        assert (answer.status_code, answer.json()["code"]) == (403, "ORIGIN_FOREIGN")
        assert "Set-Cookie" not in answer.headers


def test_a_form_is_taken_where_there_is_one_alone(closed: TestClient) -> None:
    for path, code in (("/api/v1/requests", 415), ("/nodes", 415)):
        answer = closed.post(path, data={"a": "b"}, headers={**FORM, **bearer(TOKEN)})
        assert answer.status_code == code
    answer = closed.post("/sign-in", json={"token": TOKEN}, headers=OWN)
    assert answer.status_code == 415


@pytest.mark.parametrize("token", ["", "wrong", f"{TOKEN}x", f"{TOKEN}\0", "a" * 4_000])
def test_a_wrong_token_opens_nothing_and_is_not_repeated(closed: TestClient, token: str) -> None:
    answer = sign_in(closed, token)
    assert answer.status_code in (401, 429)
    assert "Set-Cookie" not in answer.headers
    if token:
        assert token not in answer.text


def test_guessing_has_a_rate(closed: TestClient) -> None:
    codes = [sign_in(closed, f"guess {n}").status_code for n in range(15)]
    assert codes[-1] == 429
    assert sign_in(closed, TOKEN).status_code == 429
