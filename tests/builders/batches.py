"""Micro-batches without Spark and without a broker, for tests of the driver's half.

`Driver` stands where the query does: it packs records, has the operator judge them, and hands the
payloads to a BatchApplier whose outbox keeps every transaction in memory. It can start again from
what any of the transactions left, as the application does from the topics.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from placement.liveness import Clock, Timers
from placement.load_reports import LoadBands
from placement.model import Configuration
from schemas.envelope import type_name
from schemas.outputs import OUTPUTS
from schemas.topics import (
    CATALOGUE,
    COMMITS,
    DEAD_LETTERS,
    DECIDING_TOPICS,
    INPUT_TOPICS,
    STATE_TOPICS,
)
from streaming.codec import OutRecord, RawRecord
from streaming.ingest import (
    LoadFilter,
    LoadPacking,
    NodeLifecycle,
    initial_liveness_tables,
    initial_node_loads,
    make_packing_plan,
)
from streaming.ingest.load_reports import pack_loads
from streaming.ingest.source import pack
from streaming.locations import Locator
from streaming.observability import Observer
from streaming.pipeline import BatchApplier
from streaming.pipeline.load_flow import known_loads
from streaming.recovery import Recovered, digest_by_marker, rebuild
from streaming.recovery.ignored import Ignored
from tests.builders.kafka_rows import PREFIX, arrow

CELL = "main"
TIMERS = Timers(suspect_after_ms=2_000, dead_after_ms=4_000)
BANDS = LoadBands()
OUTPUTS_COUNTED = {topic.name: 1 for topic in CATALOGUE if topic.direction == "out"}

Commit = list[OutRecord]


class KeptOutbox:
    """Keeps what would have been committed, one list of records per transaction."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []

    def commit(self, records: Iterable[OutRecord]) -> None:
        self.commits.append(list(records))


class Driver:
    """One run of the application over the transactions of earlier ones."""

    def __init__(
        self,
        earlier: Iterable[Commit] = (),
        timers: Timers = TIMERS,
        configuration: Configuration | None = None,
        locator: Locator | None = None,
        recovered: Recovered | None = None,
        observer: Observer | None = None,
    ) -> None:
        """`recovered`: where it goes on instead of what a start would find."""
        self._layout = make_packing_plan(PREFIX, 1, timers)
        recovered = recovered or recover(earlier, configuration)
        self.positions = {topic: dict(at) for topic, at in recovered.positions.items()}
        self.outbox = KeptOutbox()
        self.applier = BatchApplier(
            recovered,
            self.outbox,  # type: ignore[arg-type]
            CELL,
            OUTPUTS_COUNTED,
            observer=observer,
            locator=locator,
        )
        tables = initial_liveness_tables(recovered.nodes, recovered.clocks, timers, 1)
        self._operator = TwsTester(
            NodeLifecycle(timers),
            initialStateRow=[(0, Row(topology_shard=0, table=blob)) for _, blob in tables],
        )
        names = frozenset(each.name for each in recovered.configuration.resources)
        self._load_layout = LoadPacking(names, 1, BANDS)
        capacities = {view.node_id: view.attributes.capacities or () for view in recovered.nodes}
        known = initial_node_loads(
            known_loads(recovered), capacities, BANDS, 1, recovered.reconciler.now
        )
        self._load_operator = TwsTester(
            LoadFilter(BANDS),
            initialStateRow=[(0, Row(load_shard=0, node=n, loads=blob)) for _, n, blob in known],
        )
        self.applier.take_over()

    @property
    def commits(self) -> list[Commit]:
        """The transactions of this run, the first being that of its take-over."""
        return self.outbox.commits

    def filter(self, *partitions: Sequence[RawRecord]) -> list[bytes]:
        """One batch of the query that reads loads; returns its payloads."""
        rows = [
            Row(**row)
            for records in partitions
            for made in pack_loads(self._load_layout, iter([arrow(records)]))
            for row in made.to_pylist()
        ]
        return [row.payload for row in self._load_operator.test(0, rows)]

    def batch(
        self,
        *partitions: Sequence[RawRecord],
        caught_up: bool = True,
        loads: Sequence[bytes] = (),
    ) -> list[Commit]:
        """One micro-batch with what is read of each partition, and `loads` that were filtered
        meanwhile; returns its transactions."""
        rows = [
            Row(**row)
            for records in partitions
            for made in pack(self._layout, iter([arrow(records)]))
            for row in made.to_pylist()
        ]
        before = len(self.commits)
        answers = self._operator.test(0, rows)
        payloads = [*(row.payload for row in answers), *loads]
        made_commits = self.applier.apply(payloads, caught_up)
        assert made_commits == len(self.commits) - before
        return self.commits[before:]


def recover(commits: Iterable[Commit], configuration: Configuration | None = None) -> Recovered:
    """What a start finds in the topics after these transactions; the digest is proven."""
    latest: dict[str, dict[bytes, bytes]] = {topic: {} for topic in (*STATE_TOPICS, COMMITS)}
    for record in (record for commit in commits for record in commit):
        key = record.key or b""
        if record.topic in latest and record.value is None:
            latest[record.topic].pop(key, None)
        elif record.topic in latest:
            latest[record.topic][key] = record.value or b""
    marked = latest[COMMITS].get(CELL.encode())
    found = None if marked is None else orjson.loads(marked)
    configuration = configuration or Configuration(cell=CELL)
    reconciler, nodes, loads = rebuild(configuration, latest, found["now"] if found else 0)
    positions = {
        topic: {
            int(p): offset for p, offset in (found["positions"][topic] if found else {}).items()
        }
        for topic in (INPUT_TOPICS if configuration.resources else DECIDING_TOPICS)
    }
    if found is None:
        return Recovered(configuration, reconciler, nodes, positions, {}, 0, 0, 0, 0, loads=loads)
    assert digest_by_marker(reconciler, found) == found["digest"]
    clocks = {int(p): Clock(c["clock_ms"], c["append_ms"]) for p, c in found["clocks"].items()}
    sequence, writer_epoch = found["sequence"], found["writer_epoch"]
    ignored = Ignored.parse(found.get("ignored", {}))
    written = (clocks, sequence, writer_epoch, found["now"], 0)
    return Recovered(
        configuration, reconciler, nodes, positions, *written, ignored=ignored, loads=loads
    )


def of_topic(commits: Iterable[Commit], topic: str) -> list[OutRecord]:
    """All records of a topic, in order."""
    return [record for commit in commits for record in commit if record.topic == topic]


def bodies(commits: Iterable[Commit], topic: str) -> list[dict[str, Any]]:
    """The values of a topic's records; tombstones are left out."""
    return [orjson.loads(r.value) for r in of_topic(commits, topic) if r.value is not None]


def marker(commit: Commit) -> dict[str, Any]:
    """The commit marker, which every transaction ends with."""
    record = commit[-1]
    assert record.topic == "commits.v1"
    body: dict[str, Any] = orjson.loads(record.value or b"")
    return body


def errors(letter: OutRecord) -> Mapping[str, str]:
    """What a dead letter says of itself, by the names behind their common prefix."""
    assert letter.topic == DEAD_LETTERS
    start = "__placement.errors."
    return {
        name.removeprefix(start): (content or b"").decode()
        for name, content in letter.headers
        if name.startswith(start)
    }


def check_contract(commits: Iterable[Commit]) -> None:
    """Hold every record to its model."""
    for record in (record for commit in commits for record in commit):
        if record.value is None or record.topic == DEAD_LETTERS:
            continue
        type_ = dict(record.headers)["ce_type"]
        message = next(name for name in OUTPUTS if type_name(name).encode() == type_)
        OUTPUTS[message].model_validate_json(record.value)
