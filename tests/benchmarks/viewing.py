"""Measures the client's view of a large state: a million shards read, held, and looked up.

`python -m tests.benchmarks.viewing [SHARDS]` starts a broker, writes the assignments, and lets a
process of its own follow them, so that its memory is that of a client.
"""

import json
import random
import resource
import subprocess
import sys
import time

import orjson

from schemas.topics import ASSIGNMENTS, full_name
from streaming.administration import apply_topics
from streaming.brokers import make_producer
from streaming.client import PlacementView
from streaming.runtime import EmbeddedBroker

PREFIX = "view."
SHARDS_OF_STREAM = 10_000
NODES = 10_000
LOOKUPS = 100_000


def write(bootstrap: str, shards: int) -> None:
    """Write one assignment of three replicas for each shard."""
    producer = make_producer(bootstrap, linger_ms=20)
    for number in range(shards):
        stream, shard = f"stream-{number // SHARDS_OF_STREAM}", number % SHARDS_OF_STREAM
        body = {
            "stream": stream,
            "shard": shard,
            "epoch": 1,
            "replicas": [f"node-{(number * 7 + place * 3331) % NODES}" for place in range(3)],
            "adding": [],
            "removing": [],
            "decided_at": 1_767_225_600_000,
        }
        while True:
            try:
                producer.produce(
                    full_name(ASSIGNMENTS, PREFIX), orjson.dumps(body), f"{stream}/{shard}"
                )
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


def follow(bootstrap: str, shards: int) -> dict[str, float]:
    """Follow the assignments to their end; seconds, MiB and microseconds."""
    before_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began = time.monotonic()
    with PlacementView(bootstrap, PREFIX) as view:
        assert view.wait_complete(600)
        seconds = time.monotonic() - began
        drawn = random.Random(0)
        places = [divmod(drawn.randrange(shards), SHARDS_OF_STREAM) for _ in range(LOOKUPS)]
        began = time.monotonic()
        found = sum(len(view.replicas(f"stream-{stream}", shard)) for stream, shard in places)
        assert found == 3 * LOOKUPS
        return {
            "ready_seconds": round(seconds, 1),
            "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            "before_mib": round(before_mib),
            "columns_mib": round(view.size_bytes / 2**20, 1),
            "lookup_microseconds": round((time.monotonic() - began) / LOOKUPS * 1e6, 2),
        }


def main() -> None:
    """Measure, or, as a child, follow."""
    if sys.argv[1:2] == ["follow"]:
        print(json.dumps(follow(sys.argv[2], int(sys.argv[3]))))
        return
    shards = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with EmbeddedBroker() as broker:
        apply_topics(broker.bootstrap_servers, PREFIX)
        write(broker.bootstrap_servers, shards)
        words = [
            sys.executable,
            "-m",
            __spec__.name,
            "follow",
            broker.bootstrap_servers,
            str(shards),
        ]
        subprocess.run(words, check=True)


if __name__ == "__main__":
    main()
