"""Goal: `placer api` beside the real application: what is decided is answered, told and agreed to.

Method: the application on the embedded broker, the command as a process of its own.
"""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import orjson
import pytest

from schemas.topics import OPERATOR
from streaming.brokers import CommittedReader
from tests.integration.conftest import System
from tests.systems.application import PATIENT, PLACER
from tests.systems.waiting import until

TOKEN = "a token of the operator alice"
V1 = "/api/v1"


class Api:
    """The command, and a client of it."""

    def __init__(self, system: System, *flags: str) -> None:
        place = ["--bootstrap", system.bootstrap, "--prefix", system.prefix]
        self._process = subprocess.Popen(
            [PLACER, "api", "--port", "0", *place, *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        self.line = self._process.stdout.readline()
        found = re.search(r"http://\S+?(?=/api)", self.line)
        assert found, self.line + self._process.stdout.read()
        self.url = found[0]
        self.client = httpx2.Client(base_url=self.url, timeout=60)

    def get(self, path: str, **params: Any) -> Any:
        return self.client.get(f"{V1}/{path}", params=params)

    def end(self) -> tuple[int, str]:
        """Ctrl-C; returns the exit status, and what it has printed since its first line."""
        self.client.close()
        os.kill(self._process.pid, signal.SIGINT)
        printed, _ = self._process.communicate(timeout=60)
        return self._process.returncode, printed


@pytest.fixture(scope="module", autouse=True)
def application(system: System) -> None:
    system.start(**PATIENT)
    for number in range(4):
        body = {"node_id": f"n{number}", "incarnation": "a", "sequence": 1}
        location = {"location": f"/eu/z{number % 2}"}
        system.inputs.send("nodes.v1", "NodeRegistered", f"n{number}", body | location)
    system.inputs.stream("orders", shards=2, replication_factor=2)
    system.outputs.decision("orders")


@pytest.fixture(scope="module")
def api(
    system: System, application: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    tokens = tmp_path_factory.mktemp("api") / "tokens.yaml"
    tokens.write_text(f"- {{name: alice, role: operate, token: {TOKEN}}}\n")
    running = Api(system, "--operate", "--tokens", str(tokens))
    until(lambda: running.get("status").status_code == 200, "the topics are read")
    yield running
    status, printed = running.end()
    assert (status, TOKEN in printed, "Traceback" in printed) == (0, False, False), printed


def test_what_is_published_is_answered(system: System, api: Api) -> None:
    until(lambda: api.get("streams/orders/shards/1").status_code == 200, "the stream is there")
    found = api.get("streams/orders/shards/1").json()
    published = system.outputs.latest("assignments.v1")["orders/1"]
    assert found["assignment"] == published
    assert found["leader"] == published["replicas"][0]
    status = api.get("status").json()
    assert [each["role"] for each in status["status"]["processes"]] == ["active"]
    assert status["marker"]["stale_seconds"] < 15
    near = api.get("nearest", stream="orders", shard=1, client=published["replicas"][1]).json()
    assert near["replica"] == published["replicas"][1]


def test_a_drain_is_agreed_to_and_followed(system: System, api: Api) -> None:
    seen: list[dict[str, Any]] = []
    began, done = threading.Event(), threading.Event()

    def listen() -> None:
        with httpx2.stream("GET", f"{api.url}{V1}/events", timeout=60) as stream:
            for line in stream.iter_lines():
                began.set()
                if line.startswith("data: "):
                    seen.append(orjson.loads(line.removeprefix("data: ")))
                    if seen[-1]["changed"].get("moves"):
                        done.set()
                        return

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    assert began.wait(60)
    node = api.get("streams/orders/shards/0").json()["leader"]
    drain = {"type": "Drain", "target": node}
    signed = {"Authorization": f"Bearer {TOKEN}"}
    unsigned = api.client.post(f"{V1}/requests", json=drain)
    assert (unsigned.status_code, unsigned.json()["code"]) == (403, "ROLE_MISSING")
    refused = api.client.post(f"{V1}/requests", json=drain, headers=signed)
    assert refused.status_code == 409, refused.text
    impact = api.client.post(f"{V1}/requests:dry-run", json=drain, headers=signed).json()["impact"]
    agreed = drain | {"expected_impact_hash": impact["impact_hash"]}
    answer = api.client.post(f"{V1}/requests", json=agreed, headers=signed)
    assert answer.json()["answer"]["outcome"] == "accepted", answer.text
    assert done.wait(60), seen
    listener.join(60)
    until(lambda: api.get("moves").json()["items"], "the moves of the drain")
    with CommittedReader(system.bootstrap, system.prefix, [OPERATOR]) as reader:
        asked = [each.value for each in reader.read_to_end()]
    assert [each["requested_by"] for each in asked] == ["alice", "alice"]


def test_waiting_for_the_epoch_of_a_move(system: System, api: Api) -> None:
    move = api.get("moves").json()["items"][0]
    place = f"streams/{move['stream']}/shards/{move['shard']}"
    epoch = api.get(place).json()["assignment"]["epoch"]
    system.inputs.ack("MoveCompleted", move)
    answer = api.get(place, wait_for_epoch=epoch + 1, timeout_seconds=30)
    assert answer.status_code == 200, answer.text
    assert move["add"] in answer.json()["assignment"]["replicas"] or move["kind"] == "leader"
    assert answer.headers["ETag"] == f'"{answer.json()["assignment"]["epoch"]}"'
