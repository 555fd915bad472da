"""Goal: commands that run for long say when no broker answers any more, and when one does again.

Method: clients of a broker of the test's own, which is killed and started again on its port; and
the rules by a client that answers as it is told.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streaming import reachability
from streaming.admin import apply_topics
from streaming.broker import EmbeddedBroker
from streaming.executor import Executor
from streaming.fleet import Fleet, FleetNode
from streaming.reachability import Reachability
from streaming.records import CommittedReader

DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)
OTHER = KafkaError(KafkaError._TRANSPORT)
WAIT_SECONDS = 60.0


class Client:
    """Answers, or does not."""

    def __init__(self) -> None:
        self.answers = True
        self.asked = 0

    def list_topics(self, timeout: float) -> None:
        assert timeout > 0
        self.asked += 1
        if not self.answers:
            raise KafkaException(DOWN)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(reachability, "PROBE_INTERVAL_SECONDS", 0.0)
    return []


def test_without_a_fault_nobody_is_asked(said: list[str]) -> None:
    watched, client = Reachability("here:1", said.append), Client()
    watched.look(client)
    watched(OTHER)
    watched.look(client)
    assert (client.asked, said) == (0, [])


def test_idle_connections_that_close_are_no_news(said: list[str]) -> None:
    watched, client = Reachability("here:1", said.append), Client()
    watched(DOWN)
    watched.look(client)
    watched.look(client)
    assert (client.asked, said) == (1, [])


def test_away_and_back_are_told_once_each(said: list[str]) -> None:
    watched, client = Reachability("here:1", said.append), Client()
    client.answers = False
    watched(DOWN)
    for _ in range(3):
        watched.look(client)
    assert said == ["no broker answers at here:1 any more; waiting for one"]
    assert watched.is_away
    client.answers = True
    watched.look(client)
    watched.look(client)
    assert said[1:] == ["a broker answers at here:1 again, after 0 s"]
    assert not watched.is_away


def until(condition: Callable[[], bool], step: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it was never said"
        step()


def test_a_broker_that_goes_and_comes_back(tmp_path: Path) -> None:
    by_reader: list[str] = []
    by_actors: list[str] = []
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        address = broker.bootstrap_servers
        port = int(address.rpartition(":")[2])
        apply_topics(address, "away.")
        reader = CommittedReader(
            address, "away.", ["moves.v1"], reachability=Reachability(address, by_reader.append)
        )
        shared = Reachability(address, by_actors.append)
        fleet = Fleet(address, "away.", [FleetNode("n1", "/a")], 0.2, reachability=shared)
        executor = Executor(address, "away.", 0.1, reachability=shared)
        fleet.start()
        executor.start()
        reader.poll(0.5)
        assert by_reader == by_actors == []
    until(lambda: len(by_reader) == 1 and len(by_actors) == 1, lambda: reader.poll(0.2))
    assert by_reader == by_actors
    assert "any more" in by_reader[0]
    with EmbeddedBroker(port=port, data_dir=tmp_path):
        until(lambda: len(by_reader) == 2 and len(by_actors) == 2, lambda: reader.poll(0.2))
        assert f"a broker answers at {address} again" in by_reader[1]
        executor.close()
        fleet.close()
        reader.close()
    assert len(by_reader) == len(by_actors) == 2
