"""Every field of every record of record counts in the digest; what does not is listed here."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import pytest

from placement.hashing import digest64, hash64
from placement.model import (
    SEEN_MAX,
    AdministrativeState,
    Assignment,
    Code,
    Decision,
    Guard,
    HoldDown,
    Liveness,
    Lives,
    Memory,
    Move,
    MoveKind,
    MoveState,
    NodeAttributes,
    NodeView,
    Outcome,
    Pending,
    PendingLife,
    Reason,
    RefusedLife,
    Reporting,
    ShardLoad,
    StreamSpec,
    Transition,
    Violation,
    ViolationClass,
)
from placement.state.digest import (
    hash_with_keys,
    of_assignments,
    of_decision,
    of_extras,
    of_load,
    of_memory,
    of_move,
    of_node,
    of_violations,
)

REASON = Reason(Code.NODE_DEAD, "n1 is dead", 3, 2, "rack", ("/a", "/b"), "at most 1 per rack")
SPEC = StreamSpec(
    "s", 2, 3, {"rules": [{"at_most": 1}]}, "a=b", "majority", (5, 7), "d", ("r1", "r2"), "all"
)
ATTRIBUTES = NodeAttributes("/a/b", (("k", "v"),), "h:1", 1.5, 9, True, (1, 2))
LIVES = Lives(
    PendingLife("b", 2, "hash", 5, 6, ATTRIBUTES, external=True),
    RefusedLife("c", 7, REASON),
    ("x", "y"),
)
# No field is None: every one of them can be changed.
# Fields that came later are not in the records that the formula is pinned by.
NAMED = replace(SPEC, uid="u1", adopt="observed", expected_load=(("disk_bytes", 5),))
DECISION = Decision(
    "s", 1, 2, Outcome.PLACED, SPEC, "hash", "simple", 2, 1, (REASON,), (REASON,), 9, SPEC
)
MOVE = Move(
    "m1", MoveKind.REPLACE, "s", 1, 2, "n1", "n2", 3, MoveState.ISSUED, "drain", REASON, 5, 6,
    "n3", "m0", 7, 8, 9,
)  # fmt: skip
NODE = NodeView(
    "n1", "a", 1, "hash", 2, ATTRIBUTES, Liveness.UP, 3, AdministrativeState.DRAINING,
    Guard.QUARANTINED, (Transition(1, Liveness.UP),), HoldDown(1, 2, active=True),
    Reporting(True, 3, "reported up"), "/c", Pending("/d", (("k", "w"),), "ih", "/e"), REASON,
    "inventory", LIVES,
)  # fmt: skip
SIZED = replace(ATTRIBUTES, capacities=(("disk_bytes", 5),))
SIZED_LIFE = PendingLife("b", 2, "hash", 5, 6, SIZED, external=True)
SIZED_NODE = replace(NODE, attributes=SIZED, lives=replace(LIVES, pending=SIZED_LIFE))
VIOLATION = Violation(
    "s", 1, "at most 1", "required", 2, 1, ViolationClass.FIXABLE, REASON, 5, "rack", "/a"
)
MEMORY = Memory("hold", "fleet", {"at": 1, "nodes": ["n1"]}, 5)
ASSIGNMENT = Assignment("s", 1, 2, ("a", "b"), ("c",), ("b",), "m1", 9, ("replica", "cold"))

# A rebuild does not read back when an assignment was decided: it is not kept by shard.
LEFT_OUT = {("Assignment", "decided_at"), ("Assignment", "uid")}


def variants(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every way to change one leaf of a value, with the path to it."""
    parts, rebuilt = parts_of(value)
    if rebuilt is None:
        yield path, other(value, path)
    elif not is_dataclass(value) and not hasattr(value, "_fields"):
        yield f"{path}[]", rebuilt(dict([*parts.items()][:-1]))
    for name, each in parts.items():
        for at, changed in variants(each, f"{path}.{name}"):
            yield at, rebuilt(parts | {name: changed})


def parts_of(value: Any) -> tuple[dict[Any, Any], Any]:
    """The parts of a value by name, and what makes such a value of parts; None for a leaf."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict(), lambda parts: type(value)(**parts)
    if isinstance(value, tuple | list):
        return dict(enumerate(value)), lambda parts: type(value)(parts.values())
    if isinstance(value, Mapping):
        return dict(value), dict
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
        return {n: getattr(value, n) for n in names}, lambda parts: replace(value, **parts)
    return {}, None


def other(value: Any, path: str) -> Any:
    if isinstance(value, Enum):
        return next(each for each in type(value) if each is not value)
    if isinstance(value, bool | str):
        return f"{value}x" if isinstance(value, str) else not value
    assert isinstance(value, int | float), f"{path} of the example is {value!r}: set it"
    return value + 1


def of_assignment(record: Assignment) -> int:
    replicas = np.array([digest64("node", each) for each in record.replicas], np.uint64)
    stream, number = np.array([hash64(record.stream)], np.uint64), np.array([record.shard])
    columns = np.array([record.epoch]), np.array([len(record.replicas)])
    told = np.array([of_extras(record)], np.uint64)
    return int(of_assignments(stream, number, *columns, replicas, told)[0])


def of_violation(record: Violation) -> int:
    content = np.uint64(of_violations((record,)))
    stream, number = np.array([hash64(record.stream)], np.uint64), np.array([record.shard])
    return int(hash_with_keys(content, stream, number)[0])


@pytest.mark.parametrize(
    ("record", "hashed"),
    [
        (replace(DECISION, spec=NAMED, requested=NAMED), of_decision),
        (
            MOVE._replace(
                renewed_at=10, bytes_done=11, bytes_total=12, uid="u1", leader="n4", bytes=13
            ),
            of_move,
        ),
        (SIZED_NODE, of_node),
        (ShardLoad("s", 1, (("disk_bytes", 5),), "n1", 7), of_load),
        (VIOLATION, of_violation),
        (MEMORY, of_memory),
        (ASSIGNMENT._replace(uid="u1"), of_assignment),
    ],
    ids=lambda value: type(value).__name__ if not callable(value) else "",
)
def test_every_field_of_a_record_counts(record: Any, hashed: Any) -> None:
    known, alike = hashed(record), []
    seen = {known}
    for path, changed in variants(record):
        if (type(record).__name__, path.removeprefix(".")) in LEFT_OUT:
            assert hashed(changed) == known
        elif hashed(changed) in seen:
            alike.append(path)
        seen.add(hashed(changed))
    assert alike == []


@pytest.mark.parametrize("missing", [each for each in Move._field_defaults if each != "reminded"])
def test_fields_that_are_none_are_told_apart(missing: str) -> None:
    """A value of one optional field is none of another's."""
    bare = MOVE._replace(**dict.fromkeys(Move._field_defaults))
    others = [bare._replace(**{name: 1}) for name in Move._field_defaults if name != missing]
    assert of_move(bare._replace(**{missing: 1})) not in {of_move(bare), *map(of_move, others)}


def test_of_what_a_reason_has_seen_the_published_part_counts() -> None:
    """A rebuild reads no more back."""
    names = tuple(f"/r{number}" for number in range(SEEN_MAX + 1))
    cut = [replace(REASON, seen=names[:count]) for count in (SEEN_MAX - 1, SEEN_MAX, SEEN_MAX + 1)]
    for hashes in (
        [of_move(MOVE._replace(reason=each)) for each in cut],
        [of_node(replace(NODE, quarantine=each)) for each in cut],
    ):
        assert hashes[0] != hashes[1] == hashes[2]


def test_the_formula_is_pinned() -> None:
    """Who changes the formula raises `DIGEST_VERSION`, or no older state is accepted."""
    found = [of_decision(DECISION), of_move(MOVE), of_node(NODE), of_violation(VIOLATION)]
    found += [of_memory(MEMORY), of_assignment(ASSIGNMENT)]
    assert [f"{each:016x}" for each in found] == [
        "f56a41097206675e",
        "dcc091a3bdc4129e",
        "493c04d29c0a2caf",
        "d7d909aaa5707e12",
        "d098e8015e84fe46",
        "2999ce273d0db918",
    ]
