"""The example store keeps its promises: its logs, its leaders, and its copies, without a broker."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.examples.store.log import Log, LogDamaged, make_line
from deploy.examples.store.node import Node
from deploy.examples.store.replica import LocalReplicas
from deploy.examples.store.wire import Body, Refused, call_once, serve
from streaming.client import Change, Move, Progress, Replica, ShardId
from tests.systems.waiting import until

SHARD = ShardId("pairs", 0)
ABOUT = {"stream": "pairs", "shard": 0}
WHOLE_SCAN = {**ABOUT, "prefix": "", "after": "", "at_least": 0}


class Nodes:
    """Nodes in this process. One that is `away` answers nobody."""

    def __init__(self, root: Path) -> None:
        self.hosts: dict[str, str] = {}
        self.nodes: dict[str, Node] = {}
        self.away: set[str] = set()
        self._servers = []
        for name in "abcd":
            self.nodes[name] = Node(name, root / name, self.hosts.get)
            server, self.hosts[name] = serve("127.0.0.1:0", self._answers_of(name))
            self._servers.append(server)

    def assign(self, epoch: int, replicas: str, adding: str = "", removing: str = "") -> None:
        """Publish an assignment to all nodes that are there."""
        change = Change(SHARD, epoch, (*replicas,), (*adding,), (*removing,))
        for name in self.nodes.keys() - self.away:
            self.nodes[name].see(change)

    def create(self, replicas: str) -> None:
        """The first replicas, led by the first."""
        for name in replicas:
            self.nodes[name].store.create(Replica(*SHARD, name))
        self.assign(1, replicas)
        until(lambda: self.put(replicas[0], "first", "1"), "the first leader takes writes")

    def put(self, leader: str, key: str, value: str) -> bool:
        """Write; returns whether it is acknowledged."""
        try:
            call_once(self.hosts[leader], "put", key=key, value=value, **ABOUT)
        except (Refused, OSError):
            return False
        return True

    def scan(self, name: str) -> dict[str, str]:
        pairs: list[tuple[str, str]] = call_once(self.hosts[name], "scan", **WHOLE_SCAN)["pairs"]
        return dict(pairs)

    def close(self) -> None:
        self.away |= self.nodes.keys()
        for node in self.nodes.values():
            node.see(Change(SHARD, None, ()))
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def _answers_of(self, name: str) -> object:
        def answer(question: Body) -> Body:
            if name in self.away:
                raise ConnectionError("away")
            return self.nodes[name].answer(question)

        return answer


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    yield made
    made.close()


def test_what_a_majority_has_the_next_leader_finds(nodes: Nodes) -> None:
    nodes.create("abc")
    nodes.away.add("c")
    assert nodes.put("a", "apple", "red")
    nodes.away = {"a"}
    nodes.assign(2, "cba")
    until(lambda: nodes.put("c", "pear", "green"), "the new leader takes writes")
    assert nodes.scan("c") == {"first": "1", "apple": "red", "pear": "green"}
    until(lambda: "pear" in nodes.scan("b"), "the follower hears what is committed")


def test_a_leader_that_missed_its_succession_acknowledges_nothing(nodes: Nodes) -> None:
    nodes.create("abc")
    nodes.away.add("a")
    nodes.assign(2, "bca")
    until(lambda: nodes.put("b", "apple", "green"), "the new leader takes writes")
    nodes.away.clear()
    # It does not know of the second epoch, and what it writes is replaced.
    assert not nodes.put("a", "apple", "brown")
    until(lambda: nodes.scan("a").get("apple") == "green", "it follows the new leader")


def test_without_a_majority_nothing_is_acknowledged(nodes: Nodes) -> None:
    nodes.create("abc")
    nodes.away = {"b", "c"}
    assert not nodes.put("a", "apple", "red")


def test_a_copy_is_complete_when_the_leader_of_its_epoch_has_reached_it(nodes: Nodes) -> None:
    nodes.create("abc")
    move = Move("m", "replace", *SHARD, 2, "accepted", 0, 0, remove="a", add="d", source="b")
    copy = threading.Thread(target=nodes.nodes["d"].store.copy, args=(move, Progress()))
    copy.start()
    replica = until(lambda: nodes.nodes["d"].replicas.get(SHARD), "the copy begins")
    until(lambda: replica.follows, "its bulk is there")
    assert replica.log.last.number > 0
    assert not nodes.nodes["d"].store.holds(Replica(*SHARD, "d"))
    nodes.assign(2, "abc", adding="d", removing="a")
    until(lambda: nodes.put("a", "apple", "red"), "the leader takes writes in the new epoch")
    copy.join(30)
    assert nodes.nodes["d"].store.holds(Replica(*SHARD, "d"))
    # Now the new list needs a majority too: of the old one, a and b would be enough.
    nodes.away = {"c", "d"}
    assert not nodes.put("a", "pear", "green")


def test_a_copy_goes_on_where_it_was_cut_off_or_begins_anew(nodes: Nodes, tmp_path: Path) -> None:
    nodes.create("abc")
    source = nodes.nodes["b"].replicas.get(SHARD)
    until(lambda: source.log.last.number >= 2, "the follower has the first write")
    target = nodes.nodes["d"].replicas.make(SHARD, complete=False)
    move = Move("m", "replace", *SHARD, 2, "accepted", 0, 0, remove="a", add="d", source="b")
    target.take(source.log.lines(0)[:1])
    nodes.nodes["d"].store._fetch(target, move, Progress())
    assert target.log.last == source.log.last
    target.log.cut(0)
    target.take([make_line(target.log.last, 9, "other", "log")])
    nodes.nodes["d"].store._fetch(target, move, Progress())
    assert target.log.last == source.log.last


def test_a_line_that_was_cut_off_is_removed_and_a_damaged_one_is_told(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    for number in range(3):
        log.append([make_line(log.last, 1, "key", f"value {number}")])
    whole = (tmp_path / "log").read_bytes()
    (tmp_path / "log").write_bytes(whole[:-3])
    assert Log(tmp_path / "log").last.number == 2
    (tmp_path / "log").write_bytes(whole.replace(b"value 1", b"value 7"))
    with pytest.raises(LogDamaged, match="record 2"):
        Log(tmp_path / "log")


def test_a_damaged_or_missing_replica_is_lost_and_not_made_anew(tmp_path: Path) -> None:
    replica = LocalReplicas(tmp_path / "a").make(SHARD, complete=True)
    replica.write(1, "key", "value")
    log = tmp_path / "a" / "pairs.0" / "log"
    log.write_bytes(log.read_bytes().replace(b"value", b"valve"))
    node = Node("a", tmp_path / "a", {}.get)
    node.see(Change(SHARD, 1, ("b", "a")))
    node.see(Change(ShardId("pairs", 1), 4, ("b", "a")))
    node.see(Change(ShardId("pairs", 2), 1, ("b", "a")))
    assert node.find_lost(is_new=False) == [SHARD, ShardId("pairs", 1)]
    assert node.find_lost(is_new=True) == [SHARD, ShardId("pairs", 1), ShardId("pairs", 2)]
    assert (tmp_path / "a" / "damaged.pairs.0" / "log").exists()
