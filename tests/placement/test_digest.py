"""The digest's arithmetic: hashes of records of shards, made of columns."""

from itertools import product

import numpy as np
import pytest

from placement.choice import hash64
from placement.digest import keyed

STREAMS = [hash64(name) for name in ("", "orders", "payments")]
CONTENTS = [hash64(text) for text in ("one kind", "another kind")]
NUMBERS = [0, 1, 1_000_000]


def _one(content: int, stream: int, number: int) -> int:
    found = keyed(np.uint64(content), np.array([stream], np.uint64), np.array([number], np.int32))
    return int(found[0])


def test_hashes_of_columns_are_those_of_one_by_one() -> None:
    rows = [*product(CONTENTS, STREAMS, NUMBERS)]
    contents, streams, numbers = (np.array(each, np.uint64) for each in zip(*rows, strict=True))
    found = keyed(contents, streams, numbers.astype(np.int64)).tolist()
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
    all_alike = keyed(np.full(len(STREAMS), CONTENTS[0], np.uint64), streams, numbers)
    assert keyed(np.uint64(CONTENTS[0]), streams, numbers).tolist() == all_alike.tolist()


def test_what_is_said_of_two_shards_does_not_cancel_out() -> None:
    """The sum changes when two shards exchange what is said of them."""
    streams, numbers = np.array([STREAMS[1]] * 2, np.uint64), np.arange(2)
    contents = np.array(CONTENTS, np.uint64)
    sums = {int(keyed(each, streams, numbers).sum()) for each in (contents, contents[::-1])}
    assert len(sums) == 2
