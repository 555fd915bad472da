"""Goal: the model of a live cell holds whole commits only, follows them, and survives the broker.

Method: an embedded broker; commits through the outbox, and a transaction that is held open.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from confluent_kafka import Producer

from placement.model import Configuration, StreamCreated, StreamDropped
from schemas.topics import TOPOLOGY, full_name
from streaming.administration import apply_topics
from streaming.read_model import Change, ModelFollower, NotReady, ReadModel, follower
from streaming.read_model.commit_cut import CommitCuts
from streaming.read_model.fold import Fold
from streaming.read_model.follower import TOPICS
from streaming.runtime import EmbeddedBroker
from streaming.settings import Settings, load_settings
from tests.builders.published_state import CELL, Publisher, nodes_up
from tests.systems.waiting import until


def settings_of(bootstrap: str, prefix: str) -> Settings:
    return load_settings(None, {"kafka.bootstrap_servers": bootstrap, "topics.prefix": prefix})


@contextmanager
def following(settings: Settings, said: list[str]) -> Iterator[ReadModel]:
    model = ReadModel(CELL, settings.topics.prefix)
    with ModelFollower(settings, model, said.append).running():
        until(lambda: model.stale_seconds is not None, "the topics are read")
        yield model


def test_commits_are_followed_and_whole(bootstrap: str, prefix: str) -> None:
    publisher = Publisher(bootstrap, prefix, Configuration())
    publisher.apply(nodes_up(4), 1_000)
    publisher.apply([StreamCreated(2, "orders", 1, 3, 2)], 2_000)
    heard: list[Change] = []
    with following(settings_of(bootstrap, prefix), []) as model:
        model.listen(heard.append)
        assert (model.marker.sequence, model.count_shards()) == (2, 3)
        publisher.apply([StreamCreated(3, "logs", 1, 5, 2)], 3_000)
        until(lambda: model.marker.sequence == 3, "the third commit")
        assert model.count_shards() == 8
        publisher.apply([StreamDropped(4, "orders", 2)], 4_000)
        until(lambda: model.marker.sequence == 4, "the fourth commit")
        assert model.count_shards() == 5
    assert [each.counts.get("shards") for each in heard] == [5, 3]


def test_nothing_of_a_commit_is_seen_before_all_of_it(bootstrap: str, prefix: str) -> None:
    """The partitions of a transaction become readable one by one: here a second writer keeps one of
    them back while the commit is already readable in the others."""
    publisher = Publisher(bootstrap, prefix, Configuration())
    publisher.apply(nodes_up(4), 1_000)
    cuts = CommitCuts(bootstrap, prefix, TOPICS, {})
    with following(settings_of(bootstrap, prefix), []) as model:
        other = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{prefix}other"})
        other.init_transactions()
        other.begin_transaction()
        # Behind it nobody can read the topology, which the next commit changes as well.
        other.produce(full_name(TOPOLOGY, prefix), b"{}", b"aborted")
        other.flush()
        assert cuts.find() is None
        publisher.apply([*nodes_up(5)[4:], StreamCreated(2, "orders", 1, 3, 2)], 2_000)
        assert cuts.find() is None
        assert (model.marker.sequence, model.count_shards()) == (1, 0)
        other.abort_transaction()
        until(lambda: model.marker.sequence == 2, "the second commit")
        _, snapshot = model.take_snapshot()
        assert (model.count_shards(), len(snapshot.nodes)) == (3, 5)
    cut = cuts.find()
    assert cut is not None
    assert set(cut) == {(topic, 0) for topic in TOPICS}


def test_what_is_older_than_the_model_is_read_with_its_tombstones(
    bootstrap: str, prefix: str
) -> None:
    publisher = Publisher(bootstrap, prefix, Configuration())
    publisher.apply(nodes_up(4), 1_000)
    publisher.apply([StreamCreated(2, "orders", 1, 3, 2)], 2_000)
    publisher.apply([StreamDropped(3, "orders", 2)], 3_000)
    with following(settings_of(bootstrap, prefix), []) as model:
        assert (model.marker.sequence, model.count_shards()) == (3, 0)


def test_a_broker_that_goes_and_comes_back(tmp_path: Path) -> None:
    said: list[str] = []
    with EmbeddedBroker(data_dir=tmp_path / "kafka") as broker:
        address = broker.bootstrap_servers
        apply_topics(address, "away.")
        publisher = Publisher(address, "away.", Configuration())
        publisher.apply(nodes_up(2), 1_000)
        with following(settings_of(address, "away."), said) as model:
            broker.stop()
            until(lambda: model.fault is not None, "the broker is missed")
            assert model.stale_seconds > 0
            assert model.marker.sequence == 1
            port = int(address.rpartition(":")[2])
            with EmbeddedBroker(port=port, data_dir=tmp_path / "kafka"):
                until(lambda: model.fault is None, "the broker is found again")
                again = Publisher(address, "away.", Configuration(), publisher.committer)
                again.apply([StreamCreated(2, "orders", 1, 3, 2)], 2_000)
                until(lambda: model.marker.sequence == 2, "the commit after it")
                assert model.count_shards() == 3
                until(lambda: len(said) > 1, "it is told that the broker is back")
    assert "no broker has answered at" in said[0]
    assert "answers at" in said[1]


def test_a_record_that_cannot_be_read_is_told(bootstrap: str, prefix: str) -> None:
    Publisher(bootstrap, prefix, Configuration()).apply(nodes_up(2), 1_000)
    said: list[str] = []
    with following(settings_of(bootstrap, prefix), said) as model:
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce(full_name(TOPOLOGY, prefix), b'{"node_id": "n9"}', b"n9")
        assert producer.flush(10) == 0
        until(lambda: model.fault is not None, "the record is met")
        assert "topology.v1-0 offset" in model.fault
        assert model.marker.sequence == 1
        producer.produce(full_name(TOPOLOGY, prefix), None, b"n9")
        assert producer.flush(10) == 0
    assert "the topics are read again" in said[0]


def test_a_fault_of_its_own_ends_no_following(
    bootstrap: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Publisher(bootstrap, prefix, Configuration()).apply(nodes_up(2), 1_000)
    folds = Mock(side_effect=[ZeroDivisionError("planted"), Fold()])
    monkeypatch.setattr(follower, "Fold", folds)
    monkeypatch.setattr(follower, "RETRY_SECONDS", 0.05)
    said: list[str] = []
    with following(settings_of(bootstrap, prefix), said) as model:
        assert model.marker.sequence == 1
    assert "this is a bug of placer: ZeroDivisionError('planted')" in said[0]


def test_topics_without_a_commit(bootstrap: str, prefix: str) -> None:
    with following(settings_of(bootstrap, prefix), []) as model:
        with pytest.raises(NotReady, match="has committed anything"):
            model.find_shard("orders", 0)
        assert model.fault is None
