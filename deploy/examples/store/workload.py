"""A steady writer and reader, which judges at its end: `python -m deploy.examples.store.workload`.

It creates its stream, writes until SIGTERM or for a number of seconds, reads back while it writes,
and in the end reads every key with a fresh client. Exit code 1: an acknowledged write was not read.
"""

import argparse
import os
import random
import sys
import threading
import time
from collections import Counter

from deploy.examples.store.client import NoAnswer, StoreClient
from streaming.client import Requester
from streaming.signals import StopEvent

PAUSE_SECONDS = 0.02
TOLD_EVERY_SECONDS = 10.0
# It may be started with the reconciler, which takes a minute on a busy machine.
START_TIMEOUT_SECONDS = 300.0
KEYS = 500


class Workload:
    """Writes rising numbers under keys drawn at random, and remembers what was acknowledged."""

    def __init__(self, at: tuple[str, str], stream: str, location: str, seed: int) -> None:
        self._at, self._stream, self._location = at, stream, location
        self._drawn = random.Random(seed)
        self.acknowledged: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self.slowest_seconds = 0.0

    def play(self, stopping: threading.Event) -> None:
        """Write and read until the event is set."""
        told = time.monotonic()
        with (
            StoreClient(*self._at, self._stream) as writer,
            StoreClient(*self._at, self._stream, self._location) as reader,
        ):
            number = 0
            while not stopping.wait(PAUSE_SECONDS):
                number += 1
                key = f"key-{self._drawn.randrange(KEYS)}"
                self._write(writer, key, number)
                key = self._drawn.choice([*self.acknowledged] or [key])
                self._read(reader, key, latest=True)
                self._read(writer, key, latest=False)
                if time.monotonic() > told + TOLD_EVERY_SECONDS:
                    told = time.monotonic()
                    print(self, flush=True)

    def audit(self) -> int:
        """Read all keys with a fresh client; returns how many acknowledged writes are lost."""
        with StoreClient(*self._at, self._stream, self._location) as auditor:
            found = {key: int(value) for key, value in auditor.scan("key-")}
        lost = [k for k, number in self.acknowledged.items() if found.get(k, -1) < number]
        for key in lost:
            print(f"lost: {key} = {self.acknowledged[key]}, found {found.get(key)}")
        self.counts["lost"] += len(lost)
        self.counts["keys read back"] = len(found)
        return self.counts["lost"] + self.counts["stale"]

    def _write(self, client: StoreClient, key: str, number: int) -> None:
        began = time.monotonic()
        try:
            client.put(key, str(number))
        except NoAnswer as error:
            # It may be there or not: only what was acknowledged is asked for.
            self.counts["unknown"] += 1
            print(f"not acknowledged: {error}", flush=True)
            return
        self.acknowledged[key] = number
        self.counts["written"] += 1
        self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)

    def _read(self, client: StoreClient, key: str, *, latest: bool) -> None:
        """Read what this writer has written: with its own client, or with another that asks for
        the latest."""
        known = self.acknowledged.get(key, -1)
        try:
            value = client.get(key, latest=latest)
        except NoAnswer as error:
            self.counts["unread"] += 1
            print(f"not read: {error}", flush=True)
            return
        self.counts["read"] += 1
        if int(value or -1) < known:
            self.counts["stale"] += 1
            print(f"stale: {key} = {known}, read {value} from {client.served_by}", flush=True)

    def __str__(self) -> str:
        names = ("written", "unknown", "read", "unread", "stale", "keys read back", "lost")
        counts = ", ".join(f"{name} {self.counts[name]}" for name in names)
        return f"{counts}; slowest write {self.slowest_seconds:.1f} s"


def main() -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(description="a steady writer and reader of the store")
    parser.add_argument("--stream", default="pairs")
    parser.add_argument("--shards", type=int, default=6)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--location", default="", help="where the reader is: /zone1/rack1")
    parser.add_argument("--seconds", type=float, help="default: until SIGTERM")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    stopping = StopEvent()
    stopping.set_on_signals()
    at = (os.environ["KAFKA_BOOTSTRAP"], os.environ["TOPIC_PREFIX"])
    with Requester(*at) as requester:
        decision = requester.create(
            given.stream, given.shards, given.replicas, timeout_seconds=START_TIMEOUT_SECONDS
        )
        print(f"stream {given.stream}: {decision['outcome']}", flush=True)
    if given.seconds is not None:
        timer = threading.Timer(given.seconds, stopping.set)
        timer.daemon = True
        timer.start()
    workload = Workload(at, given.stream, given.location, given.seed)
    workload.play(stopping)
    failed = workload.audit()
    print(workload, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
