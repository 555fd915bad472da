"""What a batch decided becomes records, and nothing else does; together they are as alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.hashing import stable_id
from placement.model import Assignment, Ready, Refused
from streaming.codec.records import (
    OutRecord,
    assignment_record,
    assignment_records,
    ready_records,
)
from tests.streaming.codec.test_codec import (
    ALERT,
    ANSWER,
    ASSIGNMENT,
    CELL,
    DECISION,
    MOVE,
    VIEW,
    assignments,
    identity,
)


@pytest.mark.parametrize(
    ("ready", "topic"),
    [
        (Ready(topology={"n1": VIEW}), "topology.v1"),
        (Ready(topology={"n1": None}), "topology.v1"),
        (Ready(decisions={"s": DECISION}), "decisions.v1"),
        (Ready(forgotten=["s"]), "decisions.v1"),
        (Ready(dropped=[("s", 0)]), "assignments.v1"),
        (Ready(assignments={("s", 0): ASSIGNMENT}), "assignments.v1"),
        (Ready(moves={"m": (MOVE, False)}), "moves.v1"),
        (Ready(violations={("s", 0): ()}), "violations.v1"),
        (Ready(memory={("hold", "/a"): None}), "state.v1"),
        (Ready(loads={("s", 0): None}), "load.v1"),
        (Ready(alerts=[ALERT]), "alerts.v1"),
        (Ready(answers=[ANSWER]), "answers.v1"),
    ],
)
def test_what_is_not_empty_becomes_records(ready: Ready, topic: str) -> None:
    assert [each.topic for each in ready_records(ready, CELL, 5, 9)] == [topic]
    assert not ready.empty


def test_what_changes_nothing_becomes_no_record() -> None:
    ready = Ready(refused=[Refused(0, MOVE.reason)], counts={"ignored": 1})
    assert [*ready_records(ready, CELL, 5, 9)] == []
    assert ready.empty


@given(st.lists(assignments, max_size=4))
def test_records_that_follow_each_other_are_those_made_alone(several: list[Assignment]) -> None:
    alone = [assignment_record(each, CELL) for each in several]
    assert [*assignment_records(several, CELL)] == alone
    for record, each in zip(alone, several, strict=True):
        of_shard = (CELL, "assignments.v1", f"{each.stream}/{each.shard}", each.epoch)
        assert identity(record) == stable_id(*of_shard).encode()
        assert type(record) is OutRecord
