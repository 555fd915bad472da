"""Nodes that report the loads of all they hold, in a process of its own, at an even pace."""

import random
import time
from collections import defaultdict
from typing import Annotated, Any

import orjson
import typer

from schemas.envelope import encode_headers
from schemas.topics import NODE_LOADS, full_name
from streaming.brokers import CommittedReader, make_producer
from streaming.signals import stop_on_signals
from streaming.simulator.loads import SHARDS_PER_REPORT

RESOURCE = "disk_bytes"
CAPACITY = 10**15
# Every report is off by so much, as measurements are; below what the filter lets through.
NOISE = 0.02
# A pause in which nothing was sent is not made up for.
LATE_SECONDS = 1.0


def main(
    bootstrap: Annotated[str, typer.Option()],
    prefix: Annotated[str, typer.Option()],
    every_seconds: Annotated[float, typer.Option()],
    topic: Annotated[str, typer.Option()] = NODE_LOADS,
) -> None:
    """Read what is placed, say ready, report until SIGTERM: each node once in `every_seconds`."""
    with stop_on_signals() as stop:
        parts = _reports(_assignments(bootstrap, prefix))
        producer, to = make_producer(bootstrap), full_name(topic, prefix)
        typer.echo("ready")
        pause, due, sequence = every_seconds / len(parts), time.monotonic(), 0
        while not stop.is_set():
            for node, shards in parts:
                sequence += 1
                headers = encode_headers(
                    "NodeLoadReported", cell="benchmark", id=str(sequence), subject=node, time_ms=0
                )
                value = _record(node, sequence, shards)
                producer.produce(to, value, node, headers=[*headers])
                producer.poll(0)
                now = time.monotonic()
                due = max(due + pause, now - LATE_SECONDS)
                if stop.wait(max(due - now, 0.0)):
                    break


def _assignments(bootstrap: str, prefix: str) -> dict[str, list[tuple[str, int]]]:
    """The shards that each node holds."""
    reader = CommittedReader(bootstrap, prefix, ["assignments.v1"])
    held: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for record in reader.records_to_end():
        body = record.value or {}
        for node in body.get("replicas", ()):
            held[node].append((body["stream"], body["shard"]))
    reader.close()
    return held


def _reports(held: dict[str, list[tuple[str, int]]]) -> list[tuple[str, bytes]]:
    """The nodes with what their records say of the shards, written once.

    Nodes stand one after another in turns, so that their records are spread over the time.
    """
    drawn = random.Random(7)
    sizes: dict[tuple[str, int], int] = {}
    turns: defaultdict[int, list[tuple[str, bytes]]] = defaultdict(list)
    for node, shards in sorted(held.items()):
        for turn, first in enumerate(range(0, len(shards), SHARDS_PER_REPORT)):
            said: list[dict[str, Any]] = []
            for place in shards[first : first + SHARDS_PER_REPORT]:
                size = sizes.setdefault(place, round(10**9 * drawn.lognormvariate(0, 1.5)))
                amount = round(size * drawn.uniform(1 - NOISE, 1 + NOISE))
                said.append({"stream": place[0], "shard": place[1], RESOURCE: amount})
            turns[turn].append((node, orjson.dumps(said)))
    return [each for turn in sorted(turns) for each in turns[turn]]


def _record(node: str, sequence: int, shards: bytes) -> bytes:
    head = {"node_id": node, "incarnation": "agent", "sequence": sequence}
    body = orjson.dumps({**head, "capacities": {RESOURCE: CAPACITY}})
    return body[:-1] + b',"shards":' + shards + b"}"


if __name__ == "__main__":
    typer.run(main)
