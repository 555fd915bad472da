"""An executor with the least rights of its role holds its lock and speaks; one short of a right
names it.

Moves are issued by a stand-in, so that no reconciler need run.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from schemas.access import executor_lock_id
from schemas.topics import ACKS
from streaming.administration import apply_topics
from streaming.brokers import CommittedReader
from streaming.client import Executor, Replica, ReplicaStore
from streaming.conformance.reconciler import PlayedShard, StandIn
from streaming.errors import AccessRefused
from streaming.runtime import EmbeddedBroker
from tests.systems.guarded_broker import Right, guarded_broker, options
from tests.systems.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

PREFIX = "guarded."
LOCKS = executor_lock_id(PREFIX, "")
# Users that lack one right of executors.
SHORT_OF: dict[str, Right] = {
    "unlocked": ("executors", "transactional-id", LOCKS, "WRITE"),
    "unnamed": ("executors", "group", LOCKS, "READ"),
    "unheard": ("executors", "topic", f"{PREFIX}acks.v1", "WRITE"),
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedBroker]:
    """A broker with a user for each role, each with the rights of its role alone."""
    with guarded_broker(PREFIX, SHORT_OF) as broker:
        yield broker


class Empty(ReplicaStore):
    """Has nothing, and copies nothing."""

    def holds(self, _: Replica) -> bool:
        return False

    def copy(self, *_: Any) -> None:
        """Nothing is copied."""

    def delete(self, *_: Any) -> None:
        """Nothing is deleted."""


def executor(guarded: EmbeddedBroker, user: str, node_id: str) -> Executor:
    address = guarded.bootstrap_servers
    return Executor(address, PREFIX, Empty(), nodes=[node_id], options=options(user))


@pytest.fixture
def moving(guarded: EmbeddedBroker) -> Callable[[str], dict[str, Any]]:
    """Issue a move to a node, as the reconciler does."""
    apply_topics(guarded.bootstrap_servers, PREFIX, options=options("root"))
    stand_in = StandIn(guarded.bootstrap_servers, PREFIX, options("root"))
    stand_in.start()

    def issue(node_id: str) -> dict[str, Any]:
        shard = PlayedShard(f"of-{node_id}", 0, ["a", "b"])
        stand_in.create(shard)
        return stand_in.issue(shard, remove="a", add=node_id)

    return issue


def test_executors_hold_their_locks_and_speak_with_the_rights_of_their_role(
    guarded: EmbeddedBroker, moving: Callable[[str], dict[str, Any]]
) -> None:
    move = moving("d")
    with CommittedReader(
        guarded.bootstrap_servers, PREFIX, [ACKS], options=options("root")
    ) as acks:
        first, second = (executor(guarded, "executors", "d") for _ in range(2))
        with first:
            assert first.wait_ready(60)
            with second:
                until(lambda: second.waits_for, "the second waits")
                said: list[Any] = []

                def hear() -> bool:
                    said.extend(each.value["move_id"] for each in acks.poll(1.0))
                    return said.count(move["move_id"]) == 2

                until(hear, "the move is accepted and completed")
                first.close()
                assert second.wait_ready(60)


@pytest.mark.parametrize(
    ("user", "right"),
    [
        ("unlocked", "Write on transactional id guarded.executor/unlocked"),
        ("unnamed", "Read on group guarded.executor/"),
        ("unheard", "Write on topic guarded.acks.v1"),
    ],
)
def test_an_executor_without_a_right_ends_and_names_it(
    guarded: EmbeddedBroker, moving: Callable[[str], dict[str, Any]], user: str, right: str
) -> None:
    moving(user)
    refused = executor(guarded, user, user)
    refused.start()
    until(lambda: not refused.running, "it has ended")
    with pytest.raises(AccessRefused, match=re.escape(right)):
        refused.close()


def test_an_executor_that_waits_is_told_at_once_that_it_could_not_take_over(
    guarded: EmbeddedBroker, moving: Callable[[str], dict[str, Any]]
) -> None:
    moving("e")
    with executor(guarded, "executors", "e") as first:
        assert first.wait_ready(60)
        refused = executor(guarded, "unlocked", "e")
        refused.start()
        until(lambda: not refused.running, "it has ended")
        with pytest.raises(AccessRefused, match=r"transactional id guarded\.executor/e/probe"):
            refused.close()
