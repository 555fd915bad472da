"""Makes a read model of a cluster file, so that the same pages show it: without Kafka.

Document ──▶ check, node views ──▶ records as a reconciler publishes them ──▶ ReadModel
"""

from placement.model import Assignment, Configuration, Decision, Outcome, Violation
from placement.reconciler import Reconciler
from schemas.cluster import ClusterStream
from schemas.topics import COMMITS, TOPOLOGY
from streaming import codec
from streaming.brokers import RecordBytes
from streaming.codec import OutRecord
from streaming.offline import CheckResult, Document
from streaming.read_model import ReadModel, model_of_records

CELL = "file"


def make_file_model(document: Document, check: CheckResult, now_ms: int) -> ReadModel:
    """The model of a file: its nodes, its lists of replicas as they stand, the rules they break.

    `check`: of the document; streams that it refuses have no replicas here.
    """
    records = [
        *_node_records(document, now_ms),
        *_stream_records(document, check, now_ms),
        *_violation_records(check, now_ms),
        _marker(now_ms),
    ]
    read = [
        RecordBytes(each.topic, 0, number, each.key, each.value)
        for number, each in enumerate(records)
    ]
    return model_of_records(CELL, document.cluster.levels, read)


def _node_records(document: Document, now_ms: int) -> list[OutRecord]:
    """The views that a reconciler has of the nodes after the events that the file stands for."""
    events, _ = codec.events_of_cluster(document.cluster)
    reconciler = Reconciler(Configuration(levels=document.cluster.levels))
    ready = reconciler.apply(events, now_ms)
    records = codec.ready_records(ready, CELL, now_ms, 1)
    return [each for each in records if each.topic == TOPOLOGY]


def _stream_records(document: Document, check: CheckResult, now_ms: int) -> list[OutRecord]:
    records: list[OutRecord] = []
    streams = {s.stream: s for s in document.cluster.streams if isinstance(s, ClusterStream)}
    moves = {(move.stream, move.shard): move for move in document.cluster.moves}
    missing = check.missing
    for examined in check.examined:
        spec, stream = examined.spec, streams[examined.spec.stream]
        lists = stream.replicas or ()
        lacking = missing.get(spec.stream, 0)
        decision = Decision(
            stream=spec.stream,
            sequence=0,
            revision=1,
            outcome=Outcome.PARTIAL if lacking else Outcome.PLACED,
            spec=spec,
            body_hash="",
            strategy=examined.policy.strategy,
            shards_placed=sum(bool(nodes) for nodes in lists),
            replicas_missing=lacking,
            reasons=(),
            warnings=(),
            decided_at=now_ms,
        )
        records.append(codec.decision_record(decision, CELL))
        for shard, nodes in enumerate(lists):
            if not nodes:
                continue
            move = moves.get((spec.stream, shard))
            adding = (move.add,) if move is not None and move.add else ()
            removing = (move.remove,) if move is not None and move.remove else ()
            standing = Assignment(
                spec.stream, shard, 0, tuple(nodes), adding, removing, None, now_ms
            )
            records.append(codec.assignment_record(standing, CELL))
    return records


def _violation_records(check: CheckResult, now_ms: int) -> list[OutRecord]:
    """Those of shards; the page of the check has those of whole streams too."""
    by_shard: dict[tuple[str, int], list[Violation]] = {}
    for each in check.diagnosis.violations:
        if each.stream is not None and each.shard is not None:
            by_shard.setdefault((each.stream, each.shard), []).append(each)
    return [
        codec.violations_record(stream, shard, tuple(found), CELL, now_ms, 1)
        for (stream, shard), found in by_shard.items()
    ]


def _marker(now_ms: int) -> OutRecord:
    body = {
        "cell": CELL,
        "sequence": 1,
        "writer_epoch": 0,
        "now": now_ms,
        "positions": {},
        "digest": "",
    }
    return codec.log_record("CommitMarker", COMMITS, CELL, body, now_ms)
