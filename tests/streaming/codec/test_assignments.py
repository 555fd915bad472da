"""Reading assignments by the block gives what reading them one by one gives, whatever they hold.

The blocks are small here, so that a few records are enough to be read as columns.
"""

import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.model import Assignment, AssignmentColumns
from streaming.codec import assignments
from streaming.codec.assignments import (
    ParsedAssignments,
    assignment_value,
    parse_assignments,
)
from tests.builders.drawn import examples, seeds

Parse = Callable[[Sequence[bytes]], ParsedAssignments]


class Fault(NamedTuple):
    """Why something is not read."""

    kind: str
    text: str


FAULTS = (KeyError, ValueError, TypeError, IndexError, AttributeError)
# What is written where no record says otherwise.
PLAIN = Assignment("orders", 3, 7, ("n1", "n2"), (), (), None, 5)
BUSY = PLAIN._replace(shard=4, adding=("n3",), removing=("n1",), move_id="m1")
IN_ROLES = PLAIN._replace(shard=5, roles=("leader", "witness"))

words = st.sampled_from(
    ["a", "n1", "n2", "orders", "", " ", "move_id", "roles", "null", "ö", "日本", 'q"', "\\", "\n"]
)
at_rest = st.builds(
    Assignment,
    words,
    st.integers(-2, 2**63 + 1),
    st.integers(0, 2**64),
    st.lists(words, max_size=4).map(tuple),
    st.just(()),
    st.just(()),
    st.none(),
    st.integers(0, 2**53),
    st.none(),
    st.none() | words,
)
others = at_rest.flatmap(
    lambda each: st.sampled_from(
        [
            each._replace(adding=("n3",), move_id="m1"),
            each._replace(roles=("leader",) * len(each.replicas)),
            each._replace(removing=("n1",), move_id="m2", roles=()),
        ]
    )
)
# Bodies as no reconciler of this version writes them.
numbers = ("12", "-0", "2.5", "1e3", "NaN", "Infinity", "01", " 5 ", str(2**63), str(-(2**63)))
texts = ('"1"', '""', '"\\ud800"', '"\\u0000"', '"\t"', '"a\nb"', '"')
lists = ("[]", "[ ]", "[null]", '["n1",null]', '["n1"]', "[1]", "[[]]", "[}")
values_of_fields = st.sampled_from([*numbers, *texts, *lists, "null", "true", "{}", ""])
names_of_fields = st.sampled_from(
    [
        *("stream", "shard", "epoch", "replicas", "adding", "removing", "decided_at", "uid"),
        *("move_id", "roles", "more", "move\\u005fid", "sh\\u0061rd", "Shard", ""),
    ]
)
fields = st.tuples(names_of_fields, values_of_fields)


@st.composite
def strange(draw: st.DrawFn) -> bytes:
    """Take a sound record, and change some fields: leave out, alter, repeat, add."""
    body = orjson.loads(assignment_value(draw(at_rest.filter(is_written))))
    pairs = [(name, orjson.dumps(value).decode()) for name, value in body.items()]
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(pairs)))
        how = draw(st.sampled_from(["leave out", "alter", "add"]))
        if how == "add" or place == len(pairs):
            pairs.insert(place, draw(fields))
        elif how == "leave out":
            del pairs[place]
        else:
            pairs[place] = pairs[place][0], draw(values_of_fields)
    gap = draw(st.sampled_from(["", " ", "\n", "\t"]))
    written = f",{gap}".join(f'"{name}":{value}' for name, value in pairs)
    return f"{{{gap}{written}}}".encode("utf-8", "surrogatepass")


def is_written(assignment: Assignment) -> bool:
    """Tell whether orjson writes its numbers."""
    return assignment.shard < 2**64 and assignment.epoch < 2**64


sound = (at_rest | others).filter(is_written).map(assignment_value)
GOOD = assignment_value(PLAIN)
raw = st.sampled_from(
    [
        *(
            b"",
            b"{}",
            b"[]",
            b"null",
            b"1",
            b'"x"',
            b"{",
            b"}",
            b"\x00",
            b"\xff",
            b"\xef\xbb\xbf{}",
        ),
        *(GOOD + tail for tail in (b" ", b"\n", b"\x00", b",", b"x", b"}")),
        *(GOOD + between + GOOD for between in (b"", b",", b"\n", b"null", b" null ")),
        *(GOOD.replace(b"n1", letters) for letters in (b"\xff", b"\xed\xa0\x80")),
        *(GOOD[:40], GOOD[40:]),
    ]
)
records = st.lists(sound | strange() | raw, min_size=1, max_size=6)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignments, "COLUMN_RECORDS_MIN", 1)


@pytest.fixture
def arrow(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the blocks that Arrow has read as columns."""
    found: list[int] = []
    parse = assignments._parse_columns

    def observe(text: bytes, count: int) -> AssignmentColumns | None:
        columns = parse(text, count)
        if columns is not None:
            found.append(count)
        return columns

    monkeypatch.setattr(assignments, "_parse_columns", observe)
    return found


def read_alone(values: Sequence[bytes]) -> list[object]:
    """What each record says by itself, or its fault."""
    return [said for value in values for said in _read(assignments._parse_one_by_one, [value])]


def read_together(values: Sequence[bytes]) -> list[object]:
    """What a block says; where it is refused, what its records say one by one, as `rebuild` asks
    for the one at fault."""
    found = _read(parse_assignments, values)
    if any(isinstance(each, Fault) for each in found):
        return [said for value in values for said in _read(parse_assignments, [value])]
    return found


def _read(parse: Parse, values: Sequence[bytes]) -> list[object]:
    try:
        parsed = parse(values)
    except FAULTS as error:
        return [Fault(type(error).__name__, str(error))]
    return [*parsed.busy, *(row for each in parsed.at_rest for row in _rows(each))]


def _rows(columns: AssignmentColumns) -> list[object]:
    """The assignments in columns, their numbers as the table takes them."""
    assert len({*columns.stream_names}) == len(columns.stream_names)
    assert len({*columns.node_names}) == len(columns.node_names)
    nodes = iter([columns.node_names[node] for node in columns.nodes])
    found: list[object] = [
        (columns.stream_names[stream], _number(shard), _number(epoch), [*islice(nodes, count)])
        for stream, shard, epoch, count in zip(
            columns.streams, columns.shards, columns.epochs, columns.counts, strict=True
        )
    ]
    assert next(nodes, None) is None
    return found


def _number(value: Any) -> object:
    try:
        return int(np.fromiter([value], np.int64)[0])
    except (TypeError, ValueError, OverflowError) as error:
        return Fault(type(error).__name__, str(error))


def in_any_order(found: Sequence[object]) -> list[str]:
    return sorted(map(repr, found))


@given(records)
@examples(300)
def test_a_block_says_what_its_records_say(values: list[bytes]) -> None:
    assert in_any_order(read_together(values)) == in_any_order(read_alone(values))


@pytest.mark.parametrize("seed", seeds(2))
def test_bytes_that_change_at_random_are_read_as_alone(seed: int) -> None:
    random_ = random.Random(seed)
    values = [assignment_value(each) for each in (PLAIN, BUSY, IN_ROLES, PLAIN._replace(epoch=9))]
    for _ in range(300):
        changed = [bytearray(each) for each in values]
        for _ in range(random_.randint(1, 2)):
            line = random_.choice(changed)
            line[random_.randrange(len(line))] = random_.choice(b'\x00\n\t {}[],:"\\01-e.\x7f\xff')
        block = [*map(bytes, changed)]
        assert in_any_order(read_together(block)) == in_any_order(read_alone(block)), block


@pytest.mark.parametrize("busy", [[], [BUSY], [IN_ROLES], [BUSY, IN_ROLES]])
def test_what_was_written_is_read_as_columns(arrow: list[int], busy: list[Assignment]) -> None:
    names = [f"stream {n}" for n in range(3)]
    made = [PLAIN._replace(stream=names[n % 3], shard=n, uid=("u", None)[n % 2]) for n in range(9)]
    parsed = parse_assignments([assignment_value(each) for each in (*busy, *made)])
    assert arrow == [len(made)]
    assert parsed.busy == busy
    assert len(parsed.at_rest) == 1
    assert parsed.at_rest[0].stream_names == names
    assert _rows(parsed.at_rest[0]) == [(a.stream, a.shard, a.epoch, [*a.replicas]) for a in made]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b'{"stream":"a","shard":1}', id="fields are missing"),
        pytest.param(GOOD[:-1] + b',"more":1}', id="a field is not known"),
        pytest.param(GOOD[:-1] + b',"epoch":8}', id="a field comes twice"),
        pytest.param(GOOD.replace(b"3", b"null"), id="null"),
        pytest.param(GOOD.replace(b"7", b"9223372036854775808"), id="2^63"),
        pytest.param(assignment_value(PLAIN._replace(stream='"')), id="an escape"),
        pytest.param(GOOD.replace(b"n1", b"\xff"), id="no UTF-8"),
        pytest.param(GOOD * 2, id="two objects"),
        pytest.param(GOOD.replace(b",", b",\n"), id="line breaks"),
        pytest.param(GOOD + b"null" + GOOD, id="null between two objects"),
        pytest.param(GOOD.replace(b'"adding":[]', b'"adding":["n3"]'), id="a move without its id"),
        pytest.param(GOOD.replace(b'"n2"', b"null"), id="a replica is null"),
        pytest.param(GOOD.replace(b"5", b"{}"), id="an object in it"),
        pytest.param(b"null", id="null alone"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_what_might_be_read_otherwise_is_read_alone(value: bytes) -> None:
    for block in ([GOOD, value], [value, GOOD], [GOOD, value, GOOD]):
        text = b"\n".join(block)
        assert assignments._parse_columns(text, len(block)) is None
        assert in_any_order(read_together(block)) == in_any_order(read_alone(block))


def test_two_that_make_up_for_each_other_are_read_alone() -> None:
    for block in (
        [GOOD + GOOD, b""],
        [GOOD + GOOD, b"", GOOD],
        [GOOD + b"\n" + GOOD, b""],
        [GOOD[:40], GOOD[40:] + GOOD],
    ):
        assert assignments._parse_columns(b"\n".join(block), len(block)) is None
        assert any(isinstance(each, Fault) for each in read_together(block))


def test_pandas_is_not_imported_for_columns() -> None:
    code = (
        "from streaming.codec import assignments; import sys; "
        f"read = assignments._parse_columns({GOOD!r}, 1); "
        "print(read is not None, 'pandas' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["True", "False"]


def test_few_are_read_without_arrow(monkeypatch: pytest.MonkeyPatch, arrow: list[int]) -> None:
    monkeypatch.setattr(assignments, "COLUMN_RECORDS_MIN", 3)
    parse_assignments([GOOD] * 2)
    assert arrow == []
    parse_assignments([GOOD] * 3)
    assert arrow == [3]


def test_without_arrow_all_is_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [assignment_value(each) for each in (PLAIN, BUSY)]
    expected = read_together(values)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assignments._make_column_reader.cache_clear()
    try:
        assert assignments._make_column_reader() is None
        assert read_together(values) == expected
    finally:
        assignments._make_column_reader.cache_clear()
