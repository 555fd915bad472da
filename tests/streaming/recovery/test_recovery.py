"""Recovery from topics: what does not prove a state is refused by name, and nothing is changed.

Method: an eventful history lies on topics of the embedded broker; then something is done to them,
and `recover` is called as a start calls it. No Spark is needed for that.
"""

from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest
from typer.testing import Result

from placement.model import Configuration
from schemas.topics import CATALOGUE, full_name
from streaming.administration import topics
from streaming.brokers import make_producer
from streaming.codec import OutRecord
from streaming.errors import StreamingError
from streaming.recovery.recovery import Recovered, recover
from streaming.runtime import EmbeddedBroker
from tests.builders.batches import CELL, Commit
from tests.builders.histories import eventful
from tests.streaming.cli.test_replay import send

CONFIGURATION = Configuration(cell=CELL)


@pytest.fixture(scope="module")
def commits() -> list[Commit]:
    """The eventful history; its inputs count as never read, as they are on no topic."""
    return [[unread(record) for record in commit] for commit in eventful()]


def unread(record: OutRecord) -> OutRecord:
    if record.topic != "commits.v1":
        return record
    body = orjson.loads(record.value or b"")
    body["positions"] = {topic: {} for topic in body["positions"]}
    return record._replace(value=orjson.dumps(body))


@pytest.fixture
def at(broker: EmbeddedBroker, prefix: str, commits: list[Commit]) -> tuple[str, str]:
    """Topics that hold the history."""
    place = (broker.bootstrap_servers, prefix)
    topics.apply_topics(*place)
    send(place, commits)
    return place


def started(
    at: tuple[str, str],
    configuration: Configuration = CONFIGURATION,
    *,
    accept_gap: bool = False,
) -> Recovered:
    counts = topics.count_partitions(*at)
    outputs = {t.name: counts[t.name] for t in CATALOGUE if t.direction == "out"}
    cell = configuration.cell
    return recover(*at, cell, configuration, outputs, {}, accept_gap=accept_gap)


def write(at: tuple[str, str], topic: str, key: bytes | None, value: bytes | None) -> None:
    producer = make_producer(at[0])
    producer.produce(full_name(topic, at[1]), value, key)
    assert producer.flush(20) == 0


def last(commits: list[Commit], topic: str) -> OutRecord:
    return next(r for c in reversed(commits) for r in c if r.topic == topic and r.value)


def test_what_lies_on_the_topics_is_rebuilt(at: tuple[str, str], commits: list[Commit]) -> None:
    marker = orjson.loads(last(commits, "commits.v1").value or b"")
    found = started(at)
    assert found.reconciler.digest == marker["digest"]
    assert (found.sequence, found.writer_epoch) == (marker["sequence"], marker["writer_epoch"])
    # Other limits and another default are no reason to refuse.
    other = replace(CONFIGURATION, default_policy={"strategy": "affinity"}, deadline_ms=1)
    assert started(at, other).reconciler.digest == marker["digest"]


@pytest.mark.parametrize(
    ("topic", "name", "value", "says"),
    [
        ("assignments.v1", "a/0", b"{torn", "assignments.v1-0 offset "),
        ("assignments.v1", "a/0", b"[1]", r"\(key a/0\) cannot be read"),
        ("assignments.v1", "a/0", b'{"stream":"a"}', "cannot be read: KeyError"),
        ("decisions.v1", "a", b"{}", "decisions.v1-0 offset "),
        ("topology.v1", "n0", b"null", r"topology.v1-0 offset \d+ \(key n0\)"),
        ("moves.v1", "m", b'{"kind":"teleport"}', "moves.v1-0 offset "),
        ("violations.v1", "a/0", b"7", "violations.v1-0 offset "),
        ("state.v1", "x/y", b'{"kind":1}', "state.v1-0 offset "),
        ("commits.v1", CELL, b"{}", "the commit marker of cell 'main'"),
    ],
)
def test_a_damaged_record_is_named(
    at: tuple[str, str], topic: str, name: str, value: bytes, says: str
) -> None:
    write(at, topic, name.encode(), value)
    with pytest.raises(StreamingError, match=says):
        started(at)


def test_a_lost_record_breaks_the_digest(at: tuple[str, str]) -> None:
    write(at, "decisions.v1", b"refused", None)
    with pytest.raises(StreamingError, match=r"the commit marker says .* placer repair"):
        started(at)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"format": 3},
            "a newer version of placer wrote the state: the commit marker has format 3",
        ),
        (
            {"digest_version": 3},
            "digest has formula 3, this version computes formulas 1 to 2. Install the version",
        ),
        ({"output_partitions": {"assignments.v1": 3}}, "had 3 partitions and now has 1"),
        ({"digest": "0" * 16}, "the commit marker says 0000000000000000"),
    ],
)
def test_a_marker_that_does_not_fit_is_refused(
    at: tuple[str, str], commits: list[Commit], change: dict[str, object], says: str
) -> None:
    body = orjson.loads(last(commits, "commits.v1").value or b"")
    write(at, "commits.v1", CELL.encode(), orjson.dumps(body | change))
    with pytest.raises(StreamingError, match=says):
        started(at)


def test_a_state_of_the_first_formula_is_accepted_after_a_proof_by_it(
    at: tuple[str, str], commits: list[Commit]
) -> None:
    now = started(at)
    body = orjson.loads(last(commits, "commits.v1").value or b"")
    del body["digest_version"]
    first = body | {"digest": now.reconciler.digest_of_version(1)}
    write(at, "commits.v1", CELL.encode(), orjson.dumps(first))
    assert first["digest"] != started(at).reconciler.digest == now.reconciler.digest
    write(at, "decisions.v1", b"refused", None)
    with pytest.raises(StreamingError, match="the commit marker says " + first["digest"]):
        started(at)


def test_another_cell_is_refused_by_name(at: tuple[str, str]) -> None:
    with pytest.raises(StreamingError, match="no commit marker of cell 'other'"):
        started(at, replace(CONFIGURATION, cell="other"))


def test_an_assignment_that_names_what_is_not_there_is_refused(
    at: tuple[str, str], commits: list[Commit]
) -> None:
    body = orjson.loads(last(commits, "assignments.v1").value or b"")
    foreign = orjson.dumps(body | {"replicas": ["n0", "stranger"]})
    write(at, "assignments.v1", f"{body['stream']}/{body['shard']}".encode(), foreign)
    with pytest.raises(StreamingError, match="contradict each other: KeyError: 'stranger'"):
        started(at)


# Gaps and repair


def test_input_that_was_deleted_unread_is_named_and_can_be_accepted(
    at: tuple[str, str], commits: list[Commit]
) -> None:
    body = orjson.loads(last(commits, "commits.v1").value or b"")
    body["positions"]["streams.v1"] = {"0": 7}
    write(at, "commits.v1", CELL.encode(), orjson.dumps(body))
    with pytest.raises(StreamingError) as refused:
        started(at)
    assert f"{at[1]}streams.v1-0 has offsets 0 to 0, but the commit marker continues at 7" in str(
        refused.value
    )
    assert "placer run --accept-gap" in str(refused.value)
    found = started(at, accept_gap=True)
    assert found.positions["streams.v1"] == {0: 0}
    (gap,) = found.gaps
    assert (gap.partition, gap.position, gap.first, gap.end) == (0, 7, 0, 0)


def test_repair_writes_again_what_the_journal_says(
    at: tuple[str, str], commits: list[Commit], placer: Callable[..., Result]
) -> None:
    write(at, "assignments.v1", b"a/0", b"{torn")
    write(at, "assignments.v1", b"stranger/0", b"{}")
    write(at, "decisions.v1", b"refused", None)
    with pytest.raises(StreamingError, match=r"a/0\) cannot be read.* placer repair"):
        started(at)
    shown = placer("repair", "--dry-run", at=at)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines() == [
        "decisions.v1 refused: was missing",
        "assignments.v1 a/0: held another value",
        "assignments.v1 stranger/0: should not be there",
        "3 records would be written",
    ]
    assert placer("repair", at=at).exit_code == 0
    marker = orjson.loads(last(commits, "commits.v1").value or b"")
    assert started(at).reconciler.digest == marker["digest"]
    assert placer("repair", at=at).stdout == "nothing is damaged\n"
    assert placer("replay", "--from-topic", "--verify", at=at).exit_code == 0


def test_repair_writes_nothing_that_the_marker_does_not_speak_of(
    at: tuple[str, str], commits: list[Commit], placer: Callable[..., Result]
) -> None:
    body = orjson.loads(last(commits, "commits.v1").value or b"")
    write(at, "commits.v1", CELL.encode(), orjson.dumps(body | {"digest": "0" * 16}))
    refused = placer("repair", at=at)
    assert refused.exit_code == 3
    assert "it is not what was lost" in refused.output
