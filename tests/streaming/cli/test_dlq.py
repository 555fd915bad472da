"""Goal: `placer dlq` shows what was refused and sends it again, whole or not at all.

Method: letters are written to the embedded broker as the application writes them, with or without
the record that they are of.
"""

from collections.abc import Callable

import orjson
import pytest
from typer.testing import Result

from schemas.topics import full_name
from streaming.brokers import CommittedReader, Record, make_producer
from streaming.codec import RawRecord, RefusedRecord
from streaming.outbox import DeadLetterWriter
from streaming.outbox.dead_letters import make_letter

Placer = Callable[..., Result]
SHORT = RawRecord(
    "streams.v1", 0, 40, 1_700_000_000_000, b"a\x1b[31m", b"no JSON", [("own", b"\xff")]
)
EMPTY = RawRecord("acks.v1", 0, 41, 1_700_000_000_000, None, None, [])


def write_flood(at: tuple[str, str], size: int) -> None:
    flood = [
        RefusedRecord(SHORT._replace(offset=n), "decode", "NOT_JSON", "torn") for n in range(size)
    ]
    letters, _ = DeadLetterWriter(1).make_letters(flood)
    producer = make_producer(at[0])
    for letter in letters:
        name = full_name(letter.topic, at[1])
        producer.produce(name, letter.value, letter.key, headers=letter.headers)
        assert producer.flush(20) == 0


def write(at: tuple[str, str], *raws: RawRecord, code: str = "NOT_JSON") -> None:
    producer = make_producer(at[0])
    for raw in raws:
        letter = make_letter(raw, "decode", code, "line 1 is torn")
        name = full_name(letter.topic, at[1])
        producer.produce(name, letter.value, letter.key, headers=letter.headers)
        assert producer.flush(20) == 0


def sent(at: tuple[str, str], raw: RawRecord) -> RawRecord:
    """Put the record itself on its topic; returns it with its place."""
    producer = make_producer(at[0])
    producer.produce(full_name(raw.topic, at[1]), raw.value, raw.key, headers=raw.headers)
    assert producer.flush(20) == 0
    return raw._replace(offset=len(read(at, raw.topic)) - 1)


def read(at: tuple[str, str], topic: str) -> list[Record]:
    with CommittedReader(*at, [topic]) as reader:
        return reader.read_to_end()


def test_letters_are_shown(placer: Placer, bootstrap: str, prefix: str) -> None:
    at = (bootstrap, prefix)
    write(at, SHORT)
    write(at, EMPTY, code="EMPTY_VALUE")
    text = placer("dlq", "show", at=at).stdout
    assert text.splitlines()[0] == (
        "0/0  2023-11-14T22:13:20.000Z  NOT_JSON  streams.v1-0@40  a\\x1b[31m"
    )
    assert "line 1 is torn" in text.splitlines()[1]
    only = placer("dlq", "show", "--reason", "EMPTY_VALUE", "--output", "json", at=at).stdout
    (line,) = map(orjson.loads, only.splitlines())
    assert (line["id"], line["topic"], line["whole"], line["value_base64"]) == (
        "0/1",
        "acks.v1",
        True,
        None,
    )


def test_programs_get_numbers_as_numbers_and_text_as_text(
    placer: Placer, bootstrap: str, prefix: str
) -> None:
    at = (bootstrap, prefix)
    word = "Zürich €".encode()
    write(at, SHORT._replace(value=word))
    # A letter keeps 1024 bytes: the first ends within a character, the other is no text at all.
    write(at, SHORT._replace(value=b"xx" + "€".encode() * 500))
    write(at, SHORT._replace(value=b"\xff" * 9))
    write(at, EMPTY, code="EMPTY_VALUE")
    lines = placer("dlq", "show", "--output", "json", at=at).stdout.splitlines()
    whole, cut, bytes_, empty = map(orjson.loads, lines)
    names = ("partition", "offset", "timestamp", "bytes", "count", "offset_last", "value")
    assert [whole[name] for name in names] == [
        *(0, 40, 1_700_000_000_000, len(word), 1, None, word.decode())
    ]
    assert (cut["bytes"], cut["value"]) == (1502, "xx" + "€" * 340)
    assert (bytes_["value"], bytes_["value_base64"]) == (None, "////////////")
    assert (empty["bytes"], empty["value"]) == (0, None)


def test_a_whole_letter_is_sent_again_as_it_was(
    placer: Placer, bootstrap: str, prefix: str
) -> None:
    at = (bootstrap, prefix)
    write(at, SHORT, EMPTY)
    assert "would be sent" in placer("dlq", "redrive", "--id", "0/0", "--dry-run", at=at).stdout
    assert read(at, "streams.v1") == []
    assert placer("dlq", "redrive", "--reason", "NOT_JSON", at=at).exit_code == 0
    (record,) = read(at, "streams.v1")
    assert (record.raw_key, record.raw) == (SHORT.key, SHORT.value)
    assert record.raw_headers == (("own", b"\xff"), ("__placement.redriven", b"0/0"))
    (empty,) = read(at, "acks.v1")
    assert (empty.raw_key, empty.raw) == (None, None)


def test_a_letter_that_was_sent_again_in_vain_is_not_taken_by_its_reason(
    placer: Placer, bootstrap: str, prefix: str
) -> None:
    at = (bootstrap, prefix)
    write(at, SHORT)
    again = SHORT._replace(headers=[*SHORT.headers, ("__placement.redriven", b"0/0")])
    write(at, again)
    result = placer("dlq", "redrive", "--reason", "NOT_JSON", "--dry-run", at=at)
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["0/1"]
    assert "sent again from 0/0" in placer("dlq", "show", at=at).stdout


@pytest.mark.parametrize("long", ["value", "headers"])
def test_what_was_cut_is_read_again_from_where_it_lay(
    placer: Placer, bootstrap: str, prefix: str, long: str
) -> None:
    at = (bootstrap, prefix)
    big = SHORT._replace(value=b"{" * 5_000) if long == "value" else SHORT
    big = big if long == "value" else SHORT._replace(headers=[("own", b"x" * 2_000)])
    sent(at, SHORT)
    write(at, sent(at, big))
    assert placer("dlq", "redrive", "--id", "0/0", at=at).exit_code == 0
    record = read(at, "streams.v1")[-1]
    assert (record.raw, list(record.raw_headers[:-1])) == (big.value, big.headers)
    assert len(read(at, "streams.v1")) == 3


def test_what_was_cut_and_deleted_is_refused_by_name(
    placer: Placer, bootstrap: str, prefix: str
) -> None:
    at = (bootstrap, prefix)
    write(at, SHORT._replace(value=b"{" * 5_000), SHORT)
    result = placer("dlq", "redrive", "--reason", "NOT_JSON", at=at)
    assert result.exit_code == 1
    assert (
        f"letter 0/0 holds 1024 of 5000 bytes, and {prefix}streams.v1-0 offset 40 was deleted"
        in result.output
    )
    assert len(read(at, "streams.v1")) == 1, "the other was sent"


def test_wrong_usage_is_told(placer: Placer, bootstrap: str, prefix: str) -> None:
    assert placer("dlq", "redrive", at=(bootstrap, prefix)).exit_code == 2
    result = placer("dlq", "redrive", "--id", "0/9", at=(bootstrap, prefix))
    assert (
        result.exit_code,
        "0/9: there is no such letter; see: placer dlq show" in result.output,
    ) == (1, True)


def test_the_summary_of_a_flood_is_shown_and_not_sent_again(
    placer: Placer, bootstrap: str, prefix: str
) -> None:
    at = (bootstrap, prefix)
    write_flood(at, 5)
    shown = placer("dlq", "show", at=at).stdout
    assert "NOT_JSON  streams.v1-0@1..4  -" in shown
    assert "4 records have no dead letter of their own; first: torn" in shown
    lines = placer("dlq", "show", "--output", "json", at=at).stdout.splitlines()
    assert [orjson.loads(line)["count"] for line in lines] == [1, 4]
    result = placer("dlq", "redrive", "--reason", "NOT_JSON", at=at)
    assert result.exit_code == 1
    assert "letter 0/1 sums up 4 records of streams.v1-0@1..4" in result.output
    assert [each.raw for each in read(at, "streams.v1")] == [SHORT.value]
