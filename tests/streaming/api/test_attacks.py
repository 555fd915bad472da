"""Goal: what is hostile is refused, in a sentence that repeats nothing as it was sent.

Method: requests as a browser on a foreign page, a stranger without a token, and a client with
hostile names would send them.
"""

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from streaming.api import AccessRules, GuardRules, read_tokens
from streaming.api.access import Role, _digest
from streaming.api.errors import ApiError
from streaming.api.guard import BODY_BYTES_MAX
from streaming.api.rate_limits import BUCKETS_MAX, OpenLimit, RateLimit
from streaming.api.service import Limits
from streaming.errors import SettingsInvalid
from tests.builders.api_service import READER, TOKEN, ServedModel, bearer, token_rules

V1 = "/api/v1"
LOOKUP = {"shards": [{"stream": "orders", "shard": 0}]}


@pytest.fixture(scope="module")
def served() -> ServedModel:
    return ServedModel(operate=True).fill()


@pytest.fixture
def client(served: ServedModel) -> Iterator[TestClient]:
    with served.client(token_rules()) as made:
        yield made


def refused(answer: Any, status: int, code: str) -> str:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Type"] == "application/json"
    return answer.json()["message"]


# Other origins


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_of_another_origin_sends_nothing(
    client: TestClient, headers: dict[str, str]
) -> None:
    for path in ("requests", "requests:dry-run", "shards:lookup"):
        answer = client.post(f"{V1}/{path}", json=LOOKUP, headers=headers | bearer(TOKEN))
        assert "--allow-origin" in refused(answer, 403, "ORIGIN_FOREIGN")
        assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://localhost:8750"}, {"Sec-Fetch-Site": "same-origin"}, {}],
)
def test_the_own_pages_and_programs_may(client: TestClient, headers: dict[str, str]) -> None:
    assert client.post(f"{V1}/shards:lookup", json=LOOKUP, headers=headers).status_code == 200


def test_an_origin_that_was_allowed_may(served: ServedModel) -> None:
    rules = GuardRules(origins=frozenset({"https://console.example"}))
    with served.client(rules) as client:
        own = {"Origin": "https://console.example"}
        assert client.post(f"{V1}/shards:lookup", json=LOOKUP, headers=own).status_code == 200


def test_a_form_is_no_request(client: TestClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = client.post(f"{V1}/shards:lookup", content=b"{}", headers={"Content-Type": kind})
        assert "application/json" in refused(answer, 415, "TYPE_UNSUPPORTED")


@pytest.mark.parametrize("host", ["a b", "[", "[::1", "a:port", "a/../b", "<script>", "me@host"])
def test_a_host_that_is_none_is_refused_wherever_it_listens(served: ServedModel, host: str) -> None:
    for rules in (GuardRules(), GuardRules(loopback=False)):
        with served.client(rules) as client:
            for path in (f"{V1}/nodes", f"{V1}/streams/orders"):
                message = refused(client.get(path, headers={"Host": host}), 400, "HOST_INVALID")
                assert "expected a name or an address" in message


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8750", "localhost.evil.example"])
def test_a_foreign_name_of_this_machine_is_not_answered(client: TestClient, host: str) -> None:
    refused(client.get(f"{V1}/nodes", headers={"Host": host}), 421, "HOST_UNKNOWN")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8750", "[::1]:8750", "LOCALHOST:1"])
def test_names_of_this_machine_are(client: TestClient, host: str) -> None:
    assert client.get(f"{V1}/nodes", headers={"Host": host}).status_code == 200


def test_a_service_for_others_answers_to_any_name(served: ServedModel) -> None:
    with served.client(GuardRules(loopback=False)) as client:
        answer = client.get(f"{V1}/nodes", headers={"Host": "placer.example"})
        assert answer.status_code == 200


# Tokens


@pytest.mark.parametrize(
    "given",
    [
        "Bearer wrong",
        "Bearer ",
        "Bearer",
        "",
        "Basic YTpi",
        TOKEN,
        f"Bearer {TOKEN} x",
        "Bearer \xff",
    ],
)
def test_a_wrong_token_is_refused_even_where_anonymous_reading_is_not(
    client: TestClient, given: str
) -> None:
    answer = client.get(f"{V1}/nodes", headers={"Authorization": given.encode("latin-1")})
    message = refused(answer, 401, "TOKEN_UNKNOWN")
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert "wrong" not in message
    assert TOKEN not in message


def test_without_anonymous_reading_nobody_reads_without_a_token(served: ServedModel) -> None:
    with served.client(token_rules(anonymous=False)) as client:
        for path in ("nodes", "status", "events", "openapi.json"):
            refused(client.get(f"{V1}/{path}"), 401, "TOKEN_MISSING")
        assert client.get(f"{V1}/nodes", headers=bearer(READER)).status_code == 200
        lower = {"authorization": f"bearer {READER}"}
        assert client.get(f"{V1}/nodes", headers=lower).status_code == 200


@pytest.mark.parametrize("name", ["token", "access_token", "TOKEN", "a=b&password"])
def test_a_token_in_the_address_is_refused(client: TestClient, name: str) -> None:
    answer = client.get(f"{V1}/nodes?{name}={TOKEN}")
    assert TOKEN not in refused(answer, 400, "VALUE_INVALID")


def test_the_header_of_a_proxy_counts_from_the_proxy_alone() -> None:
    proxies = [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8")]
    access = AccessRules(roles={"carol": Role.OPERATE}, proxies=proxies)
    said = {"x-forwarded-user": "carol"}
    assert access.identify(said, "10.1.2.3").role is Role.OPERATE
    assert access.identify(said, "fd00::7").name == "carol"
    assert access.identify({"x-forwarded-user": "dave"}, "10.1.2.3").role is Role.READ
    for stranger in ("11.0.0.1", "testclient", ""):
        assert access.identify(said, stranger).name is None
    with pytest.raises(ApiError, match="printable ASCII"):
        access.identify({"x-forwarded-user": "e\u202evil"}, "10.1.2.3")
    assert AccessRules(roles={"carol": Role.OPERATE}).identify(said, "127.0.0.1").name is None


def test_a_token_counts_more_than_a_proxy() -> None:
    access = AccessRules(
        [(_digest(TOKEN), "alice")], {"alice": Role.READ}, True, [ipaddress.ip_network("::/0")]
    )
    headers = {"authorization": f"Bearer {TOKEN}", "x-forwarded-user": "root"}
    assert access.identify(headers, "::1").name == "alice"


def test_the_token_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    digest = _digest(READER).hex()
    path.write_text(
        f"- {{name: alice, role: operate, token: {TOKEN}}}\n"
        f"- {{name: bob, sha256: {digest}}}\n- {{name: carol@example.org, role: operate}}\n"
    )
    tokens, roles = read_tokens(path)
    assert [name for _, name in tokens] == ["alice", "bob"]
    assert roles == {
        "alice": Role.OPERATE, "bob": Role.READ, "carol@example.org": Role.OPERATE,
    }  # fmt: skip
    access = AccessRules(tokens, roles)
    assert access.identify({"authorization": f"Bearer {READER}"}, "x").name == "bob"


@pytest.mark.parametrize(
    "text",
    [
        "- {name: alice, token: secret}",
        "- {name: alice, token: 5, role: root}",
        f"- {{name: alice, token: {TOKEN}, sha256: {'a' * 64}}}",
        "- {name: alice, sha256: short-secret-value}",
        f"- {{name: alice}}\n- {{name: alice, token: {TOKEN}}}",
        f"alice: {TOKEN}",
        f"- [{TOKEN}",
        TOKEN,
        "",
    ],
)
def test_a_token_file_that_is_wrong_is_refused_and_not_quoted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text(text)
    with pytest.raises(SettingsInvalid, match="--tokens") as found:
        read_tokens(path)
    assert TOKEN not in str(found.value)
    assert "secret" not in str(found.value)


def test_a_token_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="No such file"):
        read_tokens(tmp_path / "nope")


# Paths and names


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/%2e%2e/v1/nodes",
        "/api/v1/nodes/%2E%2E%2fsecret",
        "/api/v1/nodes/..%5c..",
        "/api/v1/nodes/a%00b",
        "/api/v1/nodes/a%0d%0aX-Evil:1",
        "/api/v1//nodes",
        "//evil.example/api/v1/nodes",
        "/api/v1/streams/%2fetc%2fpasswd/shards/0",
    ],
)
def test_hidden_paths_are_refused(client: TestClient, path: str) -> None:
    answer = client.get(f"http://localhost:8750{path}")
    assert "\r" not in refused(answer, 400, "PATH_INVALID")


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)<script>",
        "n\u202e1",
        "n1'; drop table nodes; --",
        "x" * 4_096,
        "${jndi:ldap:x}",
        "caf\u00e9",
        " ",
        "n1%0Aset-cookie",
    ],
)
def test_hostile_names_are_refused_and_not_repeated(client: TestClient, name: str) -> None:
    from urllib.parse import quote

    for path in (
        f"nodes/{quote(name)}",
        f"streams/{quote(name)}/shards/0",
        f"streams/{quote(name)}",
    ):
        answer = client.get(f"http://localhost:8750{V1}/{path}")
        assert answer.status_code in (400, 404)
        assert len(answer.content) < 600
        assert answer.text.isascii()
        assert answer.json()["code"] in {"VALUE_INVALID", "PATH_INVALID"}


@pytest.mark.parametrize("name", ["<script>", "\u202e", "x" * 3_000])
def test_hostile_values_of_a_query_find_nothing(client: TestClient, name: str) -> None:
    answer = client.get(f"{V1}/streams", params={"outcome": name})
    found = answer.json()
    assert found.get("items") == [] or found["code"] == "VALUE_INVALID"
    assert len(answer.content) < 600
    near = client.get(f"{V1}/nearest", params={"stream": "logs", "shard": 0, "tag": f"{name}=1"})
    assert near.text.isascii()
    refused(near, 400, "VALUE_INVALID")


@pytest.mark.parametrize("number", ["-1", "1.5", "1e9", "99999999999999999999", "0x1", "\u0661"])
def test_numbers_of_shards_that_are_none(client: TestClient, number: str) -> None:
    from urllib.parse import quote

    answer = client.get(f"http://localhost:8750{V1}/streams/orders/shards/{quote(number)}")
    assert answer.status_code in (400, 404)
    assert answer.text.isascii()


def test_headers_of_safety_are_on_every_answer(client: TestClient) -> None:
    for path in (f"{V1}/nodes", "/nope", f"{V1}/streams/orders/shards/0"):
        headers = client.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert headers["Referrer-Policy"] == "no-referrer"


# Sizes and rates


def test_bodies_and_addresses_are_bounded(client: TestClient) -> None:
    kind = {"Content-Type": "application/json"}
    answer = client.post(f"{V1}/shards:lookup", content=b" " * (BODY_BYTES_MAX + 1), headers=kind)
    refused(answer, 413, "BODY_TOO_LARGE")

    def endless() -> Iterator[bytes]:
        for _ in range(BODY_BYTES_MAX // 1_024 + 1):
            yield b" " * 1_024

    refused(
        client.post(f"{V1}/shards:lookup", content=endless(), headers=kind), 413, "BODY_TOO_LARGE"
    )
    refused(client.get(f"{V1}/nodes?cursor={'x' * 9_000}"), 414, "PATH_INVALID")
    deep = client.post(f"{V1}/shards:lookup", content=b"[" * 200_000, headers=kind)
    refused(deep, 400, "VALUE_INVALID")


def test_costly_questions_have_a_rate() -> None:
    limits = Limits(
        lookups=RateLimit("shards", 10, 2), details=RateLimit("lists", 0.5, 1),
        dry_runs=RateLimit("dry runs", 0.1, 1),
    )  # fmt: skip
    served = ServedModel(operate=True, limits=limits).fill()
    with served.client(token_rules()) as client:
        three = {"shards": LOOKUP["shards"] * 3}
        answer = client.post(f"{V1}/shards:lookup", json=three)
        assert "600 a minute" in refused(answer, 429, "RATE_EXCEEDED")
        assert answer.headers["Retry-After"] == "1"
        assert client.get(f"{V1}/nodes").status_code == 200
        assert refused(client.get(f"{V1}/nodes"), 429, "RATE_EXCEEDED")
        assert client.get(f"{V1}/nodes", headers=bearer(READER)).status_code == 200
        drain = {"type": "Drain", "target": "n1"}
        ask = [
            client.post(f"{V1}/requests:dry-run", json=drain, headers=bearer(TOKEN)) for _ in "12"
        ]
        assert [each.status_code for each in ask] == [200, 429]
    assert len(served.operating.previewed) == 1


def test_a_rate_fills_up_again() -> None:
    now = [0.0]
    rate = RateLimit("things", per_second=2, burst=4, clock=lambda: now[0])
    rate.take("a", 4)
    with pytest.raises(ApiError, match="ask again in 1 s") as found:
        rate.take("a", 2)
    assert found.value.headers == {"Retry-After": "1"}
    now[0] += 1
    rate.take("a", 2)
    with pytest.raises(ApiError, match="things"):
        rate.take("a")
    rate.take("b", 4)


def test_buckets_are_bounded() -> None:
    rate = RateLimit("things", 1, 1)
    for number in range(BUCKETS_MAX + 5):
        rate.take(f"address {number}")
    assert len(rate._buckets) == BUCKETS_MAX


def test_what_is_open_is_counted_in_all_and_for_each() -> None:
    limit = OpenLimit("streams of events", total=3, each=2)
    limit.enter("a")
    limit.enter("a")
    with pytest.raises(ApiError, match="2 streams of events are open already"):
        limit.enter("a")
    limit.enter("b")
    with pytest.raises(ApiError, match="3 streams of events"):
        limit.enter("c")
    limit.leave("a")
    limit.enter("c")
    with pytest.raises(ApiError, match="3 streams"), limit.counted("d"):
        pytest.fail("it was counted")
