"""A right of an executor that is taken away while it works, and given back.

On a broker of their own: what a stand-in issues is no state that a reconciler goes on from.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from schemas.topics import ACKS, ASSIGNMENTS, MOVES, full_name
from streaming.administration import apply_topics
from streaming.brokers import CommittedReader
from streaming.client import Executor
from streaming.conformance.reconciler import PlayedShard, StandIn
from streaming.errors import AccessRefused
from streaming.runtime import EmbeddedBroker
from tests.builders.counting_store import CountingStore
from tests.systems.guarded_broker import administering, guarded_broker, options
from tests.systems.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PREFIX = "revoked."


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedBroker]:
    """Topics on which executors have the rights of their role."""
    with guarded_broker(PREFIX, {}) as broker:
        apply_topics(broker.bootstrap_servers, PREFIX, options=options("root"))
        yield broker


@pytest.mark.parametrize(
    ("topic", "operation"),
    [
        (ACKS, ACLOperation.WRITE),
        (MOVES, ACLOperation.READ),
        (ASSIGNMENTS, ACLOperation.READ),
    ],
)
def test_an_executor_without_its_right_says_so_once_and_copies_nothing_twice(
    guarded: EmbeddedBroker,
    caplog: pytest.LogCaptureFixture,
    topic: str,
    operation: ACLOperation,
) -> None:
    """The next start, with the right given back, says what was not said."""
    at = (guarded.bootstrap_servers, PREFIX)
    store, stand_in = CountingStore(), StandIn(*at, options("root"))
    stand_in.start()
    # The node is its own: what other runs have left open is none of its business.
    node, shard = f"of-{topic}", PlayedShard(f"revoked-{topic}", 0, ["a", "b"])
    stand_in.create(shard)

    def said() -> list[tuple[str, str]]:
        with CommittedReader(*at, [ACKS], options=options("root")) as reader:
            records = [each for each in reader.read_to_end() if each.key == shard.key]
        return [(each.headers["ce_type"], each.headers["ce_id"]) for each in records]

    def work() -> Any:
        return Executor(*at, store, nodes=[node], options=options("executors"))

    executor = work()
    executor.start()
    move = stand_in.issue(shard, remove="a", add=node)
    until(lambda: len(said()) == 1, "the move is accepted")
    stand_in.tell(move, "accepted")
    if operation is ACLOperation.READ:
        # Its end would cut the copy off, which the next start would make whole.
        store.may_end.set()
        until(lambda: len(said()) == 2, "the move is completed")
    right = ("User:executors", "*", operation, ACLPermissionType.ALLOW)
    where = (ResourceType.TOPIC, full_name(topic, PREFIX), ACLResourcePatternType.LITERAL)
    with administering(guarded) as admin:
        admin.delete_acls([ACLFilter(*right, ResourcePatternFilter(*where))])
        try:
            store.may_end.set()
            until(lambda: not executor.running, "the executor has ended")
        finally:
            admin.create_acls([ACL(*right, ResourcePattern(*where))])
    with pytest.raises(AccessRefused, match=rf"right {operation.name.title()} on topic {where[1]}"):
        executor.close()
    told = [each for each in caplog.records if "the executor has stopped" in each.getMessage()]
    assert len(told) == 1
    with work():
        until(lambda: len({*said()}) == 2, "the completion is said")
    kinds = [kind for kind, _ in dict.fromkeys(said())]
    assert kinds == ["placement.MoveAccepted.v1", "placement.MoveCompleted.v1"]
    assert store.copies == [move["move_id"]]
