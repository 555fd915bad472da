"""How many replicas a plan copies on a Kafka cluster, beside Kafka's own tool and the least.

Seven real brokers in three racks, the seventh of them empty. Topics are placed evenly on the other
six; then the fleet is changed in the cluster file that `placer kafka import` has written, and for
`kafka-reassign-partitions --generate` in the list of brokers that it is given. Nothing is moved, so
that both answer for the same cluster at every change.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from streaming.offline.reassignment import parse_reassignment
from tests.benchmarks.processes import BenchmarkFailed
from tests.benchmarks.report import show_table
from tests.systems.cluster import Cluster
from tests.systems.kafka_tools import REASSIGN, printed_reassignments, run_tool

RACKS = ("a", "a", "b", "b", "c", "c", "b")
JOINING, DEAD, DRAINED = "7", "4", "2"
REPLICATION_FACTOR = 3
# Both replicas of each partition in one rack, as somebody may have put them by hand.
CROWDED = "crowded"
CROWDED_PARTITIONS = 12

Lists = Mapping[tuple[str, int], Sequence[str]]
Document = dict[str, Any]


@dataclass(frozen=True)
class Extent:
    """Topics, and the partitions of each."""

    topics: int
    partitions: int

    @property
    def told(self) -> str:
        """The size in words."""
        return f"{self.topics * self.partitions} partitions of three replicas on six brokers"


FULL, QUICK = Extent(12, 17), Extent(3, 8)


@dataclass(frozen=True)
class Planned:
    """One way to change a cluster: replicas to copy, partitions whose first replica changes, and
    the fewest and most replicas and leaders of a broker afterwards."""

    copies: int
    leaders_changed: int
    replicas: tuple[int, int]
    leaders: tuple[int, int]


@dataclass(frozen=True)
class Compared:
    """A change of the fleet, the least copies that it takes, our plan and that of Kafka's tool."""

    change: str
    least: int
    ours: Planned
    kafka: Planned


@dataclass(frozen=True)
class _Change:
    name: str
    brokers: tuple[str, ...]
    edit: Mapping[str, Any]
    crowded: bool = False


_SIX = ("1", "2", "3", "4", "5", "6")
CHANGES = (
    _Change("nothing", _SIX, {}),
    _Change("broker 7 joins", (*_SIX, JOINING), {}),
    _Change("broker 4 is lost", ("1", "2", "3", "5", "6"), {DEAD: "dead"}),
    _Change("broker 2 is drained", ("1", "3", "4", "5", "6"), {DRAINED: "draining"}),
    _Change("topic in one rack", _SIX, {}, crowded=True),
)


def measure(extent: Extent, scratch: Path, tell: Callable[[str], None]) -> Iterator[Compared]:
    """Compare every change. Raises BenchmarkFailed."""
    tell("seven brokers start")
    with Cluster(scratch, RACKS) as cluster:
        _create_topics(cluster.bootstrap, extent)
        imported = ("kafka", "import", "--bootstrap", cluster.bootstrap, "--no-internal")
        document = orjson.loads(_placer(b"", *imported, "--output", "json"))
        for change in CHANGES:
            tell(change.name)
            yield _compare(change, document, cluster.bootstrap, scratch)


def _create_topics(bootstrap: str, extent: Extent) -> None:
    """Create the topics as `placer place` puts them, and one all of whose replicas are crowded."""
    nodes = [{"id": n, "location": f"/{rack}"} for n, rack in zip(_SIX, RACKS, strict=False)]
    asked = {
        "shards": extent.partitions,
        "replication_factor": REPLICATION_FACTOR,
        "policy": {"strategy": "spread", "rules": [{"even": "rack"}]},
    }
    streams = [{"stream": f"topic-{number:02}", **asked} for number in range(extent.topics)]
    document = {"levels": ["rack"], "nodes": nodes, "streams": streams}
    answer = orjson.loads(_placer(orjson.dumps(document), "place", "-", "--output", "json"))
    if not all(each["replicas"] for each in answer["decisions"]):
        raise BenchmarkFailed(f"not placed: {answer['decisions'][0]['reasons']}")
    made = [
        _new_topic(each["stream"], [[*map(int, held)] for held in each["replicas"]])
        for each in answer["decisions"]
    ]
    crowded = [[1, 2] if number % 2 else [2, 1] for number in range(CROWDED_PARTITIONS)]
    made.append(_new_topic(CROWDED, crowded))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(made).values():
        future.result(60)


def _new_topic(name: str, lists: list[list[int]]) -> NewTopic:
    return NewTopic(name, len(lists), replica_assignment=lists)


def _compare(change: _Change, document: Document, bootstrap: str, scratch: Path) -> Compared:
    streams = [s for s in document["streams"] if (s["stream"] == CROWDED) is change.crowded]
    kept = {*change.brokers, *change.edit}
    nodes = [
        node | ({"status": change.edit[node["id"]]} if node["id"] in change.edit else {})
        for node in document["nodes"]
        if node["id"] in kept
    ]
    before: Lists = {
        (stream["stream"], number): held
        for stream in streams
        for number, held in enumerate(stream["replicas"])
    }
    asked = orjson.dumps(document | {"nodes": nodes, "streams": streams})
    answer = orjson.loads(_placer(asked, "plan", "-", "--until-balanced", "--output", "json"))
    after: Lists = {
        (name, number): held
        for name, lists in answer["final"]["replicas"].items()
        for number, held in enumerate(lists)
    }
    ours = _planned(before, after, change.brokers, answer["impact"]["copies"])
    theirs = _generated([s["stream"] for s in streams], change.brokers, bootstrap, scratch)
    kafka = _planned(before, theirs, change.brokers, _count_copies(before, theirs))
    return Compared(change.name, answer["lower_bound"], ours, kafka)


def _generated(
    topics: Sequence[str], brokers: Sequence[str], bootstrap: str, scratch: Path
) -> Lists:
    """Return the proposal of Kafka's tool."""
    file = scratch / "topics.json"
    wanted = {"topics": [{"topic": topic} for topic in topics], "version": 1}
    file.write_bytes(orjson.dumps(wanted))
    words = ("--topics-to-move-json-file", str(file), "--broker-list", ",".join(brokers))
    _, proposed = printed_reassignments(run_tool(REASSIGN, bootstrap, *words, "--generate"))
    return {key: listed.nodes for key, listed in parse_reassignment(proposed).items()}


def _planned(before: Lists, after: Lists, brokers: Collection[str], copies: int) -> Planned:
    held = Counter(dict.fromkeys(brokers, 0))
    held.update(broker for nodes in after.values() for broker in nodes)
    led = Counter(dict.fromkeys(brokers, 0))
    led.update(nodes[0] for nodes in after.values())
    changed = sum(nodes[0] != after[key][0] for key, nodes in before.items())
    return Planned(
        copies,
        changed,
        (min(held.values()), max(held.values())),
        (min(led.values()), max(led.values())),
    )


def _count_copies(before: Lists, after: Lists) -> int:
    return sum(len({*nodes} - {*before[key]}) for key, nodes in after.items())


def _placer(given: bytes, *words: str) -> bytes:
    command = [sys.executable, "-m", "streaming.cli", *words]
    done = subprocess.run(command, input=given, capture_output=True, check=False)
    if done.returncode > 1:
        raise BenchmarkFailed(f"placer {words[0]} ended with {done.returncode}: {done.stderr!r}")
    return done.stdout


def show(console: Console, extent: Extent, found: Sequence[Compared]) -> None:
    """Print the table."""
    table = Table(title=f"Copies on a Kafka cluster, {extent.told}")
    table.add_column("change")
    table.add_column("by")
    for column in ("copies", "of least", "new leaders", "held", "led"):
        table.add_column(column, justify="right")
    for each in found:
        for name, change, planned in (
            ("placer", each.change, each.ours),
            ("--generate", "", each.kafka),
        ):
            times = f"{planned.copies / each.least:.2f}" if each.least else "-"
            counts = (str(planned.copies), times, str(planned.leaders_changed))
            table.add_row(change, name, *counts, _range(planned.replicas), _range(planned.leaders))
    show_table(console, table)
    console.print("held, led: replicas and leaders of a broker, fewest and most")


def _range(bounds: tuple[int, int]) -> str:
    low, high = bounds
    return str(low) if low == high else f"{low}..{high}"
