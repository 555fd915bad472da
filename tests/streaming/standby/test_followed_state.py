"""A state that is followed by the journal is the one that the writer has, or it is given up."""

import random
from collections.abc import Sequence
from dataclasses import replace

import orjson
import pytest

from placement.model import Configuration, Limits
from schemas.topics import COMMITS, JOURNAL, STATE_TOPICS
from streaming.brokers import Record
from streaming.recovery import StateTooNew
from streaming.replay.verification import replay_history
from streaming.standby.followed_state import FollowedState
from tests.builders.batches import CELL, Driver, recover
from tests.builders.histories import Story, altered, eventful, history, lying
from tests.builders.kafka_rows import PREFIX

CONFIGURATION = Configuration(cell=CELL)
FOLLOWED = (JOURNAL, COMMITS)


@pytest.fixture(scope="module")
def written() -> list[Record]:
    """The records of the eventful history, in which one writer follows another."""
    return lying(eventful())


def latest(records: Sequence[Record]) -> dict[str, dict[bytes, bytes]]:
    found: dict[str, dict[bytes, bytes]] = {topic: {} for topic in (*STATE_TOPICS, COMMITS)}
    for record in records:
        if record.topic in found and record.raw_key is not None:
            if record.raw is None:
                found[record.topic].pop(record.raw_key, None)
            else:
                found[record.topic][record.raw_key] = record.raw
    return found


def cut_behind(records: Sequence[Record], sequence: int) -> tuple[list[Record], list[Record]]:
    """The records through the marker of that sequence, and the others."""
    index = next(
        i
        for i, each in enumerate(records)
        if each.topic == COMMITS and each.value and each.value["sequence"] == sequence
    )
    return [*records[: index + 1]], [*records[index + 1 :]]


def sequences(records: Sequence[Record]) -> list[int]:
    return [each.value["sequence"] for each in records if each.topic == COMMITS and each.value]


def writers(records: Sequence[Record]) -> dict[int, int]:
    markers = [each.value for each in records if each.topic == COMMITS and each.value]
    return {each["sequence"]: each["writer_epoch"] for each in markers}


def shuffled(records: Sequence[Record], seed: int) -> list[Record]:
    """What a consumer may hand over: each topic in its order, the topics in any."""
    order = random.Random(seed)
    queues = {topic: [each for each in records if each.topic == topic] for topic in FOLLOWED}
    found = []
    while any(queues.values()):
        topic = order.choice([topic for topic, queue in queues.items() if queue])
        found.append(queues[topic].pop(0))
    return found


def begun(records: Sequence[Record], configuration: Configuration = CONFIGURATION) -> FollowedState:
    state = FollowedState(configuration, PREFIX)
    assert state.begin(latest(records))
    return state


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("epoch", [1, 2])
def test_every_commit_of_a_writer_is_followed_and_proven(
    written: list[Record], seed: int, epoch: int
) -> None:
    epochs = writers(written)
    own = [sequence for sequence in epochs if epochs[sequence] == epoch]
    before, behind = cut_behind(written, random.Random(seed).choice(own[:-1]))
    mine, _ = cut_behind(behind, own[-1])
    state = begun(before)
    assert (state.proven, state.lag_commits) == (sequences(before)[-1], 0)
    for record in shuffled(mine, seed):
        state.take([record])
    assert (state.is_lost, state.proven, state.lag_commits) == (False, own[-1], 0)
    taken = state.take_state()
    assert taken is not None
    assert state.marker is not None
    assert taken.reconciler.digest == state.marker["digest"]
    assert state.take_state() is None, "it is taken once"


def test_another_writer_that_started_from_the_topics_is_not_followed(written: list[Record]) -> None:
    epochs = writers(written)
    last = max(sequence for sequence, epoch in epochs.items() if epoch == 1)
    before, behind = cut_behind(written, last)
    state = begun(before)
    state.take(behind)
    assert (state.is_lost, state.proven, state.take_state()) == (True, last, None)
    assert state.begin(latest(written))
    assert (state.is_lost, state.lag_commits) == (False, 0)


def test_whoever_takes_over_goes_on_as_the_writer_would_have(written: list[Record]) -> None:
    """Byte for byte: the journal tells replays that nothing was rebuilt."""
    story = Story(Driver())
    story.register(6)
    story.ask("a")
    story.live(range(1, 6), 6)
    commits = [*story.driver.commits]
    before, behind = cut_behind(lying(commits), 1)
    state = begun(before)
    state.take([each for each in behind if each.topic in FOLLOWED])
    taken = state.take_state()
    assert taken is not None
    found = recover(commits)
    recovered = replace(
        found, reconciler=taken.reconciler, nodes=taken.nodes, loads=taken.loads, followed=True
    )
    assert sorted(taken.nodes, key=lambda each: each.node_id) == sorted(
        found.nodes, key=lambda each: each.node_id
    )
    second = Story(Driver(recovered=recovered), story.offset, story.at)
    second.streams = story.streams
    second.live(range(1, 6), 2)
    second.ask("b")
    second.driver.commits[:0] = commits
    second.acknowledge()
    report = replay_history(
        history(lying(second.driver.commits)), CELL, Configuration(cell="unused"), verify=True
    )
    assert report.differences == ()
    entries = [each.value for each in lying(second.driver.commits) if each.topic == JOURNAL]
    assert [each["rebuilt"] for each in entries if each and "rebuilt" in each] == [False]


def test_a_state_that_is_another_is_given_up(written: list[Record]) -> None:
    before, behind = cut_behind(written, 3)
    spoilt = [
        altered(each, digest="0" * 16)
        if each.topic == COMMITS and each.value and each.value["sequence"] == 5
        else each
        for each in behind
        if each.topic in FOLLOWED
    ]
    state = begun(before)
    for record in spoilt:
        state.take([record])
        if record.value and record.topic == COMMITS and record.value["sequence"] == 5:
            break
    assert (state.is_lost, state.proven) == (True, 4)


def test_an_entry_that_never_comes_is_given_up_at_the_end(written: list[Record]) -> None:
    before, behind = cut_behind(written, 3)
    markers = [each for each in behind if each.topic == COMMITS][:2]
    state = begun(before)
    state.take(markers)
    assert not state.is_lost, "it may be under way"
    state.end()
    assert state.is_lost


def test_a_torn_journal_is_given_up(written: list[Record]) -> None:
    before, behind = cut_behind(written, 3)
    entry = next(each for each in behind if each.topic == JOURNAL)
    state = begun(before)
    state.take([altered(entry, chunk=1)])
    assert state.is_lost


def test_markers_of_a_version_that_does_not_name_itself_are_proven(written: list[Record]) -> None:
    def older(record: Record) -> Record:
        if record.topic != COMMITS or record.value is None:
            return record
        body = {k: v for k, v in record.value.items() if k not in ("version", "instance")}
        body["journal_sequence"] = body["sequence"]
        return replace(record, value=body, raw=orjson.dumps(body))

    records = [older(each) for each in written]
    last = max(sequence for sequence, epoch in writers(records).items() if epoch == 1)
    before, behind = cut_behind(records, 2)
    mine, _ = cut_behind(behind, last)
    for seed in range(5):
        state = begun(before)
        for record in shuffled(mine, seed):
            state.take([record])
        assert (state.is_lost, state.proven) == (False, last)


def test_a_newer_digest_is_refused_by_name(written: list[Record]) -> None:
    before, behind = cut_behind(written, 3)
    marker = next(each for each in behind if each.topic == COMMITS)
    entry = next(each for each in behind if each.topic == JOURNAL)
    state = begun(before)
    with pytest.raises(StateTooNew, match="a newer version of placer wrote the state"):
        state.take([entry, altered(marker, digest_version=99)])


def test_other_settings_are_not_followed(written: list[Record]) -> None:
    story = Story(Driver(configuration=Configuration(cell=CELL, limits=Limits(max_open=7))))
    story.register(3)
    before, behind = cut_behind(lying(story.driver.commits), 1)
    state = FollowedState(CONFIGURATION, PREFIX)
    assert state.begin(latest([]))
    assert (state.marker, state.is_lost) == (None, False)
    state.take([*before, *behind])
    assert state.is_lost
