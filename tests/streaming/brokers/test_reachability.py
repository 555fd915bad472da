"""Goal: commands that run for long say when no broker answers any more, and when one does again.

Method: clients of a broker of the test's own, which is killed and started again on its port; and
the rules by a client that answers as it is told.
"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from placement.model import Configuration, Liveness, NodeAttributes, NodeChanged
from schemas.topics import DEAD_LETTERS, full_name
from streaming.administration import apply_topics
from streaming.brokers import reachability
from streaming.brokers.clients import make_producer
from streaming.brokers.reachability import Reachability
from streaming.brokers.reader import CommittedReader
from streaming.runtime import EmbeddedBroker
from streaming.simulator import Executor, Fleet
from streaming.simulator.fleet import FleetNode
from tests.builders.published_state import Publisher

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
    assert len(said) == 1
    assert re.fullmatch(
        r"no broker has answered at here:1 since \d\d:\d\d:\d\d; waiting until one does", said[0]
    )
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


class Command:
    """A command that runs until Ctrl-C, in a process of its own, and its output so far."""

    def __init__(self, place: Path, *words: str) -> None:
        name = "-".join(words)
        self._out, self._err = place / f"{name}.out", place / f"{name}.err"
        main = "from streaming.cli.main import main; main()"
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(
                (sys.executable, "-u", "-c", main, *words, "--prefix", "away."),
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def shown(self) -> str:
        """Its standard output."""
        return self._out.read_text("utf-8")

    @property
    def said(self) -> list[str]:
        """The lines of its standard error."""
        return self._err.read_text("utf-8").splitlines()

    def interrupted(self) -> int:
        """Its exit status after Ctrl-C."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(WAIT_SECONDS)

    def kill(self) -> None:
        """End it at once; again does nothing."""
        self._process.kill()
        self._process.wait(WAIT_SECONDS)


@pytest.fixture
def commands() -> Iterator[list[Command]]:
    """Commands that are ended with the test."""
    running: list[Command] = []
    yield running
    for each in running:
        each.kill()


def fill(address: str) -> None:
    """One node, known to a reconciler, and one dead letter."""
    node = NodeChanged(1, "n1", "a", 1, Liveness.UP, NodeAttributes("/a"))
    Publisher(address, "away.", Configuration()).apply([node], 1_000)
    producer = make_producer(address)
    producer.produce(full_name(DEAD_LETTERS, "away."), b"{")
    assert producer.flush(WAIT_SECONDS) == 0


def test_a_broker_that_goes_and_comes_back(tmp_path: Path, commands: list[Command]) -> None:
    by_reader: list[str] = []
    by_actors: list[str] = []
    with EmbeddedBroker(data_dir=tmp_path / "kafka") as broker:
        address = broker.bootstrap_servers
        port = int(address.rpartition(":")[2])
        apply_topics(address, "away.")
        fill(address)
        commands.extend(
            Command(tmp_path, *words, "--bootstrap", address)
            for words in (("status", "--watch"), ("dlq", "show", "--follow"))
        )
        reader = CommittedReader(
            address, "away.", ["moves.v1"], reachability=Reachability(address, by_reader.append)
        )
        shared = Reachability(address, by_actors.append)
        fleet = Fleet(address, "away.", [FleetNode("n1", "/a")], 0.2, reachability=shared)
        executor = Executor(address, "away.", 0.1, reachability=shared)
        fleet.start()
        executor.start()
        reader.poll(0.5)
        until(lambda: all(each.shown for each in commands), lambda: reader.poll(0.2))
        assert by_reader == by_actors == []
        assert [each.said for each in commands] == [[], []]

    def everybody(lines: int) -> bool:
        said = (by_reader, by_actors, *(each.said for each in commands))
        return all(len(each) == lines for each in said)

    until(lambda: everybody(1), lambda: reader.poll(0.2))
    assert all("no broker has answered at" in each[0] for each in (by_reader, by_actors))
    away = f"placer: no broker has answered at {address} since "
    assert all(each.said[0].startswith(away) for each in commands)
    with EmbeddedBroker(port=port, data_dir=tmp_path / "kafka"):
        until(lambda: everybody(2), lambda: reader.poll(0.2))
        again = f"a broker answers at {address} again"
        assert again in by_reader[1]
        assert all(each.said[1].startswith(f"placer: {again}") for each in commands)
        shown = len(commands[0].shown)
        until(lambda: len(commands[0].shown) > shown, lambda: reader.poll(0.2))
        assert [each.interrupted() for each in commands] == [0, 0]
        executor.close()
        fleet.close()
        reader.close()
    assert everybody(2)
