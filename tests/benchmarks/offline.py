"""How long the offline commands take for a large cluster file: 100,000 shards on 2,000 nodes.

Each command runs as a user runs it, in a process of its own, on a JSON file: a fleet of 4 regions,
20 zones and 200 racks with 40 streams of three replicas, under the default policy and under one
named rule. `place` gets the file without replicas, the others the placed one; the last two look at
it with one rack lost. CPU time is that of the process, start and reading included.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from tests.benchmarks.processes import BenchmarkFailed

# The target of each command on the full size, in seconds of the wall.
SECONDS_MAX = 10
POLICIES: dict[str, dict[str, Any]] = {
    "default": {},
    "at_most 1 per rack": {"rules": [{"at_most": 1, "per": "rack"}]},
    "at_most 1 per az": {"rules": [{"at_most": 1, "per": "az"}]},
}
COMMANDS = (
    ("place",),
    ("check",),
    ("plan",),
    ("explain", "s00/0"),
    ("check", "--lose", "/region0/az0/rack0"),
    ("plan", "--lose", "/region0/az0/rack0", "--phase", "repair"),
)


@dataclass(frozen=True)
class Extent:
    """Nodes in each of 200 racks; streams, and shards of each."""

    nodes_per_rack: int
    streams: int
    shards: int

    @property
    def told(self) -> str:
        """The size in words."""
        return f"{self.streams * self.shards} shards on {200 * self.nodes_per_rack} nodes"


FULL, QUICK = Extent(10, 40, 2_500), Extent(5, 8, 1_250)


@dataclass(frozen=True)
class Taken:
    """One command under one policy, and what it took."""

    policy: str
    command: str
    wall_seconds: float
    cpu_seconds: float


def cluster(extent: Extent, policy: dict[str, Any]) -> dict[str, Any]:
    """The file without replicas."""
    places = (
        f"/region{region}/az{az}/rack{rack}"
        for region in range(4)
        for az in range(5)
        for rack in range(10)
        for _ in range(extent.nodes_per_rack)
    )
    nodes = [{"id": f"n{number:04}", "location": place} for number, place in enumerate(places)]
    asked = {"shards": extent.shards, "replication_factor": 3} | (
        {"policy": policy} if policy else {}
    )
    streams = [{"stream": f"s{number:02}", **asked} for number in range(extent.streams)]
    return {"levels": ["region", "az", "rack"], "nodes": nodes, "streams": streams}


def measure(extent: Extent, scratch: Path, tell: Callable[[str], None]) -> Iterator[Taken]:
    """Every command under every policy. Raises BenchmarkFailed."""
    for name, policy in POLICIES.items():
        document = cluster(extent, policy)
        file = scratch / "cluster.json"
        file.write_bytes(orjson.dumps(document))
        for command, *options in COMMANDS:
            told = " ".join((command, *options))
            tell(f"{name}: {told}")
            taken, answer = _run(command, str(file), *options)
            yield Taken(name, told, *taken)
            if command == "place":
                decisions = orjson.loads(answer)["decisions"]
                for stream, decision in zip(document["streams"], decisions, strict=True):
                    stream["replicas"] = decision["replicas"]
                file.write_bytes(orjson.dumps(document))


def _run(command: str, *words: str) -> tuple[tuple[float, float], bytes]:
    """Seconds of the wall and of the processor, and what was printed."""
    arguments = [sys.executable, "-m", "streaming.cli", command, *words, "--output", "json"]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(arguments, capture_output=True, check=False)
    wall, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode > 1:
        raise BenchmarkFailed(f"placer {command} ended with {done.returncode}: {done.stderr!r}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (wall, cpu), done.stdout


def show(console: Console, extent: Extent, found: list[Taken]) -> None:
    """A table for people."""
    table = Table(title=f"{extent.told}, offline; target {SECONDS_MAX} s each")
    for column in ("policy", "command", "wall s", "CPU s"):
        table.add_column(column, justify="right" if column.endswith(" s") else "left")
    for each in found:
        seconds = f"{each.wall_seconds:.1f}", f"{each.cpu_seconds:.1f}"
        table.add_row(each.policy, each.command, *seconds)
    console.print(table)
