"""Goal: of two executors of a node one acts; the other takes over when it is gone, and alone acts.

Method: executors on the embedded broker, as processes where they are killed or suspended; each
notes what it does with data. The stand-in of `conformance` issues moves. Afterwards each copy was
made once, and each acknowledgement is there once.
"""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.topics import ACKS
from streaming.administration import apply_topics
from streaming.brokers import LEASE_SECONDS, CommittedReader
from streaming.client import Executor, ExecutorState, Move, Progress, Replica, ReplicaStore
from streaming.conformance.reconciler import PlayedShard, StandIn
from streaming.runtime import EmbeddedBroker
from tests.systems.waiting import until
from tests.test_tidy import ROOT

TIMEOUT_SECONDS = 30.0
PROGRAM = ROOT / "tests" / "builders" / "noting_executor.py"


class Memory(ReplicaStore):
    """Notes which moves were copied."""

    def __init__(self) -> None:
        self.copied: list[str] = []

    def holds(self, _: Replica) -> bool:
        return False

    def copy(self, move: Move, _: Progress) -> None:
        self.copied.append(move.move_id)

    def delete(self, _: Replica) -> None:
        """Nothing is kept."""


def said(bootstrap: str, prefix: str) -> list[tuple[str, int]]:
    """The message and shard of each acknowledgement, without reports of progress."""
    with CommittedReader(bootstrap, prefix, [ACKS]) as reader:
        found = [
            (record.headers["ce_type"].split(".")[1], record.value["shard"])
            for record in reader.read_to_end()
        ]
    return [each for each in found if each[0] != "MoveProgressed"]


class Played:
    """A reconciler's stand-in, and processes of executors that share the files of their node."""

    def __init__(self, bootstrap: str, prefix: str, store: Path) -> None:
        self.at, self.store = (bootstrap, prefix), store
        self.stand_in = StandIn(bootstrap, prefix)
        self.stand_in.start()
        self.processes: list[subprocess.Popen[bytes]] = []
        store.mkdir()

    def start(self, *nodes: str) -> subprocess.Popen[bytes]:
        """Start an executor of node d, or of others."""
        told = {"KAFKA_BOOTSTRAP": self.at[0], "TOPIC_PREFIX": self.at[1]}
        with self.log(len(self.processes)).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), *(nodes or ("d",))],
                env=os.environ | told | {"STORE": str(self.store), "PYTHONPATH": str(ROOT)},
                stderr=log,
            )
        self.processes.append(process)
        return process

    def log(self, number: int) -> Path:
        """The log of the process that was started as this one."""
        return self.store / f"{number}.log"

    def has_told(self, number: int, words: str) -> bool:
        """Return whether the process has logged that."""
        return words in self.log(number).read_text()

    def issue(self, number: int) -> tuple[PlayedShard, dict[str, Any]]:
        """Move a replica of a shard, which is held by b, from a to d."""
        shard = PlayedShard("orders", number, ["a", "b"])
        source = self.store / "b" / f"orders.{number}"
        source.parent.mkdir(exist_ok=True)
        source.write_text("data")
        self.stand_in.create(shard)
        return shard, self.stand_in.issue(shard, remove="a", add="d")

    def accept(self, number: int, move: dict[str, Any]) -> None:
        """Wait for the acceptance of a move, and answer it."""
        until(lambda: ("MoveAccepted", number) in said(*self.at), "the move is accepted")
        self.stand_in.tell(move, "accepted")

    def notes(self, process: subprocess.Popen[bytes]) -> list[str]:
        """What a process has noted."""
        path = self.store / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{process.pid} ")]

    def let_end(self, number: int) -> None:
        """Let copies of a shard end."""
        (self.store / f"{number}.go").touch()

    def close(self) -> None:
        """End what still runs."""
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def played(bootstrap: str, prefix: str, tmp_path: Path) -> Iterator[Played]:
    made = Played(bootstrap, prefix, tmp_path / "store")
    yield made
    made.close()


def test_of_two_executors_of_a_node_one_acts(
    bootstrap: str, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "streaming.client")
    stand_in = StandIn(bootstrap, prefix)
    stand_in.start()
    shards = [PlayedShard("orders", number, ["a", "b"]) for number in (0, 1)]
    for shard in shards:
        stand_in.create(shard)
    stores = [Memory(), Memory(), Memory()]
    first, second = (Executor(bootstrap, prefix, store, nodes=["d"]) for store in stores[:2])
    with Executor(bootstrap, prefix, stores[2], nodes=["e"]) as other, first as holder:
        assert holder.wait_ready(TIMEOUT_SECONDS)
        assert str(holder.state) == "acting"
        waiting = second
        waiting.start()
        until(lambda: waiting.waits_for, "the other one knows who holds the lock")
        assert waiting.state is ExecutorState.WAITING
        assert waiting.waits_for is not None
        assert waiting.waits_for.endswith(f"(process {os.getpid()})")
        # Another node has a lock of its own.
        assert other.wait_ready(TIMEOUT_SECONDS)
        move = stand_in.issue(shards[0], remove="a", add="d")
        until(lambda: ("MoveCompleted", 0) in said(bootstrap, prefix), "the move is completed")
        stand_in.complete(shards[0], move)
        assert [each.copied for each in stores] == [[move["move_id"]], [], []]
        holder.close()
        assert waiting.wait_ready(TIMEOUT_SECONDS)
        assert str(waiting.state) == "acting"
        assert (waiting.waits_for, holder.state) == (None, ExecutorState.STOPPED)
        stand_in.issue(shards[1], remove="a", add="d")
        until(lambda: ("MoveCompleted", 1) in said(bootstrap, prefix), "the next is completed")
        waiting.close()
    words = ["MoveAccepted", "MoveCompleted"]
    assert said(bootstrap, prefix) == [(word, number) for number in (0, 1) for word in words]
    assert sum("another executor acts for node d" in each for each in caplog.messages) == 1


def test_a_killed_holder_is_followed_at_once_and_nothing_is_done_twice(played: Played) -> None:
    first = played.start()
    _, done = played.issue(0)
    played.accept(0, done)
    played.let_end(0)
    until(lambda: ("MoveCompleted", 0) in said(*played.at), "the first move is completed")
    _, cut_off = played.issue(1)
    played.accept(1, cut_off)
    until(lambda: "begins 1" in played.notes(first), "the second copy has begun")
    second = played.start()
    until(lambda: played.has_told(1, f"(process {first.pid})"), "the second waits")
    first.kill()
    first.wait()
    killed_at = time.monotonic()
    until(lambda: "begins 1" in played.notes(second), "the second goes on")
    assert time.monotonic() - killed_at < LEASE_SECONDS / 2
    played.let_end(1)
    until(lambda: ("MoveCompleted", 1) in said(*played.at), "the second move is completed")
    assert played.notes(second) == ["begins 1", "ends 1"]
    # What was complete is told once more: the move stands there as accepted.
    words = said(*played.at)
    assert words.count(("MoveAccepted", 0)) == words.count(("MoveAccepted", 1)) == 1
    assert words.count(("MoveCompleted", 1)) == 1
    for number in (0, 1):
        assert (played.store / "d" / f"orders.{number}").read_text() == "data"


@pytest.mark.long
def test_a_holder_that_was_suspended_says_nothing_more_when_it_wakes(played: Played) -> None:
    first = played.start()
    shard, move = played.issue(0)
    played.accept(0, move)
    until(lambda: "begins 0" in played.notes(first), "the copy has begun")
    second = played.start()
    until(lambda: played.has_told(1, f"(process {first.pid})"), "the second waits")
    first.send_signal(signal.SIGSTOP)
    suspended_at = time.monotonic()
    until(lambda: "begins 0" in played.notes(second), "the second goes on")
    assert time.monotonic() - suspended_at > LEASE_SECONDS / 2
    played.let_end(0)
    until(lambda: ("MoveCompleted", 0) in said(*played.at), "the move is completed")
    # The first one's copy could end now, too: nothing but the lock keeps it from that.
    first.send_signal(signal.SIGCONT)
    until(lambda: played.has_told(0, "the executor stops what it does"), "the first has noticed")
    until(lambda: "leaves 0" in played.notes(first), "the first has left its copy")
    until(lambda: played.has_told(0, f"(process {second.pid})"), "the first waits")
    assert played.notes(first) == ["begins 0", "leaves 0"]
    assert played.notes(second) == ["begins 0", "ends 0"]
    assert said(*played.at) == [("MoveAccepted", 0), ("MoveCompleted", 0)]
    played.stand_in.complete(shard, move)
    second.kill()
    second.wait()
    played.let_end(1)
    played.issue(1)
    until(lambda: ("MoveCompleted", 1) in said(*played.at), "the first acts again")
    assert played.notes(first)[-2:] == ["begins 1", "ends 1"]
    # The old copy may go by now; the new one is nobody's to delete.
    assert (played.store / "d" / "orders.0").read_text() == "data"


@pytest.mark.long
def test_an_outage_of_the_brokers_changes_no_holder(tmp_path: Path) -> None:
    prefix, broker = "outage.", EmbeddedBroker(data_dir=tmp_path / "broker")
    broker.start()
    bootstrap = broker.bootstrap_servers
    apply_topics(bootstrap, prefix)
    played = Played(bootstrap, prefix, tmp_path / "store")
    try:
        first = played.start()
        _, move = played.issue(0)
        played.accept(0, move)
        until(lambda: "begins 0" in played.notes(first), "the copy has begun")
        second = played.start()
        until(lambda: played.has_told(1, f"(process {first.pid})"), "the second waits")
        broker.stop()
        until(lambda: played.has_told(1, "waits, and tries again"), "the second has noticed")
        ends_at = time.monotonic() + LEASE_SECONDS
        # The outage is longer than the patience with a holder.
        until(lambda: time.monotonic() > ends_at, "the lease is over")
        # A copy waits while nobody can confirm that it may be made.
        played.let_end(0)
        assert played.notes(first) == ["begins 0"]
        with EmbeddedBroker(int(bootstrap.rpartition(":")[2]), tmp_path / "broker"):
            until(lambda: ("MoveCompleted", 0) in said(*played.at), "the move is completed")
            assert played.notes(first) == ["begins 0", "ends 0"]
            assert played.notes(second) == []
            assert said(*played.at) == [("MoveAccepted", 0), ("MoveCompleted", 0)]
            assert not played.has_told(0, "the executor stops what it does")
            first.kill()
            first.wait()
            again = StandIn(bootstrap, prefix)
            again.start()
            played.stand_in = again
            played.let_end(1)
            played.issue(1)
            until(lambda: ("MoveCompleted", 1) in said(*played.at), "the second takes over")
            assert "ends 1" in played.notes(second)
    finally:
        played.close()


@pytest.mark.long
def test_an_executor_that_closes_lets_go(played: Played, capfd: pytest.CaptureFixture[str]) -> None:
    first = played.start()
    until(lambda: played.log(0).exists() and first.poll() is None, "it runs")
    _, move = played.issue(0)
    played.accept(0, move)
    until(lambda: "begins 0" in played.notes(first), "the copy has begun")
    first.send_signal(signal.SIGTERM)
    assert first.wait(TIMEOUT_SECONDS) == 0
    assert played.notes(first) == ["begins 0", "leaves 0"]
    second = played.start()
    played.let_end(0)
    until(lambda: "ends 0" in played.notes(second), "the next goes on")
    assert not played.has_told(1, "another executor acts")
    assert capfd.readouterr().out == ""
