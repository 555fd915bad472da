"""The oracle itself: a lawful story passes, and each broken law is found.

Method: one lawful log of plain records, as they stand on the topics, in which one node dies and is
replaced; every case changes one thing in it and names what the oracle has to say.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from placement.model import Action, Answer, AnswerOutcome, Code, OperatorAsked, Ready, Reason
from tests.oracle.log import Log

Record = tuple[str, str, dict[str, Any] | None]


def node(node_id: str, liveness: str = "up", revision: int = 1, place: str = "/r1") -> Record:
    body = {
        "node_id": node_id,
        "incarnation": "i",
        "sequence": revision,
        "revision": revision,
        "location": place,
        "tags": {},
        "liveness": liveness,
    }
    return "topology.v1", node_id, body


def decision(policies: str = "node=exclusive", **changes: Any) -> Record:
    body = {
        "stream": "s",
        "sequence": 1,
        "revision": 1,
        "outcome": "placed",
        "spec": {
            "stream": "s",
            "shards": 1,
            "replication_factor": 2,
            "policy": {"strategy": "affinity"},
            "placement_policies": policies,
        },
        "shards_placed": 1,
        "replicas_missing": 0,
        "reasons": [],
        "warnings": [],
    }
    return "decisions.v1", "s", body | changes


def assignment(epoch: int, replicas: str, adding: str = "", removing: str = "") -> Record:
    body: dict[str, Any] = {
        "stream": "s",
        "shard": 0,
        "epoch": epoch,
        "replicas": replicas.split(),
        "adding": adding.split(),
        "removing": removing.split(),
    }
    if adding:
        body["move_id"] = "m1"
    return "assignments.v1", "s/0", body


def move(state: str, **changes: Any) -> Record:
    body = {
        "move_id": "m1",
        "kind": "replace",
        "stream": "s",
        "shard": 0,
        "slot": 1,
        "remove": "b",
        "add": "c",
        "expected_epoch": 2,
        "state": state,
        "cause": "repair",
        "reason": {"code": "NODE_DEAD"},
        "source": "a",
        "deadline": 600,
        "issued_at": 100,
    }
    if state not in ("issued", "accepted"):
        body["ended_at"] = 200
    return "moves.v1", str(changes.get("move_id", "m1")), body | changes


def missing(count: int = 1) -> Record:
    violation = {"rule": "replicas", "strength": "required", "count": count, "class": "fixable"}
    return "violations.v1", "s/0", {"stream": "s", "shard": 0, "violations": [violation]}


def lawful() -> list[list[Record]]:
    """Batches: a fleet and a stream; a death; acceptance; completion."""
    return [
        [
            node("a"),
            node("b", place="/r2"),
            node("c", place="/r3"),
            decision(),
            assignment(1, "a b"),
        ],
        [
            node("b", "dead", 2, "/r2"),
            move("issued"),
            assignment(2, "a b", "c", "b"),
            missing(),
        ],
        [move("accepted")],
        [move("completed"), assignment(3, "a c"), ("violations.v1", "s/0", None)],
    ]


def judged(batches: list[list[Record]], ordered: bool = True) -> list[str]:
    log = Log(ordered)
    for batch in batches:
        for topic, key, value in batch:
            log.feed(topic, key, deepcopy(value))
        if ordered:
            log.commit()
    return log.final_violations()


def test_a_lawful_story_passes() -> None:
    assert judged(lawful()) == []


def test_topics_may_be_read_one_by_one() -> None:
    records = [record for batch in lawful() for record in batch]
    topics = sorted({topic for topic, _, _ in records}, reverse=True)
    assert judged([[r for r in records if r[0] == topic] for topic in topics], False) == []


Change = Callable[[list[list[Record]]], Any]


def body_of(batches: list[list[Record]], batch: int, topic: str) -> dict[str, Any]:
    return next(value for name, _, value in batches[batch] if name == topic and value)


def setting(batch: int, topic: str, **changes: Any) -> Change:
    return lambda batches: body_of(batches, batch, f"{topic}.v1").update(changes)


def adding(batch: int, *records: Record) -> Change:
    return lambda batches: batches[batch].extend(records)


def dropping(batch: int, topic: str) -> Change:
    return lambda batches: batches[batch].remove(
        next(record for record in batches[batch] if record[0] == f"{topic}.v1")
    )


def every_move(**changes: Any) -> Change:
    def change(batches: list[list[Record]]) -> None:
        for batch in (1, 2, 3):
            body_of(batches, batch, "moves.v1").update(changes)

    return change


BROKEN = [
    (adding(2, move("accepted")), "came twice, with the same body"),
    (adding(3, move("completed", ended_at=300)), "came twice, with another body"),
    (adding(0, node("a", revision=1, place="/r9")), "came twice, with another body"),
    (setting(1, "assignments", epoch=3), "went to epoch 3 from 1"),
    (setting(3, "assignments", epoch=2), "went to epoch 2 from 2"),
    (setting(0, "assignments", replicas=["a", "a"]), "has a node twice"),
    (setting(1, "assignments", adding=["a"]), "has a node twice"),
    (setting(1, "assignments", removing=["x"]), "removes ['x'], which is none of"),
    (setting(1, "assignments", move_id=None), "names move None but adds"),
    (setting(1, "assignments", move_id="m2"), "shows move m2, not m1"),
    (setting(3, "assignments", replicas=["a"]), "without a completed move"),
    (setting(3, "assignments", replicas=["a", "x"]), "without a completed move"),
    (setting(3, "moves", state="failed"), "without a completed move"),
    (every_move(expected_epoch=1), "shows a move of another epoch"),
    (every_move(add="a"), "no assignment shows move"),
    (every_move(source="c"), "copies from a node that has no replica"),
    (setting(1, "moves", source="b"), "copies from b, which does not live"),
    (setting(1, "moves", remove="a", source="c"), "replaces the replica on a, which lives"),
    (adding(0, node("c", "suspect", 2, "/r3")), "aims at c, which may not receive"),
    (setting(1, "moves", deadline=100), "was late when it was issued"),
    (setting(1, "moves", kind="add"), "of kind add adds c and removes b"),
    (setting(1, "moves", state="accepted"), "began as accepted"),
    (setting(1, "moves", supersedes="m0"), "supersedes None"),
    (setting(2, "moves", slot=0), "changed its ['slot']"),
    (setting(2, "moves", ended_at=150), "is accepted and ended at 150"),
    (setting(3, "moves", ended_at=None), "is completed and ended at None"),
    (adding(3, move("failed")), "went from completed to failed"),
    (adding(2, move("issued", move_id="m2")), "has two open moves"),
    (adding(2, ("moves.v1", "m1", None)), "was forgotten as accepted"),
    (dropping(3, "moves"), "move m1 of ('s', 0) is open"),
    (setting(0, "decisions", outcome="rejected"), "is rejected without a reason"),
    (setting(0, "decisions", outcome="waiting"), "is waiting with 2 replicas"),
    (setting(0, "decisions", replicas_missing=1), "shards placed, replicas missing (1, 1)"),
    (adding(1, decision(revision=1, sequence=2)), "went from revision 1 to 1"),
    (adding(0, ("decisions.v1", "t", decision()[2])), "has shards [] of 1"),
    (dropping(1, "violations"), "has 1 of 2 replicas, its violations are []"),
    (dropping(3, "violations"), "has 2 of 2 replicas, its violations are"),
    (adding(3, ("violations.v1", "s/0", None)), "were healed twice"),
    (adding(3, node("a", "dead", 2), missing()), "is led by a, which is dead, though c lives"),
    (adding(3, node("a", "dead", 2), missing()), "has live replicas ['c'] only"),
    (adding(3, ("topology.v1", "c", None)), "node c was forgotten, and ('s', 0) names it"),
    (adding(1, ("topology.v1", "b", None)), "node b was forgotten, and ('s', 0) names it"),
    (adding(3, node("c", revision=2, place="/r1")), "node=exclusive is broken by ['a', 'c']"),
]


@pytest.mark.parametrize(
    ("change", "found"), BROKEN, ids=[f"{n} {found}" for n, (_, found) in enumerate(BROKEN)]
)
def test_what_is_broken_is_found(change: Change, found: str) -> None:
    batches = lawful()
    change(batches)
    assert any(found in each for each in judged(batches)), judged(batches)


@pytest.mark.parametrize(
    ("policies", "shards", "found"),
    [
        ("", ["a b", "a b"], None),
        ("", ["a b", "b a"], None),
        ("", ["a b", "a c"], "shard=colocated"),
        ("shard=balanced", ["a b", "a c"], None),
        ("shard=exclusive", ["a b", "c d"], None),
        ("shard=exclusive", ["a b", "c b"], "shard=exclusive"),
        ("node=colocated", ["a b", "a b"], None),
        ("node=colocated", ["a c", "a c"], "node=colocated"),
        ("node=colocated;shard=balanced", ["a b", "c d"], "node=colocated"),
        ("node=exclusive", ["a c", "a c"], None),
        ("node=exclusive;shard=balanced", ["a c", "c d"], "s/1: node=exclusive"),
        ("node=exclusive;node=balanced", ["a b", "a b"], None),
    ],
)
def test_affinities(policies: str, shards: list[str], found: str | None) -> None:
    assert_policy({"strategy": "affinity"}, policies, shards, found)


@pytest.mark.parametrize(
    ("policy", "shards", "found"),
    [
        ({"rules": [{"at_most": 1, "per": "location"}]}, ["a c"], None),
        ({"rules": [{"at_most": 1, "per": "location"}]}, ["a c", "a b"], "s/1: "),
        ({"rules": [{"at_most": 1, "per": "1", "strength": "preferred"}]}, ["a b"], None),
        ({"rules": [{"at_least": 2, "domains": "site"}]}, ["a b"], "fewer"),
        ({"rules": [{"at_least": 2, "domains": "site"}]}, ["a c"], None),
        ({"rules": [{"exclusive": "nodes"}]}, ["a b", "c a"], "two replicas"),
        ({"within": ["/r1"]}, ["a b"], None),
        ({"within": ["/r1"]}, ["a c"], "c is none"),
        ({"within": ["/r"]}, ["a c"], "a is none"),
        ({"avoid": ["/r2"]}, ["a c"], "c is none"),
        ({"nodes": ["a", "b"]}, ["a d"], "d is none"),
        ({"with_tags": {"disk": "ssd"}}, ["a b"], "a is none"),
    ],
)
def test_policies(policy: dict[str, Any], shards: list[str], found: str | None) -> None:
    assert_policy(policy, None, shards, found)


def assert_policy(
    policy: dict[str, Any], policies: str | None, shards: list[str], found: str | None
) -> None:
    """Nodes a and b stand in /r1, c and d in /r2."""
    log = Log(levels=("site",))
    for name in "abcd":
        log.feed(*node(name, place="/r1" if name in "ab" else "/r2"))
    spec = {
        "shards": len(shards),
        "replication_factor": 2,
        "policy": policy,
        "placement_policies": policies,
    }
    log.feed(*decision(spec=spec, shards_placed=len(shards)))
    for number, replicas in enumerate(shards):
        topic, _, body = assignment(1, replicas)
        assert body is not None
        log.feed(topic, f"s/{number}", body | {"shard": number})
    log.commit()
    said = log.final_violations()
    assert bool(said) == bool(found), said
    if found:
        assert any(found in each for each in said), said


def test_a_reported_violation_can_be_enough() -> None:
    batches = lawful()
    batches[3].append(node("c", revision=2, place="/r1"))
    log = Log()
    violation = {"rule": "at_most 1 per location", "strength": "required", "count": 2}
    for batch in batches:
        for record in batch:
            log.feed(*record)
    assert log.final_violations(reported_is_enough=True) != []
    log.feed("violations.v1", "s/0", {"stream": "s", "shard": 0, "violations": [violation]})
    assert log.final_violations(reported_is_enough=True) == []
    assert log.final_violations() != []


def gone() -> list[Record]:
    """The batch in which the stream is dropped."""
    dropped = decision(outcome="dropped", revision=2, sequence=2, shards_placed=0)
    return [dropped, ("assignments.v1", "s/0", None)]


def again(epoch: int) -> list[Record]:
    """The batch in which a stream of the same name is created."""
    return [decision(revision=3, sequence=3), assignment(epoch, "a c")]


def test_a_stream_may_go_and_come_again() -> None:
    forgotten: list[Record] = [("decisions.v1", "s", None)]
    assert judged([*lawful(), gone()]) == []
    assert judged([*lawful(), gone(), forgotten]) == []
    assert judged([*lawful(), gone(), again(4)]) == []
    assert judged([*lawful(), gone(), forgotten, again(9)]) == []
    assert judged([*lawful(), [*gone(), *again(4)]]) == []


@pytest.mark.parametrize(
    ("batches", "found"),
    [
        ([gone()[:1]], "s is dropped with 2 replicas"),
        ([[("decisions.v1", "s", None)]], "decision s was forgotten as placed"),
        ([gone(), gone()[1:]], "s/0 was taken away and was not there"),
        ([gone(), again(3)], "s/0 went to epoch 3"),
        ([gone(), again(1)], "s/0 went to epoch 1"),
    ],
)
def test_what_drops_a_stream_wrongly_is_found(batches: list[list[Record]], found: str) -> None:
    log = Log()
    for batch in [*lawful(), *batches]:
        for topic, key, value in batch:
            log.feed(topic, key, deepcopy(value))
        if log.decisions:
            log.commit()
    assert any(found in each for each in log.violations()), log.violations()


def test_a_replica_may_go_when_its_executor_says_so() -> None:
    short = decision(outcome="partial", revision=2, shards_placed=0, replicas_missing=1)
    batch = [short, assignment(4, "a"), missing()]
    for told in (True, False):
        log = Log()
        for records in [*lawful(), batch]:
            if told and records is batch:
                log.lose(("s", 0), "c")
            for topic, key, value in records:
                log.feed(topic, key, deepcopy(value))
            log.commit()
        assert (not log.violations()) == told, log.violations()


ASKED = OperatorAsked(1, "r1", Action.CORDON, "a1")
GRANTED = Answer(
    "r1", "cordon", "a1", AnswerOutcome.ACCEPTED, 1, Reason(Code.REQUEST_ACCEPTED, "so")
)
REFUSED = replace(GRANTED, outcome=AnswerOutcome.REFUSED, reason=Reason(Code.NODE_UNKNOWN, "no"))
OVER = replace(GRANTED, outcome=AnswerOutcome.ENDED, reason=Reason(Code.REQUEST_ENDED, "over"))


@pytest.mark.parametrize(
    ("batches", "says"),
    [
        ([([ASKED], [GRANTED]), ([], [OVER])], ""),
        ([([ASKED], [REFUSED])], ""),
        ([([ASKED], [])], "were answered by []"),
        ([([ASKED], [GRANTED, GRANTED])], "were answered by"),
        ([([], [GRANTED])], "requests [] were answered by"),
        ([([ASKED], [replace(GRANTED, target="b1")])], "were answered by"),
        ([([ASKED], [REFUSED]), ([], [OVER])], "which was not accepted"),
        ([([ASKED], [replace(REFUSED, reason=GRANTED.reason)])], "is refused with"),
    ],
)
def test_every_request_has_one_answer(
    batches: list[tuple[list[OperatorAsked], list[Answer]]], says: str
) -> None:
    log = Log()
    for events, answers in batches:
        log.hear(Ready(answers=answers), events)
    found = log.violations()
    assert bool(found) == bool(says)
    assert says in "".join(found)
