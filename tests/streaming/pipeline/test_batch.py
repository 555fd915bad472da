"""The driver's half of a batch: order, prefixes, dead letters, markers."""

import itertools
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import orjson
import pytest

from placement.liveness import Clock
from schemas.refusals import RefusalCode
from schemas.topics import DEAD_LETTERS, STATE_TOPICS
from streaming.codec import RawRecord
from streaming.pipeline import batch as batch_module
from streaming.pipeline.batch import BatchRefused
from tests.builders.batches import (
    CELL,
    Commit,
    Driver,
    bodies,
    check_contract,
    errors,
    marker,
    of_topic,
)
from tests.builders.kafka_rows import heartbeat, raw, registered, tick


def stream(name: str, offset: int, at: int = 1_000, **asked: Any) -> RawRecord:
    body = {"stream": name, "sequence": 1, "shards": 2, "replication_factor": 2} | asked
    return raw("StreamCreated", name, body, offset, at, "streams.v1")


def ack(name: str, shard: int, offset: int, at: int = 1_000, **told: Any) -> RawRecord:
    body = {"stream": name, "shard": shard} | told
    return raw("MoveAccepted", f"{name}/{shard}", body, offset, at, "acks.v1")


def fleet(size: int, at: int = 1_000) -> list[RawRecord]:
    """Registrations of as many nodes, each in a zone of its own."""
    return [
        registered(f"n{number}", 1, location=f"/z{number}", offset=number, at=at)
        for number in range(size)
    ]


def journaled(commits: Sequence[Commit]) -> list[tuple[int, str]]:
    """(time, name) of all events, in the order in which they were applied."""
    entries = bodies(commits, "journal.v1")
    events = [body for entry in entries for _, body in entry["events"]]
    return [(body["at"], body.get("stream") or body["node_id"]) for body in events]


# Order


def test_events_are_applied_by_append_time_then_topic_partition_offset() -> None:
    first = [stream("a", 0, 30), stream("b", 1, 10), stream("c", 2, 40)]
    other = [stream("d", 5, 20)._replace(partition=1), stream("e", 6, 30)._replace(partition=1)]
    nodes = [registered("n1", 1, at=30), registered("n2", 1, offset=1, at=50)]
    driver = Driver()
    driver.batch(first, nodes, other, [ack("x", 0, 0, 30)])
    assert journaled(driver.commits) == [
        (20, "d"),
        # At one time: acks, nodes, streams; "b" was appended after "a" and is not before it.
        (30, "x"),
        (30, "n1"),
        (30, "a"),
        (10, "b"),
        (30, "e"),
        (40, "c"),
        (50, "n2"),
    ]


def test_the_order_does_not_depend_on_how_the_batch_arrives() -> None:
    partitions = [
        fleet(3),
        [stream("a", 0), stream("b", 1)],
        [stream("c", 0)._replace(partition=1)],
        [ack("a", 0, 0)],
    ]
    orders = {
        tuple(journaled(driver.batch(*given)))
        for given in itertools.permutations(partitions)
        for driver in [Driver()]
    }
    assert len(orders) == 1


def test_silent_nodes_of_one_tick_are_judged_in_the_order_of_their_names() -> None:
    driver = Driver()
    driver.batch(fleet(3), [stream("a", 0)])
    found = driver.batch([tick(3, 2_000), tick(4, 3_000), tick(5, 4_000)])
    assert journaled(found) == [(3_000, "n0"), (3_000, "n1"), (3_000, "n2")]


# Commits


def test_a_small_batch_is_one_transaction_that_ends_with_its_marker() -> None:
    driver = Driver()
    poison = RawRecord("streams.v1", 0, 8, 1_000, b"x", b"no JSON", [])
    (commit,) = driver.batch(fleet(3), [stream("a", 7), poison])
    topics = [record.topic for record in commit]
    assert topics.count("topology.v1") == 3
    assert topics.count("decisions.v1") == 1
    assert topics.count("assignments.v1") == 2
    assert topics[-2:] == ["journal.v1", "commits.v1"]
    assert marker(commit)["positions"] == {
        "nodes.v1": {"0": 3},
        "detector.v1": {},
        "inventory.v1": {},
        "streams.v1": {"0": 9},
        "acks.v1": {},
        "operator.v1": {},
    }
    assert marker(commit)["sequence"] == bodies([commit], "journal.v1")[0]["sequence"] == 2
    check_contract(driver.commits)


def test_taking_over_commits_a_marker_and_the_configuration() -> None:
    first = Driver()
    first.batch(fleet(3), [stream("a", 0)])
    second = Driver(first.commits)
    ((entry, record),) = second.commits
    before, after = marker(first.commits[-1]), marker([record])
    assert after.pop("writer_epoch") == before.pop("writer_epoch") + 1
    assert after.pop("sequence") == after.pop("journal_sequence") == before.pop("sequence") + 1
    del before["journal_sequence"]
    assert after == before
    (told,) = bodies([[entry]], "journal.v1")
    assert (told["events"], told["configuration"]) == ([], after["configuration"])
    check_contract(second.commits)


def test_ticks_alone_commit_every_few_seconds_only() -> None:
    driver = Driver()
    driver.batch([registered("n0", 1, at=1_000)])
    commits = []
    for number in range(1, 41):
        at = 1_000 + number * 500
        beat = heartbeat("n0", number + 1, offset=2 * number - 1, at=at)
        commits += driver.batch([beat, tick(2 * number, at)])
    times = [marker(commit)["now"] for commit in commits]
    assert [len(commit) for commit in commits] == [1] * len(commits), "a marker and nothing else"
    assert times == [6_000, 11_000, 16_000, 21_000]
    assert marker(commits[-1])["positions"]["nodes.v1"] == {"0": 81}
    assert marker(commits[-1])["clocks"] == {"0": {"append_ms": 21_000, "clock_ms": 20_000}}


def test_an_uncommitted_idle_batch_is_read_again_after_a_restart() -> None:
    driver = Driver()
    driver.batch([registered("n0", 1, at=1_000)])
    assert driver.batch([tick(1, 2_000)]) == []
    again = Driver(driver.commits)
    assert again.positions["nodes.v1"] == {0: 1}
    again.batch([tick(1, 2_000), tick(2, 3_000)])


def test_time_never_goes_back() -> None:
    driver = Driver()
    driver.batch([stream("a", 0, at=9_000)])
    (commit,) = driver.batch([stream("b", 1, at=4_000)])
    assert marker(commit)["now"] == 9_000
    assert bodies([commit], "decisions.v1")[0]["decided_at"] == 9_000


def test_only_ticks_of_this_writer_say_how_far_it_is() -> None:
    driver = Driver()
    mine = driver.applier.writer_epoch
    driver.batch([tick(0, 0, number=9, writer_epoch=mine - 1)])
    assert driver.applier.tick_seen == -1
    driver.batch([tick(1, 0, number=3, writer_epoch=mine)])
    driver.batch([tick(2, 0, number=99, writer_epoch=mine - 1)])
    assert driver.applier.tick_seen == 3


def test_ticks_are_awaited_while_silence_or_a_deadline_may_decide() -> None:
    driver = Driver()
    assert not driver.applier.awaits_time, "no node"
    driver.batch(fleet(1))
    assert driver.applier.awaits_time
    assert driver.applier.records_read == 1
    driver.batch([tick(second, at=1_000 * second) for second in range(1, 8)])
    assert not driver.applier.awaits_time, "the node is dead"
    assert driver.applier.records_read == 7
    assert driver.applier.positions["nodes.v1"] == {0: 8}


def test_no_repair_before_the_source_has_caught_up() -> None:
    driver = Driver()
    driver.batch(fleet(3), [stream("a", 0)])
    alive = [heartbeat(f"n{n}", 2, offset=3 + n, at=2_500) for n in (1, 2)]
    ticks = [tick(5 + second, 3_000 + second * 500) for second in range(5)]
    beats = [heartbeat(f"n{n}", 3, offset=10 + n, at=5_000) for n in (1, 2)]
    late = driver.batch([*alive, *ticks, *beats, tick(13, 5_500)], caught_up=False)
    held = driver.commits[-1]
    assert bodies([held], "moves.v1") == []
    assert not bodies([held], "journal.v1")[0]["caught_up"]
    classes = {v["class"] for body in bodies(late, "violations.v1") for v in body["violations"]}
    assert classes == {"deferred"}
    found = driver.batch([tick(14, 5_600)], caught_up=True)
    assert {move["remove"] for move in bodies(found, "moves.v1")} == {"n0"}


# Prefixes


def long_batch() -> list[list[RawRecord]]:
    """A batch with events of every kind, a dead letter, and heartbeats that mean nothing."""
    nodes = fleet(4)
    nodes.append(heartbeat("n1", 2, offset=4, at=1_100))
    nodes.append(RawRecord("nodes.v1", 0, 5, 1_200, b"n1", b"no JSON", []))
    nodes.append(registered("n4", 1, location="/z4", offset=6, at=1_500))
    nodes.append(heartbeat("n4", 2, offset=7, at=1_750))
    streams = [stream(f"s{n}", n, at=1_000 + 100 * n) for n in range(5)]
    streams.append(stream("s0", 5, at=1_550, shards=9))
    streams.append(stream("s9", 6, at=1_600, replication_factor=0))
    return [nodes, streams, [ack("s0", 0, 0, at=1_700), ack("s1", 1, 1, at=1_800)]]


def behind(
    partitions: Sequence[Sequence[RawRecord]], positions: dict[str, dict[int, int]]
) -> list[Any]:
    """What a source that starts at these positions reads of the partitions."""
    rest = [
        [r for r in records if r.offset >= positions[r.topic].get(r.partition, 0)]
        for records in partitions
    ]
    return [records for records in rest if records]


def state_records(commits: Sequence[Commit]) -> list[tuple[str, bytes | None, bytes | None]]:
    kept = (*STATE_TOPICS, DEAD_LETTERS)
    return [(r.topic, r.key, r.value) for commit in commits for r in commit if r.topic in kept]


@pytest.mark.parametrize(("size", "steps"), [(1, 1), (2, 2), (3, 3), (5, 5), (2, 9), (9, 100)])
def test_a_restart_from_any_prefix_applies_exactly_the_rest(
    size: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_module, "PREFIX_EVENTS_MAX", size)
    monkeypatch.setattr(batch_module, "PREFIX_STEPS_MAX", steps)
    partitions = long_batch()
    whole = Driver()
    commits = whole.batch(*partitions)
    check_contract(commits)
    events = len(journaled(commits)) + len(of_topic(commits, DEAD_LETTERS)) - 1
    assert -(-events // steps) <= len(commits) <= -(-events // size), "one commit per prefix"
    for done in range(len(commits) + 1):
        earlier = whole.commits[: 1 + done]
        again = Driver(earlier)
        rest = behind(partitions, again.positions)
        found = again.batch(*rest) if rest else []
        assert state_records(found) == state_records(commits[done:]), f"after prefix {done}"
        assert journaled(found) == journaled(commits[done:])
        last = found[-1] if found else again.commits[-1]
        for name in ("digest", "positions"):
            assert marker(last)[name] == marker(commits[-1])[name]


def test_the_records_of_one_prefix_do_not_depend_on_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Repairs wait for the end of a batch; decisions do not."""
    decided = set()
    for size in (1, 2, 3, 100):
        monkeypatch.setattr(batch_module, "PREFIX_EVENTS_MAX", size)
        made = Driver().batch(*long_batch())
        decided.add(
            tuple((d["stream"], d["outcome"], d["revision"]) for d in bodies(made, "decisions.v1"))
        )
    assert len(decided) == 1


def test_the_verdicts_of_one_tick_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "PREFIX_EVENTS_MAX", 2)
    driver = Driver()
    driver.batch(fleet(5))
    silence = [tick(5, 2_000), tick(6, 3_000)]
    commits = driver.batch(silence, [stream("a", 0, at=3_500), stream("b", 1, at=3_600)])
    assert [len(journaled([commit])) for commit in commits] == [5, 2]


def test_repairs_wait_for_the_last_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "PREFIX_EVENTS_MAX", 1)
    driver = Driver()
    commits = driver.batch(fleet(2), [stream("a", 0), stream("b", 1)])
    flags = [entry["caught_up"] for entry in bodies(commits, "journal.v1")]
    assert flags == [False, False, False, True]


# Refused batches


@pytest.mark.parametrize("late", [[stream("b", 0)], [stream("b", 0), stream("c", 1)]])
def test_a_batch_that_starts_before_the_marker_is_refused(late: list[RawRecord]) -> None:
    driver = Driver()
    driver.batch([stream("a", 0)])
    before = len(driver.commits)
    with pytest.raises(BatchRefused, match=r"streams\.v1-0: the batch starts at 0, .* before 1"):
        driver.batch(late, fleet(2))
    assert len(driver.commits) == before


def test_offsets_that_hold_no_record_are_no_gap() -> None:
    """Transactions of producers leave such offsets."""
    driver = Driver()
    driver.batch([stream("a", 0)])
    (commit,) = driver.batch([stream("b", 3)])
    assert marker(commit)["positions"]["streams.v1"] == {"0": 4}


# Dead letters


def letters(commits: Sequence[Commit]) -> list[dict[str, str]]:
    return [dict(errors(each)) for each in of_topic(commits, DEAD_LETTERS)]


def test_what_does_not_decode_or_validate_is_dead_lettered_and_the_rest_applied() -> None:
    driver = Driver()
    text = RawRecord(
        "streams.v1", 0, 1, 1_010, b"x", b"no JSON", [("trace", b"7"), ("empty", None)]
    )
    wrong = stream("b", 2)._replace(key=b"c")
    node = registered("n9", 1, offset=3, at=1_020)._replace(value=b"{}")
    (commit,) = driver.batch([*fleet(3), node], [stream("a", 0), text, wrong, stream("d", 3)])
    assert [d["stream"] for d in bodies([commit], "decisions.v1")] == ["a", "d"]
    found = {(each["topic"], each["offset"]): each for each in letters([commit])}
    assert {place: (each["stage"], each["reason"]) for place, each in found.items()} == {
        ("streams.v1", "1"): ("decode", RefusalCode.NOT_JSON),
        ("streams.v1", "2"): ("validate", RefusalCode.KEY_MISMATCH),
        ("nodes.v1", "3"): ("validate", RefusalCode.WRONG_TYPE),
    }
    record = next(r for r in of_topic([commit], DEAD_LETTERS) if r.value == b"no JSON")
    assert (record.key, record.headers[:2]) == (b"x", text.headers)
    told = found["streams.v1", "1"]
    assert told["message"]
    assert (told["partition"], told["timestamp"], told["value.bytes"]) == ("0", "1010", "7")
    assert told["value.sha256"] == sha256(b"no JSON").hexdigest()


def test_what_the_core_refuses_is_dead_lettered_once() -> None:
    driver = Driver()
    driver.batch(fleet(3), [stream("a", 0)])
    repeat, conflict = stream("a", 1), stream("a", 2, shards=5)
    commits = driver.batch([repeat, conflict, stream("a", 3, sequence=2)])
    assert [(each["offset"], each["stage"], each["reason"]) for each in letters(commits)] == [
        ("2", "apply", "SEQUENCE_CONFLICT"),
        ("3", "apply", "STREAM_EXISTS"),
    ]
    assert bodies(commits, "decisions.v1") == []
    assert driver.applier.ignored.counts == {"repeated_stream": 1}
    (marker,) = bodies(commits, "commits.v1")
    assert marker["ignored"] == {"repeated_stream": {"count": 1, "last_at": marker["now"]}}


def test_a_statement_of_an_unknown_incarnation_is_dead_lettered() -> None:
    driver = Driver()
    driver.batch(fleet(1))
    life = {"node_id": "n0", "incarnation": "manual", "sequence": 1}
    commits = driver.batch([raw("NodeUnregistered", "n0", life, offset=1)])
    (told,) = letters(commits)
    assert (told["stage"], told["reason"]) == ("order", "INCARNATION_UNKNOWN")
    assert bodies(commits, "topology.v1") == []


# The journal


def test_a_long_journal_entry_is_cut_into_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "JOURNAL_CHUNK_BYTES_MAX", 700)
    driver = Driver()
    (commit,) = driver.batch(fleet(20))
    entries = bodies([commit], "journal.v1")
    assert len(entries) > 3
    assert [entry["chunk"] for entry in entries] == list(range(len(entries)))
    assert {entry["chunks"] for entry in entries} == {len(entries)}
    assert [name for _, name in journaled([commit])] == [f"n{n}" for n in range(20)]
    assert all(len(orjson.dumps(entry["events"])) < 800 for entry in entries)
    check_contract([commit])


def test_an_event_longer_than_a_chunk_is_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "JOURNAL_CHUNK_BYTES_MAX", 10)
    (commit,) = Driver().batch(fleet(2))
    assert [len(entry["events"]) for entry in bodies([commit], "journal.v1")] == [1, 1]


def test_a_restart_knows_clocks_and_nodes() -> None:
    first = Driver()
    first.batch([*fleet(2), tick(2, 2_000)])
    commits = first.batch([heartbeat("n0", 2, offset=3, at=3_000), tick(4, 9_000)])
    again = Driver(first.commits)
    found = again.batch([tick(5, 10_000), tick(6, 11_000)])
    assert bodies(commits, "topology.v1") != []
    assert {name for _, name in journaled(found)} == {"n0", "n1"}
    assert again.applier._clocks[0] == Clock(
        marker(first.commits[-1])["clocks"]["0"]["clock_ms"] + 2_000, 11_000
    )


def test_every_record_is_addressed_to_the_cell() -> None:
    (commit,) = Driver().batch(fleet(2), [stream("a", 0)])
    sources = {dict(record.headers)["ce_source"] for record in commit}
    assert sources == {f"/placement/{CELL}".encode()}
