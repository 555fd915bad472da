"""The digest's arithmetic: hashes of records of shards, made of columns."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.hashing import digest64, hash64
from placement.model import Assignment, Code, Reason, Violation, ViolationClass
from placement.state.digest import (
    hash_with_keys,
    of_assignments,
    of_each_violations,
    of_extras,
    of_violations,
)
from tests.builders.drawn import examples

STREAMS = [hash64(name) for name in ("", "orders", "payments")]
CONTENTS = [hash64(text) for text in ("one kind", "another kind")]
NUMBERS = [0, 1, 1_000_000]


def _one(content: int, stream: int, number: int) -> int:
    found = hash_with_keys(
        np.uint64(content), np.array([stream], np.uint64), np.array([number], np.int32)
    )
    return int(found[0])


def test_hashes_of_columns_are_those_of_one_by_one() -> None:
    rows = [*product(CONTENTS, STREAMS, NUMBERS)]
    contents, streams, numbers = (np.array(each, np.uint64) for each in zip(*rows, strict=True))
    found = hash_with_keys(contents, streams, numbers.astype(np.int64)).tolist()
    assert found == [_one(*row) for row in rows]
    assert len(set(found)) == len(rows)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param((1, 2, 3), (2, 1, 3), id="content and stream"),
        pytest.param((1, 2, 3), (3, 2, 1), id="content and number"),
        pytest.param((1, 2, 3), (1, 3, 2), id="stream and number"),
        pytest.param((1, 2, 3), (4, 2, 3), id="content"),
        pytest.param((0, 0, 0), (0, 0, 1), id="nothing but zeros"),
    ],
)
def test_hashes_tell_apart(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    assert _one(*one) != _one(*other)


def test_one_content_goes_for_all_shards() -> None:
    streams, numbers = np.array(STREAMS, np.uint64), np.arange(len(STREAMS))
    all_alike = hash_with_keys(np.full(len(STREAMS), CONTENTS[0], np.uint64), streams, numbers)
    assert hash_with_keys(np.uint64(CONTENTS[0]), streams, numbers).tolist() == all_alike.tolist()


def test_what_is_said_of_two_shards_does_not_cancel_out() -> None:
    """The sum changes when two shards exchange what is said of them."""
    streams, numbers = np.array([STREAMS[1]] * 2, np.uint64), np.arange(2)
    contents = np.array(CONTENTS, np.uint64)
    sums = {
        int(hash_with_keys(each, streams, numbers).sum()) for each in (contents, contents[::-1])
    }
    assert len(sums) == 2


AT_REST = Assignment("orders", 3, 7, ("a", "b", "c"), (), (), None, 1)
NAMES = st.lists(st.sampled_from("abc"), max_size=4).map(tuple)
RECORDS = st.builds(
    Assignment,
    st.sampled_from(["orders", "payments"]),
    st.integers(0, 2),
    st.integers(0, 2),
    NAMES,
    NAMES,
    NAMES,
    st.none() | st.just("m1"),
    st.integers(0, 2),
    st.none() | NAMES.filter(bool),
)


def _hashes(records: list[Assignment]) -> list[int]:
    replicas = [node_id for each in records for node_id in each.replicas]
    return of_assignments(
        np.array([hash64(each.stream) for each in records], np.uint64),
        np.array([each.shard for each in records], np.int32),
        np.array([each.epoch for each in records], np.int64),
        np.array([len(each.replicas) for each in records], np.int64),
        np.array([digest64("node", node_id) for node_id in replicas], np.uint64),
        np.array([of_extras(each) for each in records], np.uint64),
    ).tolist()


@examples(50)
@given(st.lists(RECORDS, max_size=12))
def test_assignments_together_hash_as_alone_and_by_what_they_say(found: list[Assignment]) -> None:
    """Lists of all lengths beside each other; when it was decided says nothing."""
    hashes = _hashes(found)
    assert hashes == [_hashes([each])[0] for each in found]
    assert len(set(hashes)) == len({each._replace(decided_at=0) for each in found})


@pytest.mark.parametrize(
    "changed",
    [
        {"replicas": ("b", "a", "c")},
        {"replicas": ("a", "b")},
        {"replicas": ()},
        {"replicas": ("a", "b", "c", "c")},
        {"epoch": 3, "shard": 7},
        {"adding": ("d",)},
        {"removing": ("d",)},
        {"move_id": "d"},
        {"roles": ("d",)},
    ],
)
def test_an_assignment_hashes_all_it_says(changed: dict[str, object]) -> None:
    one, other, without = _hashes([AT_REST, AT_REST._replace(**changed), AT_REST])
    assert one == without != other


def test_assignments_of_a_shard_are_none_of_its_other_records() -> None:
    """An assignment hashes differently from a record whose content are the same numbers."""
    empty = AT_REST._replace(replicas=())
    streams, numbers = np.array([hash64("orders")], np.uint64), np.array([3])
    contents = (np.uint64(0), np.uint64(empty.epoch), np.uint64(hash64("assignment")))
    others = [int(hash_with_keys(each, streams, numbers)[0]) for each in contents]
    assert _hashes([empty])[0] not in others


_SAID = st.builds(
    lambda live, code, kind: Violation(
        "s", 0, "replicas", "required", live, 3, kind, Reason(code, "why"), 7
    ),
    st.integers(1, 2),
    st.sampled_from([Code.NODE_DEAD, Code.LIMIT_REACHED]),
    st.sampled_from([ViolationClass.FIXABLE, ViolationClass.DEFERRED]),
)


@examples(100)
@given(st.lists(st.lists(_SAID, max_size=2).map(tuple), max_size=8))
def test_violations_of_many_shards_are_hashed_as_those_of_each(
    found: list[tuple[Violation, ...]],
) -> None:
    assert [*of_each_violations(found)] == [*map(of_violations, found)]
