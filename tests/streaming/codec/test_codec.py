"""The codec: every record of the core through the wire and back, and what the wire promises."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.liveness import Statement, Unregistration, Verdict
from placement.model import (
    SEEN_MAX,
    AckKind,
    Alert,
    AlertKind,
    Answer,
    AnswerOutcome,
    Assignment,
    Cause,
    Code,
    Configuration,
    Decision,
    Guard,
    HoldDown,
    Liveness,
    Lives,
    Memory,
    Move,
    MoveAcked,
    MoveKind,
    MoveState,
    NodeAttributes,
    NodeChanged,
    NodeView,
    Outcome,
    Pending,
    PendingLife,
    Reason,
    RefusedLife,
    ReplicasObserved,
    Reporting,
    StreamCreated,
    StreamDropped,
    StreamSpec,
    Transition,
    Violation,
    ViolationClass,
)
from placement.reconciler import Reconciler
from schemas import inputs, limits
from schemas.alerts import Alert as AlertMessage
from schemas.alerts import RequestAnswered
from schemas.bookkeeping import Memory as MemoryMessage
from schemas.envelope import Envelope, Refusal, type_name, validate
from schemas.node_view import NodeView as NodeViewMessage
from schemas.outputs import OUTPUTS
from schemas.topics import BY_NAME
from streaming.codec import inputs as codec
from streaming.codec.assignments import assignment_value, parse_assignment
from streaming.codec.records import (
    OutRecord,
    alert_record,
    answer_record,
    assignment_record,
    decision_record,
    log_record,
    memory_record,
    move_record,
    node_record,
    parse_decision,
    parse_memory,
    parse_move,
    parse_node,
    parse_violations,
    violations_record,
)
from streaming.codec.values import (
    fields_of,
    reason_body,
)
from streaming.ingest.source import _parse_record
from tests.builders.kafka_rows import LIFE, raw

CELL = "main"

ids = st.from_regex(limits.ID_PATTERN.replace("249", "12"), fullmatch=True)
numbers = st.integers(0, 2**40)
counts = st.integers(0, 1_000)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
names = ids | texts
locations = st.sampled_from(["", "/eu", "/eu/az1/r7", "/" + "x" * 128])
tags = st.dictionaries(ids, st.text("abz ~=", min_size=1, max_size=5), max_size=3).map(
    lambda pairs: tuple(sorted(pairs.items()))
)
reasons = st.builds(
    Reason,
    st.sampled_from(Code),
    texts,
    st.none() | counts,
    st.none() | counts,
    st.none() | st.sampled_from(["az", "tag:disk"]),
    st.lists(locations, max_size=SEEN_MAX).map(tuple),
    st.none() | st.sampled_from(["at_most 1 per az"]),
)
reason_lists = st.lists(reasons, max_size=2).map(tuple)
policies = st.dictionaries(
    texts, st.recursive(st.none() | texts | numbers | st.booleans(), st.lists, max_leaves=4)
)
specs = st.builds(
    StreamSpec, ids, counts, counts, policies, st.none() | texts, st.sampled_from(["one", 2])
)
decisions = st.builds(
    Decision, ids, numbers, numbers, st.sampled_from(Outcome), specs, st.just("0a"), texts, counts,
    counts, reason_lists, reason_lists, numbers,
)  # fmt: skip
node_lists = st.lists(ids, max_size=4).map(tuple)
busy = st.builds(
    Assignment, ids, counts, numbers, node_lists, node_lists, node_lists, st.none() | ids, numbers,
    st.none() | node_lists, st.none() | ids,
)  # fmt: skip
at_rest = st.builds(
    Assignment, ids, counts, numbers, node_lists, st.just(()), st.just(()), st.none(), numbers,
    st.none(), st.none() | ids,
)  # fmt: skip
assignments = at_rest | busy
moves = st.builds(
    Move, ids, st.sampled_from(MoveKind), ids, counts, counts, st.none() | ids, ids, numbers,
    st.sampled_from(MoveState), st.sampled_from(Cause), reasons, numbers, numbers, st.none() | ids,
    st.none() | ids, st.none() | numbers, *[st.none() | st.integers(1, 2**40)] * 5,
    st.none() | ids, st.none() | ids, st.none() | numbers,
)  # fmt: skip
attributes = st.builds(
    NodeAttributes, locations, tags, st.none() | st.just("host.example:9092"),
    st.floats(limits.WEIGHT_MIN, limits.WEIGHT_MAX), st.none() | counts, st.booleans(),
)  # fmt: skip
pending_lives = st.builds(
    PendingLife, ids, numbers, st.sampled_from(["", "0f"]), numbers, numbers, attributes,
    st.booleans(),
)  # fmt: skip
refused_lives = st.builds(RefusedLife, ids, numbers, reasons)
earlier_lives = st.lists(ids, max_size=3).map(tuple)
lives = st.builds(Lives, st.none() | pending_lives, st.none() | refused_lives, earlier_lives)
views = st.builds(
    NodeView, ids, ids, numbers, st.sampled_from(["", "0f"]), numbers, attributes,
    st.sampled_from(Liveness), numbers, lives=lives,
)  # fmt: skip
violations = st.builds(
    Violation, st.just("s"), st.just(3), texts, st.sampled_from(["required", "preferred"]), counts,
    counts, st.sampled_from(ViolationClass), reasons, numbers, st.none() | texts,
    st.none() | locations,
)  # fmt: skip


def body_of(record: OutRecord) -> dict[str, Any]:
    """The record's JSON, having checked what every record on a topic promises."""
    assert record.value is not None
    assert record.key is not None
    headers = dict(record.headers)
    message = next(name for name in OUTPUTS if type_name(name).encode() == headers["ce_type"])
    assert message in BY_NAME[record.topic].messages
    model = OUTPUTS[message].model_validate_json(record.value)
    assert record.key.decode() == model.record_key() == (headers["ce_subject"] or b"").decode()
    body: dict[str, Any] = orjson.loads(record.value)
    extra = set(body) - {info.alias or name for name, info in type(model).model_fields.items()}
    assert not extra, "fields that the contract does not name"
    return body


def identity(record: OutRecord) -> bytes:
    found = dict(record.headers)["ce_id"]
    assert found
    return found


# There and back


@given(decisions)
def test_decisions(decision: Decision) -> None:
    assert parse_decision(body_of(decision_record(decision, CELL))) == decision


@given(assignments)
def test_assignments(assignment: Assignment) -> None:
    record = assignment_record(assignment, CELL)
    assert parse_assignment(body_of(record)) == assignment


@given(names, st.lists(names, max_size=4).map(tuple), counts, numbers)
def test_an_assignment_at_rest_is_written_as_any_other(
    stream: str, replicas: tuple[str, ...], shard: int, epoch: int
) -> None:
    assignment = Assignment(stream, shard, epoch, replicas, (), (), None, 7)
    assert assignment_value(assignment) == orjson.dumps(fields_of(assignment))


@given(moves)
def test_moves(move: Move) -> None:
    record = move_record(move, False, CELL)
    assert parse_move(body_of(record)) == move
    assert record.route == f"{move.stream}/{move.shard}"
    gone = move_record(move, True, CELL)
    assert (gone.key, gone.value, gone.route) == (record.key, None, record.route)


@given(views)
def test_nodes(view: NodeView) -> None:
    record = node_record(view.node_id, view, CELL, 5, 1)
    assert parse_node(body_of(record)) == view
    gone = node_record(view.node_id, None, CELL, 5, 1)
    assert (gone.key, gone.value) == (record.key, None)


def test_memory_and_alerts() -> None:
    kept = memory_record("hold", "/a", MEMORY, CELL, 5, 9)
    assert (kept.key, parse_memory(body_of(kept))) == (b"hold//a", MEMORY)
    MemoryMessage.model_validate(body_of(kept))
    told = alert_record(ALERT, 0, CELL, 9)
    read = AlertMessage.model_validate(body_of(told))
    assert (read.subject, read.severity) == ("/a", "critical")
    answer = answer_record(ANSWER, 0, CELL, 9)
    assert (answer.topic, answer.key) == ("answers.v1", b"n1")
    assert RequestAnswered.model_validate(body_of(answer)).request_id == "r1"
    assert told.key == b"HOLD"


@given(st.lists(violations, min_size=1, max_size=3).map(tuple))
def test_violations(found: tuple[Violation, ...]) -> None:
    record = violations_record("s", 3, found, CELL, 5, 1)
    assert parse_violations(body_of(record)) == found
    healed = violations_record("s", 3, (), CELL, 6, 2)
    assert (healed.key, healed.value) == (record.key, None)


def test_a_reason_names_only_so_many_domains() -> None:
    """Every record has to stay below the broker's limit, however large the fleet."""
    seen = tuple(f"/z{number}" for number in range(1_000))
    reason = Reason(Code.DOMAINS_TOO_FEW, "m", seen=seen)
    assert reason_body(reason)["seen"] == seen[:SEEN_MAX]


# Identity


ASSIGNMENT = Assignment("s", 0, 4, ("n1", "n2"), (), (), None, 1_000)
DECISION = Decision(
    "s", 7, 1, Outcome.PLACED, StreamSpec("s", 1, 2, {}), "0a", "spread", 1, 0, (), (), 1_000
)
MOVE = Move(
    "m1", MoveKind.REPLACE, "s", 0, 1, "n2", "n3", 4, MoveState.ISSUED, "repair",
    Reason(Code.NODE_DEAD, "n2 is dead"), 9_000, 1_000,
)  # fmt: skip
VIEW = NodeView("n1", "a", 3, "0f", 2, NodeAttributes("/z1"), Liveness.UP, 1_000)
DOUBTFUL = replace(
    VIEW,
    guard=Guard.QUARANTINED,
    transitions=(Transition(900, Liveness.SUSPECT), Transition(1_000, Liveness.UP)),
    hold_down=HoldDown(1_000, 2_000),
    reporting=Reporting(external=True, sequence=4, said="reported up"),
    claimed="/z2",
    pending=Pending("/z2", (("disk", "ssd"),), "0a", "/z1"),
    quarantine=Reason(Code.TYPO_SUSPECTED, "z2 is spelt nearly as z1", seen=("/z1",)),
)
MEMORY = Memory("hold", "/a", {"since": 1_000, "nodes": ["n1"]}, 1_000)
ALERT = Alert(AlertKind.HOLD, "/a", 1_000, MOVE.reason, {"nodes": 3})
ANSWER = Answer("r1", "drain", "n1", AnswerOutcome.REFUSED, 1_000, MOVE.reason, 1, 2, "ab")
MISSING = Violation("s", 0, "replicas", "required", 1, 2, ViolationClass.FIXABLE, MOVE.reason, 1)


def records(cell: str = CELL) -> dict[str, OutRecord]:
    """One record of every kind, and its successors: what must differ from each other."""
    body = {"writer_epoch": 1, "sequence": 9, "chunk": 0}
    return {
        "assignment": assignment_record(ASSIGNMENT, cell),
        "next epoch": assignment_record(ASSIGNMENT._replace(epoch=5), cell),
        "next shard": assignment_record(ASSIGNMENT._replace(shard=1), cell),
        "decision": decision_record(DECISION, cell),
        "next revision": decision_record(replace(DECISION, revision=2), cell),
        "next sequence": decision_record(replace(DECISION, sequence=8, revision=2), cell),
        "move": move_record(MOVE, False, cell),
        "accepted": move_record(MOVE._replace(state=MoveState.ACCEPTED), False, cell),
        "completed": move_record(MOVE._replace(state=MoveState.COMPLETED), False, cell),
        "move forgotten": move_record(MOVE, True, cell),
        "node": node_record("n1", VIEW, cell, 5, 9),
        "next view": node_record("n1", replace(VIEW, revision=3), cell, 5, 9),
        "back with the same revision": node_record("n1", replace(VIEW, sequence=5), cell, 5, 9),
        "node forgotten": node_record("n1", None, cell, 5, 9),
        "forgotten again": node_record("n1", None, cell, 5, 10),
        "violations": violations_record("s", 0, (MISSING,), cell, 5, 9),
        "violations later": violations_record("s", 0, (MISSING,), cell, 5, 10),
        "healed": violations_record("s", 0, (), cell, 5, 9),
        "memory": memory_record("hold", "/a", MEMORY, cell, 5, 9),
        "memory later": memory_record("hold", "/a", MEMORY, cell, 5, 10),
        "forgotten": memory_record("hold", "/a", None, cell, 5, 9),
        "alert": alert_record(ALERT, 0, cell, 9),
        "next alert": alert_record(ALERT, 1, cell, 9),
        "answer": answer_record(ANSWER, 0, cell, 9),
        "next answer": answer_record(ANSWER, 1, cell, 9),
        "marker": log_record("CommitMarker", "commits.v1", cell, body, 5),
        "journal": log_record("JournalEntry", "journal.v1", cell, body, 5),
        "next chunk": log_record("JournalEntry", "journal.v1", cell, body | {"chunk": 1}, 5),
        "next commit": log_record("CommitMarker", "commits.v1", cell, body | {"sequence": 10}, 5),
        "next writer": log_record(
            "CommitMarker", "commits.v1", cell, body | {"writer_epoch": 2}, 5
        ),
    }


def test_ids_are_equal_for_equal_content_and_differ_otherwise() -> None:
    first, again, other = records(), records(), records("other")
    assert first == again, "a retry writes the same bytes"
    everything = [identity(each) for each in (*first.values(), *other.values())]
    assert len(set(everything)) == len(everything)
    assert all(len(each) == 32 for each in everything)


def test_all_that_is_known_of_a_node_comes_back() -> None:
    record = node_record("n1", DOUBTFUL, CELL, 5, 9)
    NodeViewMessage.model_validate_json(record.value or b"")
    assert parse_node(orjson.loads(record.value or b"")) == DOUBTFUL


def test_a_node_that_left_and_came_back_has_ids_of_its_own() -> None:
    """Equal ids have equal bodies; a forgotten node begins again with revision 1."""
    reconciler = Reconciler(Configuration())
    said = NodeAttributes("/z1")
    up, gone = Liveness.UP, Liveness.UNREGISTERED
    seen: dict[bytes, bytes | None] = {}
    for commit, event in enumerate(
        [
            NodeChanged(10, "n1", "a", 1, up, said, body_hash="0a"),
            NodeChanged(20, "n1", "a", 2, gone),
            NodeChanged(30, "n1", "a", 3, up, said, body_hash="0a"),
            NodeChanged(40, "n1", "a", 4, gone),
            # After a restart the operator does not know the node either.
            NodeChanged(50, "n1", "a", 1, up, said, body_hash="0a"),
        ]
    ):
        for node_id, view in reconciler.apply([event], event.at).topology.items():
            record = node_record(node_id, view, CELL, event.at, commit)
            assert seen.setdefault(identity(record), record.value) == record.value
    assert len(seen) == 5


# Wire to core


def message(name: str, body: dict[str, Any]) -> inputs.InputMessage:
    model = inputs.INPUTS[name].model_validate(body)
    topic = next(topic.name for topic in BY_NAME.values() if name in topic.messages)
    found = validate(Envelope(name, 1, None, body), model.record_key().encode(), topic)
    assert not isinstance(found, Refusal)
    return found


STREAM = {"stream": "s", "sequence": 3, "shards": 2, "replication_factor": 3}
ACK = {"stream": "s", "shard": 1}


def test_a_stream_creation() -> None:
    asked = STREAM | {"policy": {"strategy": "spread"}, "quorum": 2, "replicas": [["n1"], ["n2"]]}
    made = codec.event_of_message(message("StreamCreated", asked), 99)
    assert isinstance(made, StreamCreated)
    assert made == StreamCreated(
        99, "s", 3, 2, 3, None, {"strategy": "spread"}, 2, made.body_hash, (("n1",), ("n2",))
    )
    other = codec.event_of_message(message("StreamCreated", asked | {"shards": 4}), 99)
    assert isinstance(other, StreamCreated)
    assert other.body_hash != made.body_hash
    later = codec.event_of_message(message("StreamCreated", dict(reversed(asked.items()))), 100)
    assert isinstance(later, StreamCreated)
    assert later.body_hash == made.body_hash, "a repeat is known by its body, not its time"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("MoveAccepted", AckKind.ACCEPTED),
        ("MoveProgressed", AckKind.PROGRESSED),
        ("MoveCompleted", AckKind.COMPLETED),
        ("MoveFailed", AckKind.FAILED),
        ("MoveStopped", AckKind.STOPPED),
    ],
)
def test_acknowledgements(name: str, kind: AckKind) -> None:
    assert codec.event_of_message(
        message(name, ACK | {"move_id": "m1", "reason": "r"}), 9
    ) == MoveAcked(9, kind, "m1", "s", 1, "r")
    assert codec.event_of_message(message(name, ACK), 9) == MoveAcked(9, kind, None, "s", 1)


def test_a_uid_is_part_of_a_body_that_has_one() -> None:
    """Of others the hash is what it was before there were any: a repeat is known by it."""
    asked = {"stream": "s", "sequence": 1, "shards": 1, "replication_factor": 1}
    bare = codec.event_of_message(message("StreamCreated", asked), 9)
    named = codec.event_of_message(message("StreamCreated", asked | {"uid": "u1"}), 9)
    dropped = codec.event_of_message(message("StreamDropped", asked | {"uid": "u1"}), 9)
    assert isinstance(bare, StreamCreated)
    assert isinstance(named, StreamCreated)
    assert bare.body_hash == "4d363a622717afbc9ec3c564332b36a0"
    assert isinstance(dropped, StreamDropped)
    assert (bare.uid, named.uid, dropped.uid) == (None, "u1", "u1")
    assert named.body_hash != bare.body_hash


def test_an_observation() -> None:
    said = {"stream": "s", "shard": 1, "epoch": 4, "replicas": ["n1", "n2"], "in_sync": ["n1"]}
    assert codec.event_of_message(message("ReplicasObserved", said), 9) == ReplicasObserved(
        9, "s", 1, 4, ("n1", "n2"), None, ("n1",)
    )


def test_a_stream_whose_lists_follow() -> None:
    asked = {"stream": "s", "sequence": 1, "shards": 9, "replication_factor": 2}
    bare = codec.event_of_message(message("StreamCreated", asked), 9)
    made = codec.event_of_message(message("StreamCreated", asked | {"adopt": "observed"}), 9)
    assert isinstance(bare, StreamCreated)
    assert isinstance(made, StreamCreated)
    assert (bare.adopt, made.adopt) == (None, "observed")
    assert made.body_hash != bare.body_hash
    said = {"stream": "s", "shard": 1, "epoch": 0, "replicas": ["n1"], "following": [["n2"], []]}
    assert codec.event_of_message(message("ReplicasObserved", said), 9) == ReplicasObserved(
        9, "s", 1, 0, ("n1",), following=(("n2",), ())
    )


@pytest.mark.parametrize(
    ("kind", "fields", "why"),
    [
        ("StreamCreated", {"adopt": "observed", "replicas": [["n1"]]}, "exclude each other"),
        ("StreamCreated", {"adopt": "given"}, "adopt"),
        ("ReplicasObserved", {"following": [["n1"], ["n2", "n2"]]}, "list 1: each node once"),
        ("ReplicasObserved", {"following": [], "in_sync": ["n1"]}, "following excludes"),
        ("ReplicasObserved", {"following": [["n1"]], "leader": "n1"}, "following excludes"),
    ],
)
def test_lists_that_contradict_each_other(kind: str, fields: Mapping[str, Any], why: str) -> None:
    asked = {"stream": "s", "sequence": 1, "shards": 9, "replication_factor": 2}
    seen = {"stream": "s", "shard": 1, "epoch": 0, "replicas": ["n1"]}
    whole = (asked if kind == "StreamCreated" else seen) | dict(fields)
    with pytest.raises(ValueError, match=why):
        message(kind, whole)


def test_progress_with_its_bytes() -> None:
    said = ACK | {"bytes_done": 3, "bytes_total": 9}
    assert codec.event_of_message(message("MoveProgressed", said), 9) == MoveAcked(
        9, AckKind.PROGRESSED, None, "s", 1, bytes_done=3, bytes_total=9
    )


def verdict(name: str, fields: Mapping[str, Any]) -> Verdict:
    said = _parse_record(raw(name, "n1", LIFE | dict(fields)), 0, Counter())
    assert isinstance(said, Statement)
    gone = isinstance(said.body, Unregistration)
    liveness = Liveness.UNREGISTERED if gone else Liveness.UP
    return Verdict(50, 3, "n1", "a", 7, liveness, said)


def test_what_a_node_said_reaches_the_core() -> None:
    full = {
        "location": "/eu/az1",
        "tags": {"b": "2", "a": "1"},
        "host": "h",
        "weight": 2.0,
        "capacity": 9,
        "leader": False,
    }
    event = codec.event_of_verdict(verdict("NodeRegistered", full))
    told = NodeAttributes("/eu/az1", (("a", "1"), ("b", "2")), "h", 2.0, 9, False)
    assert event == NodeChanged(50, "n1", "a", 7, Liveness.UP, told, body_hash=event.body_hash)
    assert event.body_hash
    bare = codec.event_of_verdict(verdict("NodeRegistered", {}))
    assert bare.attributes == NodeAttributes()
    assert bare.body_hash != event.body_hash
    moved = codec.event_of_verdict(verdict("NodeLocalityChanged", {"location": "/z2"}))
    assert (moved.attributes, moved.location, moved.tags) == (None, "/z2", None)
    retagged = {"location": "/z2", "tags": {}}
    assert codec.event_of_verdict(verdict("NodeLocalityChanged", retagged)).tags == ()
    gone = codec.event_of_verdict(verdict("NodeUnregistered", {}))
    assert (gone.attributes, gone.location, gone.liveness) == (None, None, Liveness.UNREGISTERED)
    silent = codec.event_of_verdict(Verdict(50, 3, "n1", "a", 7, Liveness.SUSPECT))
    assert silent == NodeChanged(50, "n1", "a", 7, Liveness.SUSPECT)
