"""The authority beside the stream: what it says becomes events, and a restart asks again."""

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from placement.model import Configuration
from placement.nodes import KIND
from streaming.locations.locator import RETRY_SECONDS, CloudLocator, CommandLocator, FileLocator
from tests.builders.batches import CELL, Driver, bodies, check_contract, errors, of_topic
from tests.builders.kafka_rows import LIFE, raw, tick


def registered(node_id: str = "n1", offset: int = 0, sequence: int = 1, **more: Any) -> Any:
    body = LIFE | {"node_id": node_id, "sequence": sequence} | more
    return raw("NodeRegistered", node_id, body, offset, 1_000 + offset)


def by(authority: str) -> Configuration:
    return Configuration(cell=CELL, authority=authority)


def places(driver: Driver) -> dict[str, tuple[str, str, str]]:
    views = bodies(driver.commits, "topology.v1")
    return {
        view["node_id"]: (view["location"], view["location_source"], view["status"])
        for view in views
    }


class Script:
    """Stands for the command; answers when it is told to."""

    def __init__(self, answer: Callable[[Sequence[str]], str]) -> None:
        self.answer = answer
        self.calls: list[Sequence[str]] = []
        self.done = threading.Semaphore(0)
        self.time = 0.0

    def __call__(self, command: Sequence[str], timeout_seconds: float) -> str:
        assert timeout_seconds == 5.0
        self.calls.append(command)
        try:
            return self.answer(command)
        finally:
            self.done.release()


def answered(asking: CommandLocator) -> list[Any]:
    """The next answers; a thread gives them."""
    for _ in range(10_000):
        found = asking.take_answers(7)
        if found:
            return [*found]
        with asking._changed:
            asking._changed.wait(0.001)
    raise AssertionError("no answer")


def test_a_file_places_nodes_and_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "places.yaml"
    path.write_text("nodes: {n1: /a}", "utf-8")
    driver = Driver(configuration=by("file"), locator=FileLocator(path))
    driver.batch([registered("n1", 0, location="/lie"), registered("n2", 1)])
    assert places(driver) == {
        "n1": ("/a", "file", "up"),
        "n2": ("", "file", "quarantined"),
    }
    alerts = bodies(driver.commits, "alerts.v1")
    assert [(alert["kind"], alert["subject"]) for alert in alerts] == [("CLAIM_DIFFERS", "n1")]
    path.write_text("nodes: {n1: /a, n2: /bb}", "utf-8")
    driver.batch([registered("n2", 2, sequence=2)])
    assert places(driver)["n2"] == ("/bb", "file", "up")
    path.write_text("nodes: [", "utf-8")
    driver.batch([registered("n1", 3, sequence=2)])
    assert places(driver)["n1"] == ("/a", "file", "up"), "what was read last goes on counting"
    check_contract(driver.commits)


def test_labels_place_nodes() -> None:
    driver = Driver(configuration=by("cloud"), locator=CloudLocator("gce"))
    driver.batch([registered(tags={"zone": "us-central1-a"}), registered("n2", 1)])
    assert places(driver) == {
        "n1": ("/us-central1/a", "cloud", "up"),
        "n2": ("", "cloud", "quarantined"),
    }


def test_the_inventory_places_nodes_and_a_tombstone_leaves_them() -> None:
    def entry(offset: int, location: str | None) -> Any:
        body = {"node_id": "n1", "location": location}
        said = raw("NodeInventory", "n1", body, offset, 900 + offset, "inventory.v1")
        return said if location else said._replace(value=None, headers=[])

    driver = Driver(configuration=by("inventory"))
    driver.batch([registered()], [entry(0, "/a")])
    assert places(driver) == {"n1": ("/a", "inventory", "up")}
    driver.batch([entry(1, None)])
    again = Driver(driver.commits, configuration=by("inventory"))
    again.batch([entry(2, None)._replace(key=b"\xff"), entry(3, "nowhere")])
    letters = [errors(letter)["offset"] for letter in of_topic(again.commits, "dlq.v1")]
    assert letters == ["2", "3"]
    assert places(driver) == {"n1": ("/a", "inventory", "up")}


def test_a_command_is_asked_beside_the_batch() -> None:
    script = Script(lambda command: "\n".join(f"/{host}" for host in command[1:]))
    asking = CommandLocator("map", 5.0, script, lambda: script.time)
    driver = Driver(configuration=by("command"), locator=asking)
    driver.batch([registered(host="h1", location="/lie")])
    assert places(driver) == {"n1": ("", "command", "quarantined")}
    script.done.acquire()
    asking.close()
    driver.batch([tick(1, 1_100)])
    assert places(driver) == {"n1": ("/h1", "command", "up")}
    assert script.calls == [["map", "h1"]]


def test_what_was_asked_for_before_a_restart_is_asked_again() -> None:
    silent = CommandLocator("map", 5.0, Script(lambda _: ""), lambda: 0.0)
    silent.close()
    driver = Driver(configuration=by("command"), locator=silent)
    driver.batch([registered(host="h1"), registered("n2", 1)])
    recovered = Driver(driver.commits, configuration=by("command"))
    script = Script(lambda command: "\n".join("/a" for _ in command[1:]))
    asking = CommandLocator("map", 5.0, script, lambda: 0.0)
    reconciler = recovered.applier._reconciler
    asking.resume(reconciler.in_force().topology.values(), reconciler.memory_of(KIND))  # type: ignore[arg-type]
    found = answered(asking)
    while len(found) < 2:
        found += answered(asking)
    asking.close()
    assert {each.node_id: each.location for each in found} == {"n1": "/a", "n2": "/a"}


def fail(error: Exception) -> Callable[[Sequence[str]], str]:
    def answer(_: Sequence[str]) -> str:
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda _: "/a\n/b", "the command printed 2 lines for 1 hosts"),
        (lambda _: "", "the command printed 0 lines for 1 hosts"),
        (lambda _: "rack1", "location 'rack1' is malformed: it must start with '/'"),
        (fail(subprocess.TimeoutExpired("map", 5)), "the command took longer than 5 s"),
        (fail(subprocess.CalledProcessError(3, "map")), "the command ended with status 3"),
        (fail(OSError(2, "no such file")), "the command cannot be run: [Errno 2] no such file"),
    ],
)
def test_a_failure_is_told_and_tried_again(answer: Any, reason: str) -> None:
    script = Script(answer)
    asking = CommandLocator("map", 5.0, script, lambda: script.time)
    asking._ask("n1", "h1")
    (failed,) = answered(asking)
    assert (failed.location, failed.reason) == (None, reason)
    script.answer, script.time = (lambda _: "/a"), RETRY_SECONDS
    with asking._changed:
        asking._changed.notify()
    (found,) = answered(asking)
    assert found.location == "/a"
    asking.close()
    assert len(script.calls) == 2


def test_a_real_command(tmp_path: Path) -> None:
    script = tmp_path / "map.py"
    script.write_text("import sys\nfor host in sys.argv[1:]:\n    print('/' + host[::-1])\n")
    asking = CommandLocator(f"{sys.executable} {script}", 30.0)
    asking._ask("n1", "abc")
    (found,) = answered(asking)
    asking.close()
    assert (found.node_id, found.location, found.source) == ("n1", "/cba", "command")
