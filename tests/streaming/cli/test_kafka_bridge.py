"""`placer kafka bridge`: its options, what it refuses, and how it ends.

The cluster is one in memory; tests/integration has one of real brokers.
"""

import socket
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import streaming.brokers
import streaming.kafka_bridge
import streaming.signals
from streaming.cli.main import app
from streaming.errors import BrokerUnreachable
from tests.builders.bridge_agents import MemoryTopics
from tests.builders.bridged_cluster import BridgedCluster
from tests.builders.lock_stores import LockLog, MemoryLockStore


class ConnectedCluster:
    """A cluster in memory that the command is connected to; it runs for `looks` looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = BridgedCluster({1: "a", 2: "b"})
        self.cluster.kafka.create("t", [(1, 2)])
        self.lock = LockLog()
        self.given: list[Any] = []
        self._stop = threading.Event()

        def connect(*values: Any) -> Any:
            self.given.append(values)
            return self

        monkeypatch.setattr(streaming.kafka_bridge, "KafkaAdmin", connect)
        monkeypatch.setattr(
            streaming.kafka_bridge, "KafkaTopics", lambda *_: MemoryTopics(self.cluster)
        )
        monkeypatch.setattr(
            streaming.brokers, "KafkaLockStore", lambda *_: MemoryLockStore(self.lock)
        )
        monkeypatch.setattr(streaming.signals, "stop_on_signals", lambda *_: self)

    def __enter__(self) -> Any:
        return self._handed.pop(0)

    def __exit__(self, *_: object) -> None:
        """See KafkaAdmin."""

    def run(self, *words: str) -> Result:
        """Run the command until its first look is over."""
        kafka, stop = self.cluster.kafka, self._stop
        describe = kafka.describe_cluster

        def last() -> Any:
            stop.set()
            return describe()

        kafka.describe_cluster = last  # type: ignore[method-assign]
        self._handed: list[Any] = [kafka, stop]
        return CliRunner(env={"COLUMNS": "200"}).invoke(
            app, ["kafka", "bridge", "--bootstrap", "127.0.0.1:9092", *words]
        )


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ConnectedCluster:
    return ConnectedCluster(monkeypatch)


@pytest.mark.parametrize(
    ("mode", "said", "sent", "held"),
    [
        ("dry-run", "would say NodeRegistered: broker 1 at /a", 0, None),
        ("observe", "said NodeRegistered: broker 1 at /a", 2, False),
        ("act", "said NodeRegistered: broker 1 at /a", 2, False),
    ],
)
def test_a_mode_says_what_it_does_and_ends_cleanly(
    bench: ConnectedCluster, mode: str, said: str, sent: int, held: bool | None
) -> None:
    result = bench.run("--mode", mode)
    assert result.exit_code == 0, result.output
    assert f"bridge ready: mode {mode}, Kafka at 127.0.0.1:9092" in result.stdout
    assert said in result.stdout
    assert len(bench.cluster.messages) == sent
    assert (None if bench.lock.holder is None else bench.lock.holder.held) is held


def _age(bench: ConnectedCluster) -> None:
    bench.cluster.kafka.obstacles = ["the brokers at 127.0.0.1:9092 are older than Kafka 4.0"]


def _cut(bench: ConnectedCluster) -> None:
    bench.cluster.kafka.unreachable = "no broker answers at 127.0.0.1:9092"


@pytest.mark.parametrize(
    ("change", "words", "status", "says"),
    [
        (_age, ["--mode", "act"], 3, "older than Kafka 4.0"),
        (_cut, [], 3, "no broker answers at 127.0.0.1:9092"),
        (None, ["--throttle", "fast"], 2, "'fast' is no number of bytes a second"),
        (None, ["--levels", "zone,rack"], 2, "2 levels need --separator"),
        (None, ["--policy", "x={}y"], 2, "--policy"),
        (None, ["--mode", "try"], 2, "--mode"),
        (None, ["--reconciler", "far:9092"], 2, "far:9092 is another machine"),
    ],
)
def test_what_cannot_run_is_told(
    bench: ConnectedCluster,
    change: Callable[[ConnectedCluster], None] | None,
    words: list[str],
    status: int,
    says: str,
) -> None:
    if change is not None:
        change(bench)
    result = bench.run(*words)
    assert result.exit_code == status, result.output
    assert says in " ".join(result.stderr.replace("│", "").split())
    assert not bench.cluster.messages


def test_brokers_that_go_away_later_do_not_end_it(bench: ConnectedCluster) -> None:
    kafka = bench.cluster.kafka
    list_reassignments, tries = kafka.list_reassignments, iter([True])

    def fail_once() -> Any:
        if next(tries, False):
            raise BrokerUnreachable("the call to list reassignments has not returned for 20 s")
        return list_reassignments()

    kafka.list_reassignments = fail_once  # type: ignore[method-assign]
    result = bench.run("--mode", "observe")
    assert result.exit_code == 0, result.output
    assert "has not returned for 20 s; nothing is decided, next try in 0.5 s" in result.stdout
    assert "it works again" in result.stdout


@pytest.mark.parametrize("how", ["option", "settings"])
def test_metrics_and_probes_are_served_while_it_runs(
    bench: ConnectedCluster, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    words = ["--metrics-port", str(port)]
    if how == "settings":
        monkeypatch.setenv("PLACER_METRICS__PORT", str(port))
        words = []
    kafka, pages = bench.cluster.kafka, list[str]()
    describe_logs = kafka.describe_logs

    def ask(live: Any) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            pages.append(answer.read().decode())
        return describe_logs(live)

    kafka.describe_logs = ask  # type: ignore[method-assign]
    result = bench.run("--mode", "act", *words)
    assert result.exit_code == 0, result.output
    assert f"metrics and probes at http://127.0.0.1:{port}" in result.stdout
    assert 'kafka_bridge_build_info{cell="main",mode="act"' in pages[0]


def test_a_port_that_is_taken_is_told_before_anything_is_done(bench: ConnectedCluster) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        result = bench.run("--metrics-port", str(held.getsockname()[1]))
    assert result.exit_code == 3, result.output
    assert "set metrics.port to a free port" in result.stderr
    assert not bench.cluster.messages
