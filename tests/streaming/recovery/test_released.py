"""States that released versions wrote are read, proven and gone on with; see `released/`.

Each file has the journal, the markers and the state topics of the eventful history as that version
wrote them, one record a line. `python -m tests.streaming.recovery.test_released` writes the one of
this version.
"""

from importlib.metadata import version
from pathlib import Path

import orjson
import pytest

from placement.model import Configuration
from schemas.topics import COMMITS, JOURNAL, STATE_TOPICS
from streaming.brokers import Record
from streaming.codec import OutRecord
from streaming.recovery import StateTooNew, parse_marker, read_entries
from streaming.replay.replay import Replay
from streaming.standby.followed_state import FollowedState
from tests.builders.batches import CELL, Driver, check_contract, marker, recover
from tests.builders.histories import Story, eventful, lying
from tests.builders.kafka_rows import PREFIX

RELEASED = Path(__file__).parent / "released"
NAMES = sorted(each.stem for each in RELEASED.glob("*.ndjson"))
KEPT = (*STATE_TOPICS, COMMITS, JOURNAL)


def read(name: str) -> list[Record]:
    """The records of a version, in the order of its commits."""
    records = []
    for offset, line in enumerate((RELEASED / f"{name}.ndjson").read_bytes().splitlines()):
        body = orjson.loads(line)
        value = None if body["value"] is None else orjson.dumps(body["value"])
        place = (body["topic"], 0, offset, 0)
        records.append(Record.of(*place, body["key"].encode(), value, ()))
    return records


def commit_of(records: list[Record]) -> list[OutRecord]:
    """All of it as one transaction, which leaves the same last values."""
    return [OutRecord(each.topic, each.raw_key, each.raw, []) for each in records]


def latest(records: list[Record]) -> dict[str, dict[bytes, bytes]]:
    found: dict[str, dict[bytes, bytes]] = {topic: {} for topic in (*STATE_TOPICS, COMMITS)}
    for record in records:
        if record.topic in found and record.raw_key is not None:
            found[record.topic].pop(record.raw_key, None)
            if record.raw is not None:
                found[record.topic][record.raw_key] = record.raw
    return found


def test_every_released_version_is_there() -> None:
    assert NAMES == ["0.1.0", "0.2.0", "format-1"]
    assert version("placement-reconciler") in NAMES, "write the file of the new version"


@pytest.mark.parametrize("name", NAMES)
def test_its_state_is_proven_and_gone_on_with(name: str) -> None:
    records = read(name)
    state = FollowedState(Configuration(cell=CELL), PREFIX)
    assert state.begin(latest(records)), "the digest by the formula of its time"
    assert state.marker is not None
    # As a start does it, which goes on with the formula of today.
    story = Story(Driver([commit_of(records)]), offset=10_000, at=state.marker["now"])
    story.streams, story.acks, story.requests = 1_000, 1_000, 1_000
    story.ask("of today")
    story.live(range(1, 6), 2)
    commits = story.driver.commits
    assert any(each.key == b"of today" for commit in commits for each in commit)
    check_contract(commits)
    again = recover([commit_of(records), *commits])
    assert again.sequence == marker(commits[-1])["sequence"]


# What was decided by code that decides otherwise today is read, not decided again.
@pytest.mark.parametrize("name", [each for each in NAMES if each != "format-1"])
def test_its_journal_gives_its_state(name: str) -> None:
    records = read(name)
    replay = Replay(CELL, Configuration(cell=CELL), None)
    journal = [each for each in records if each.topic == JOURNAL]
    entries = sum(1 for _ in replay.run(read_entries(journal, CELL)))
    last = parse_marker(latest(records), PREFIX, CELL)
    assert last is not None
    assert entries > 10
    assert replay.digest_by(last) == last["digest"]


@pytest.mark.parametrize("field", ["format", "digest_version"])
def test_a_newer_one_is_refused_by_name(field: str) -> None:
    records = read("0.2.0")
    found = latest(records)
    newer = orjson.loads(found[COMMITS][CELL.encode()]) | {field: 99}
    found[COMMITS][CELL.encode()] = orjson.dumps(newer)
    with pytest.raises(StateTooNew, match=r"a newer version of placer wrote the state.*99"):
        FollowedState(Configuration(cell=CELL), PREFIX).begin(found)


def main() -> None:
    """Write the file of this version."""
    lines = [
        orjson.dumps({"topic": each.topic, "key": each.key, "value": each.value})
        for each in lying(eventful())
        if each.topic in KEPT
    ]
    path = RELEASED / f"{version('placement-reconciler')}.ndjson"
    path.write_bytes(b"\n".join(lines) + b"\n")


if __name__ == "__main__":
    main()
