"""Goal: `placer snapshot`, `record` and `replay` against topics, as a user calls them.

Method: an eventful history is written to the topics of the embedded broker; commands run in this
process.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import Result

from placement.model import Configuration
from schemas.topics import full_name
from streaming.administration import apply_topics
from streaming.brokers import make_producer
from streaming.codec import OutRecord
from streaming.recovery import take_snapshot
from streaming.runtime import EmbeddedBroker
from tests.builders.batches import CELL, Commit
from tests.builders.histories import eventful

Placer = Callable[..., Result]


def send(at: tuple[str, str], commits: Iterable[Commit]) -> None:
    """Write what these transactions hold."""
    producer = make_producer(at[0])
    for record in (record for commit in commits for record in commit):
        producer.produce(
            full_name(record.topic, at[1]), record.value, record.key, headers=record.headers
        )
    assert producer.flush(20) == 0


def send_altered(at: tuple[str, str], commits: Sequence[Commit]) -> OutRecord:
    """Write the last assignment again with another epoch; returns it as it was."""
    last = next(r for c in reversed(commits) for r in c if r.topic == "assignments.v1")
    value = orjson.dumps(orjson.loads(last.value or b"") | {"epoch": 77})
    send(at, [[last._replace(value=value)]])
    return last


@pytest.fixture(scope="module")
def commits() -> list[Commit]:
    """The eventful history."""
    return eventful()


@pytest.fixture(scope="module")
def at(broker: EmbeddedBroker, commits: list[Commit]) -> tuple[str, str]:
    """Topics that hold it; no test changes them."""
    place = (broker.bootstrap_servers, "replayed.")
    apply_topics(*place)
    send(place, commits)
    return place


def answer(result: Result, code: int = 0) -> dict[str, Any]:
    assert result.exit_code == code, result.output
    body: dict[str, Any] = orjson.loads(result.stdout.splitlines()[-1])
    return body


def test_a_journal_on_its_topic_gives_what_is_on_the_others(
    placer: Placer, at: tuple[str, str]
) -> None:
    said = answer(placer("replay", "--from-topic", "--verify", "--output", "json", at=at))
    assert said["differences"] == []
    assert said["records"] == said["compared"]
    text = placer("replay", "--from-topic", "--verify", at=at)
    assert f"equal: {said['records']} records, byte for byte" in text.stdout
    lines = placer("replay", "--from-topic", "--output", "ndjson", at=at).stdout.splitlines()
    assert len(lines) == int(str(said["records"])) + 1
    assert orjson.loads(lines[0]).keys() == {"sequence", "topic", "key", "id", "value"}


def test_snapshots_and_recordings_are_replayed(
    placer: Placer, at: tuple[str, str], tmp_path: Path
) -> None:
    whole, state, now = (tmp_path / f"{name}.ndjson" for name in ("whole", "state", "now"))
    taken = placer("record", str(whole), "--from", "beginning", "--for-seconds", "0", at=at)
    assert taken.exit_code == 0, taken.output
    said = answer(placer("replay", str(whole), "--verify", "--output", "json"))
    assert (said["differences"], said["records"]) == ([], said["compared"])

    assert placer("snapshot", str(state), at=at).exit_code == 0
    words = ("replay", "--from-topic", "--snapshot", str(state), "--verify", "--output", "json")
    behind = answer(placer(*words, at=at), 1)
    assert (behind["records"], behind["digest"]) == (0, said["digest"])

    assert placer("record", str(now), "--for-seconds", "0", at=at).exit_code == 0
    assert answer(placer("replay", str(now), "--output", "json"))["digest"] == said["digest"]


@pytest.mark.parametrize("kind", ["snapshot", "recording"])
def test_a_state_is_restored_into_other_topics(
    placer: Placer, at: tuple[str, str], prefix: str, tmp_path: Path, kind: str
) -> None:
    """Method: what a start reads there is what the file's end says, proven by its digest."""
    file = tmp_path / "state.ndjson"
    if kind == "snapshot":
        assert placer("snapshot", str(file), at=at).exit_code == 0
    else:
        words = ("record", str(file), "--from", "beginning", "--for-seconds", "0")
        assert placer(*words, at=at).exit_code == 0
    said = answer(placer("replay", "--from-topic", "--output", "json", at=at))
    refused = placer("restore", str(file), at=at)
    assert (refused.exit_code, "hold no state" in refused.output) == (3, False)
    assert "of state: a state is only restored into topics" in refused.output

    bootstrap, fresh = at[0], f"new-{kind}-{prefix}"
    assert placer("topics", "apply", at=(bootstrap, fresh)).exit_code == 0
    tried = placer("restore", str(file), "--dry-run", at=(bootstrap, fresh))
    assert (tried.exit_code, "would be written" in tried.output) == (0, True), tried.output
    done = placer("restore", str(file), at=(bootstrap, fresh))
    assert done.exit_code == 0, done.output
    assert str(said["digest"]) in done.output
    found = take_snapshot(bootstrap, fresh, Configuration(cell=CELL))
    assert (found.digest, found.marker["positions"]) == (said["digest"], {})
    again = placer("restore", str(file), at=(bootstrap, fresh))
    assert again.exit_code == 3


def test_an_altered_file_is_not_restored(
    placer: Placer, at: tuple[str, str], tmp_path: Path
) -> None:
    file, altered = tmp_path / "state.ndjson", tmp_path / "altered.ndjson"
    assert placer("snapshot", str(file), at=at).exit_code == 0
    lost = '"part":"state","topic":"assignments.v1"'
    lines = [line for line in file.read_text().splitlines() if lost not in line]
    altered.write_text("\n".join(lines) + "\n")
    refused = placer("restore", str(altered), "--dry-run", at=at)
    assert (refused.exit_code, "contradict each other" in refused.output) == (3, True)


def test_an_empty_recording_is_not_called_equal(
    placer: Placer, at: tuple[str, str], tmp_path: Path
) -> None:
    """Method: it begins with a snapshot and ends before anything happens."""
    quiet = tmp_path / "quiet.ndjson"
    assert placer("record", str(quiet), "--for-seconds", "0", at=at).exit_code == 0
    verified = placer("replay", str(quiet), "--verify")
    assert (verified.exit_code, "equal" in verified.stdout) == (1, False)
    assert "nothing was compared: there is no journal entry" in verified.stdout
    replayed = placer("replay", str(quiet))
    assert (replayed.exit_code, "nothing was replayed" in replayed.stdout) == (0, True)
    early = placer("replay", "--from-topic", "--verify", "--until", "0", at=at)
    assert (early.exit_code, "nothing was compared" in early.stdout) == (1, True)
    again = placer("replay", str(quiet), "--inputs")
    assert (again.exit_code, "no record of an input topic" in again.stderr) == (2, True)


def test_what_differs_is_shown(
    placer: Placer, bootstrap: str, prefix: str, commits: list[Commit]
) -> None:
    at = (bootstrap, prefix)
    send(at, commits)
    altered = send_altered(at, commits)
    result = placer("replay", "--from-topic", "--verify", at=at)
    assert result.exit_code == 1
    assert "differences, the first:" in result.stdout
    assert f"assignments.v1 {(altered.key or b'').decode()} (partition 0, offset " in result.stdout
    refused = placer("snapshot", "unused.ndjson", at=at)
    assert refused.exit_code == 3
    assert "does not agree with its marker" in refused.output


def one_by_one(said: Iterable[str]) -> Iterator[str]:
    """Sentences with an entry for each shard that came or went."""
    for each in said:
        verb = next((verb for verb in ("received ", "gave up ") if each.startswith(verb)), "")
        shards = each.removeprefix(verb).split(", ") if verb else [each]
        yield from (f"{verb}{shard}" for shard in shards)


def test_history(placer: Placer, at: tuple[str, str]) -> None:
    """Goal: what a node that died, came back and was emptied has gone through; from records alone
    and from a replay alike."""
    told = answer(placer("history", "node", "n0", "--output", "json", at=at))
    again = answer(placer("history", "node", "n0", "--replay", "--output", "json", at=at))
    said = [each["said"] for each in told["entries"]]
    assert said[0].startswith("registered, incarnation")
    assert any("liveness dead" in each for each in said)
    assert any("issued (under_replicated)" in each for each in said)
    # Shards that came or went are one entry where their records were appended in one millisecond.
    replayed = [each["said"] for each in again["entries"]]
    assert sorted(one_by_one(said)) == sorted(one_by_one(replayed))
    gone = next(each for each in said if each.startswith("gave up")).split()[-1]
    text = placer("history", "shard", gone, "--limit", "2", at=at).stdout.splitlines()
    assert "earlier: --limit" in text[0]
    assert "complete from then on" in text[-1]
    recent = placer("history", "shard", gone, "--since", "2100-01-01T00:00:00Z", at=at)
    assert (recent.exit_code, "there is no record of" in recent.stdout) == (0, True)


def test_history_of_what_is_not_there(placer: Placer, at: tuple[str, str]) -> None:
    result = placer("history", "node", "nobody", at=at)
    assert (result.exit_code, "there is no record of nobody" in result.stdout) == (1, True)
    wrong = placer("history", "node", "n0", "--since", "soon", at=at)
    assert (wrong.exit_code, "expected 2h, 30m, 7d or a time" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name a recording, or --from-topic"),
        (("x.ndjson", "--from-topic"), "name a recording, or --from-topic"),
        (("x.ndjson", "--snapshot", "y.ndjson"), "--snapshot needs --from-topic"),
        (("--from-topic", "--until", "soon"), "expected a sequence or a time"),
        (("absent.ndjson",), "absent.ndjson cannot be read"),
        (("x.ndjson", "--inputs", "--output", "ndjson"), "--inputs takes a recording"),
        (("x.ndjson", "--speed", "2"), "--speed needs --inputs"),
        (("x.ndjson", "--prefix", "y."), "need --from-topic; a recording"),
    ],
)
def test_wrong_usage_is_told(placer: Placer, words: tuple[str, ...], says: str) -> None:
    result = placer("replay", *words)
    assert result.exit_code == 2
    assert says in result.output
