"""A client of the store, as a class and as a command: `python -m deploy.examples.store.client`.

Writes go to the shard's leader, reads to the replica nearest to the client's location.
"""

import argparse
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from deploy.examples.store.wire import Body, Connection, Refused
from streaming.client import PlacementView

# A dead leader is succeeded within `liveness.dead_after_seconds` and a moment.
TIMEOUT_SECONDS = 60.0
PAUSE_SECONDS = 0.1


class NoAnswer(Exception):
    """Nothing could be written or read in time. A write may have happened nevertheless."""


class StoreClient:
    """Writes and reads one stream of the store. Not safe for threads.

    A read sees all writes that were acknowledged before the client's first use of the shard, the
    client's own writes, and whatever its earlier reads have seen; with `latest`, all that were
    acknowledged before the read. Writes of other clients since then may be seen a moment later.
    """

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        stream: str,
        location: str = "",
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """`location`: where the client is, such as `/zone1/rack1`."""
        self._view = PlacementView(bootstrap, prefix)
        self._stream, self._location, self._timeout = stream, location, timeout_seconds
        self._connections: dict[str, Connection] = {}
        # By shard, the number of the newest record that the client knows of.
        self._seen: dict[int, int] = {}
        self.served_by: str | None = None

    def put(self, key: str, value: str) -> None:
        """Write; returns once a majority of the shard's replicas has it on disk. Raises
        NoAnswer."""
        shard = self._shard_of(key)
        self._see(shard, self._ask_leader(shard, key=key, value=value)["number"])

    def get(self, key: str, *, latest: bool = False) -> str | None:
        """Read; None where there is no such key. Raises NoAnswer."""
        answer = self._read(self._shard_of(key), latest, key=key)
        return answer["pairs"][0][1] if answer["pairs"] else None

    def scan(self, prefix: str = "", *, latest: bool = False) -> Iterator[tuple[str, str]]:
        """Read all pairs whose keys begin so, shard by shard in the order of keys. Raises
        NoAnswer."""
        for shard in range(self._shards()):
            after, more = "", True
            while more:
                answer = self._read(shard, latest, prefix=prefix, after=after)
                yield from ((key, value) for key, value in answer["pairs"])
                more = answer["more"]
                after = answer["pairs"][-1][0] if more else ""

    def close(self) -> None:
        """Hang up."""
        for connection in self._connections.values():
            connection.close()
        self._view.close()

    def __enter__(self) -> Self:
        self._view.start()
        self._view.wait_complete(self._timeout)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, shard: int, latest: bool, **wanted: object) -> Body:
        if latest or shard not in self._seen:
            # An empty record goes through a majority: the leader is none of the past, and the
            # record's number is behind all that was acknowledged.
            self._see(shard, self._ask_leader(shard)["number"])
        answer = self._ask(
            shard, lambda: self._by_distance(shard), "scan", at_least=self._seen[shard], **wanted
        )
        self._see(shard, answer["number"])
        return answer

    def _ask_leader(self, shard: int, **pair: object) -> Body:
        return self._ask(shard, lambda: self._view.replicas(self._stream, shard)[:1], "put", **pair)

    def _by_distance(self, shard: int) -> list[str]:
        """The replicas, the nearest one first."""
        nearest = self._view.nearest(self._stream, shard, self._location).node_id
        nodes = self._view.replicas(self._stream, shard)
        return sorted(nodes, key=lambda node: node != nearest)

    def _ask(
        self, shard: int, choose: Callable[[], Sequence[str]], question: str, **fields: object
    ) -> Body:
        """Ask one node after the other, and all of them again as the assignment changes."""
        deadline, why = time.monotonic() + self._timeout, "no node is known"
        about = {"stream": self._stream, "shard": shard, **fields}
        while time.monotonic() < deadline:
            for node in choose():
                try:
                    answer = self._connection(node).call(question, **about)
                except (OSError, Refused) as error:
                    why = f"{node}: {error}"
                else:
                    self.served_by = node
                    return answer
            time.sleep(PAUSE_SECONDS)
        raise NoAnswer(f"{self._stream}/{shard}: {question} within {self._timeout:g} s: {why}")

    def _connection(self, node: str) -> Connection:
        host = self._view.host(node)
        if host is None:
            raise ConnectionError(f"{node} has no address")
        return self._connections.setdefault(host, Connection(host))

    def _see(self, shard: int, number: int) -> None:
        self._seen[shard] = max(number, self._seen.get(shard, 0))

    def _shards(self) -> int:
        decision = self._view.decision(self._stream)
        if decision is None:
            raise NoAnswer(f"there is no stream {self._stream}: placer send stream creates it")
        return int(decision["spec"]["shards"])

    def _shard_of(self, key: str) -> int:
        return zlib.crc32(key.encode()) % self._shards()


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(description="a client of the store")
    parser.add_argument("--stream", default="pairs")
    parser.add_argument("--location", default="", help="where the client is: /zone1/rack1")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words in {"put": ("key", "value"), "get": ("key",)}.items():
        command = commands.add_parser(name)
        for word in words:
            command.add_argument(word)
    commands.add_parser("scan").add_argument("prefix", nargs="?", default="")
    given = parser.parse_args()
    at = (os.environ["KAFKA_BOOTSTRAP"], os.environ["TOPIC_PREFIX"])
    with StoreClient(*at, given.stream, given.location) as client:
        if given.command == "put":
            client.put(given.key, given.value)
            print(f"acknowledged, led by {client.served_by}")
        elif given.command == "get":
            value = client.get(given.key)
            print(f"no key {given.key}" if value is None else f"{value}  (from {client.served_by})")
        else:
            for key, value in client.scan(given.prefix):
                print(key, value)


if __name__ == "__main__":
    main()
