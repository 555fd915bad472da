"""Goal: while brokers are away an agent claims nothing that has not arrived, and keeps no lock.

Method: a sender in memory that confirms nothing while the test says so.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.inputs import NodeHeartbeat
from streaming.client import NodeAgent, node_agent
from streaming.client.node_agent import UNCONFIRMED_MAX
from streaming.client.sender import NotDelivered
from tests.systems.waiting import until


class Brokers:
    """A sender, and what it was given."""

    def __init__(self) -> None:
        self.away = False
        self.sent: list[Any] = []
        self.unconfirmed = 0
        self.flushed = 0

    def send(self, _: str, message: Any, __: str | None = None) -> None:
        self.sent.append(message)
        self.unconfirmed += 1
        self.poll()

    def poll(self) -> None:
        if not self.away:
            self.unconfirmed = 0

    def flush(self) -> None:
        self.flushed += 1
        self.poll()
        if self.unconfirmed:
            raise NotDelivered("no broker answers")

    @property
    def kinds(self) -> list[str]:
        return [type(each).__name__ for each in self.sent]


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    monkeypatch.setattr(node_agent, "Sender", lambda *_: made)
    return made


def make_agent(directory: Path, interval_seconds: float = 60.0) -> NodeAgent:
    return NodeAgent(
        "nowhere:1",
        "p.",
        "n1",
        directory / "n1.json",
        heartbeat_interval_seconds=interval_seconds,
    )


@pytest.mark.parametrize("end", [NodeAgent.stop, NodeAgent.leave])
def test_an_end_that_is_repeated_waits_again_and_says_nothing_twice(
    brokers: Brokers, tmp_path: Path, end: Callable[[NodeAgent], None]
) -> None:
    agent = make_agent(tmp_path)
    agent.start()
    brokers.away = True
    for _ in range(2):
        with pytest.raises(NotDelivered):
            end(agent)
    assert len(brokers.sent) == 2
    brokers.away = False
    end(agent)
    assert len(brokers.sent) == 2


def test_the_next_life_can_begin_where_the_last_word_has_not_arrived(
    brokers: Brokers, tmp_path: Path
) -> None:
    first, second = make_agent(tmp_path), make_agent(tmp_path)
    first.start()
    brokers.away = True
    with pytest.raises(NotDelivered):
        first.stop()
    brokers.away = False
    second.start()
    assert brokers.sent[-1].replaces == first.incarnation
    second.stop()


def test_a_last_word_that_was_awaited_in_a_block_is_not_awaited_again(
    brokers: Brokers, tmp_path: Path
) -> None:
    agent = make_agent(tmp_path)

    def leave_in_a_block() -> None:
        with agent:
            brokers.away, brokers.flushed = True, 0
            agent.leave()

    with pytest.raises(NotDelivered):
        leave_in_a_block()
    assert brokers.flushed == 1
    assert brokers.kinds == ["NodeRegistered", "NodeUnregistered"]


def test_a_start_that_fails_holds_no_lock(brokers: Brokers, tmp_path: Path) -> None:
    brokers.away = True
    agent = make_agent(tmp_path)
    with pytest.raises(NotDelivered):
        agent.start()
    brokers.away = False
    agent.start()
    agent.stop()
    other = make_agent(tmp_path)
    other.start()
    assert brokers.sent[-1].replaces == agent.incarnation
    other.stop()


def test_heartbeats_do_not_pile_up(
    brokers: Brokers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = make_agent(tmp_path, interval_seconds=0.001)
    agent.start()
    until(lambda: "NodeHeartbeat" in brokers.kinds, "a heartbeat")
    brokers.away = True
    until(lambda: caplog.messages, "it is told that they are left out")
    assert brokers.unconfirmed == UNCONFIRMED_MAX + 1
    said = len(brokers.sent)
    agent.report_round_trips({"/us": 1.5})
    assert not agent._stopping.wait(0.05)
    assert len(brokers.sent) == said
    brokers.away = False
    until(lambda: len(brokers.sent) > said, "the next heartbeat")
    agent.stop()
    first = brokers.sent[said]
    assert isinstance(first, NodeHeartbeat)
    assert first.rtt_ms == {"/us": 1.5}
    assert caplog.messages == ["no broker confirms what node n1 says"]
