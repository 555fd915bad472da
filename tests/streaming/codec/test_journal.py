"""The journal's lines: everything of an event is there, and comes back as it was."""

from collections.abc import Sequence
from typing import Any, get_args

import orjson
import pytest

from placement.liveness import Verdict
from placement.model import (
    AckKind,
    AdministrativeState,
    Configuration,
    Event,
    FlapHistory,
    Guard,
    HoldDown,
    Limits,
    Liveness,
    MoveAcked,
    NodeAttributes,
    NodeChanged,
    Ready,
    StreamCreated,
    Transition,
)
from placement.reconciler import Reconciler
from streaming.codec.inputs import event_of_verdict
from streaming.codec.journal import (
    configuration_body,
    journal_event,
    parse_configuration,
    parse_journal_event,
)
from tests.stories.datadriven import is_core_story, run_file, story_files
from tests.stories.story import Story

FULL = NodeAttributes("/z1/r1", (("a", "b"), ("c", "d")), "h:1", 2.5, 7, False, (3, 5))
EVENTS: list[Event] = [
    NodeChanged(5, "n1", "i", 3, Liveness.UP, FULL, body_hash="ab"),
    NodeChanged(5, "n1", "i", 3, Liveness.UP, NodeAttributes(tokens=("a", "b"))),
    NodeChanged(5, "n1", "i", 3, Liveness.DEAD, location="/z2", tags=(("k", "v"),)),
    NodeChanged(
        5, "n1", "i", 3, Liveness.UP,
        administrative=AdministrativeState.DRAINING, guard=Guard.QUARANTINED,
    ),
    NodeChanged(
        5, "n1", "i", 3, Liveness.UP,
        flaps=FlapHistory(
            (Transition(3, Liveness.UP), Transition(4, Liveness.DEAD)), HoldDown(4, 9)
        ),
    ),
    StreamCreated(5, "s", 1, 2, 3),
    StreamCreated(
        5, "s", 1, 2, 3, "node=exclusive", {"strategy": "spread", "rules": [{"at_most": 1}]},
        "one", "ab", (("n1", "n2"), ("n3",)), ("a", "b"), "d", ("x", "y"), "dead_only",
    ),
    StreamCreated(5, "s", 1, 2, 3, quorum=2, shard_tokens=(1, 2)),
    MoveAcked(5, AckKind.FAILED, "m", "s", 0, "why"),
    MoveAcked(5, AckKind.COMPLETED, None, "s", 0),
]  # fmt: skip


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_comes_back_as_it_was(event: Event) -> None:
    line = orjson.loads(orjson.dumps(journal_event(event)))
    assert parse_journal_event(line) == event


def test_only_what_is_set_is_written() -> None:
    kind, body = journal_event(event_of_verdict(Verdict(50, 3, "n1", "a", 7, Liveness.SUSPECT)))
    told = {"at": 50, "node_id": "n1", "incarnation": "a", "sequence": 7, "liveness": "suspect"}
    assert (kind, body) == ("NodeChanged", told | {"body_hash": ""})


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["Flood", {}], "'Flood' is not an event"),
        (["MoveAcked", {"at": 1, "kind": "failed", "stream": "s"}], "MoveAcked.shard"),
        (["StreamCreated", {"at": "1"}], "StreamCreated.at"),
        (["NodeChanged", {"at": 1, "node_id": "n", "liveness": "?"}], "NodeChanged"),
    ],
)
def test_a_line_that_is_not_understood_says_why(line: list[Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_journal_event(line)


def test_the_configuration_comes_back_as_it_was() -> None:
    given = Configuration(
        "c", ("az", "rack"), {"strategy": "affinity"}, Limits(1, 2, 3, 4), False, 5, 6
    )
    body = orjson.loads(orjson.dumps(configuration_body(given)))
    assert parse_configuration(body) == given
    with pytest.raises(ValueError, match=r"Configuration\.deadline_ms"):
        parse_configuration(body | {"deadline_ms": "soon"})


def test_every_event_of_the_stories_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the core is given, a replay must be able to give it again."""
    seen: set[str] = set()
    apply = Reconciler.apply

    def read_back(
        self: Reconciler, events: Sequence[Event], now: int, caught_up: bool = True
    ) -> Ready:
        lines = orjson.loads(orjson.dumps([journal_event(each) for each in events]))
        again = [parse_journal_event(line) for line in lines]
        assert again == list(events)
        seen.update(kind for kind, _ in lines)
        return apply(self, again, now, caught_up)

    monkeypatch.setattr(Reconciler, "apply", read_back)
    for path in filter(is_core_story, story_files()):
        run_file(path, Story().answer, rewrite=False)
    assert seen == {kind.__name__ for kind in get_args(Event)}
