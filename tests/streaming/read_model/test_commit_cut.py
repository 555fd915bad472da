"""Goal: a failed leader does not keep the read model from the ends that its successor knows.

Method: clients that go on asking the leader whom they have found first.
"""

from typing import Any

import pytest

from streaming.errors import BrokerUnreachable
from streaming.read_model import commit_cut
from streaming.read_model.commit_cut import CommitCuts


class Cluster:
    """Knows the leader of a partition, whether one has failed, and the clients that were made."""

    def __init__(self) -> None:
        self.leader, self.failed = 1, 0
        self.clients: list[int] = []

    def connect(self, *_: Any) -> int:
        """A client is the number of the leader that it asks."""
        self.clients.append(self.leader)
        return self.leader

    def read_end_offsets(self, asked: int, *_: Any) -> dict[tuple[str, int], int]:
        if asked == self.failed:
            raise BrokerUnreachable("disk error")
        return {("p.moves.v1", 0): 7}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(commit_cut, "connect", made.connect)
    monkeypatch.setattr(commit_cut, "read_end_offsets", made.read_end_offsets)
    monkeypatch.setattr(commit_cut, "present_partitions", lambda *_: [0])
    return made


def test_a_client_that_asks_a_failed_leader_is_replaced(cluster: Cluster) -> None:
    cuts = CommitCuts("nowhere:1", "p.", ["moves.v1"], {})
    assert cuts.find() == cuts.find() == {("moves.v1", 0): 7}
    cluster.leader, cluster.failed = 2, 1
    with pytest.raises(BrokerUnreachable):
        cuts.find()
    assert cuts.find() == cuts.find() == {("moves.v1", 0): 7}
    assert cluster.clients == [1, 2]
