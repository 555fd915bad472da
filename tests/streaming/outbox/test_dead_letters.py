"""What a dead letter holds of the record it is about."""

from hashlib import sha256

from schemas import generate
from schemas.asyncapi import document
from schemas.topics import DEAD_LETTERS
from streaming.codec import RawRecord, RefusedRecord
from streaming.outbox.dead_letters import (
    HEADER_BYTES_MAX,
    LETTER_VALUE_BYTES_MAX,
    LETTERS_PER_SECOND,
    DeadLetterWriter,
    make_letter,
)
from tests.builders.batches import Driver, errors, of_topic
from tests.builders.kafka_rows import registered


def test_a_dead_letter_holds_the_first_kib_only() -> None:
    value = b"x" * 5_000
    long = RawRecord("streams.v1", 0, 0, 0, b"k" * 5_000, value, [("h", b"y" * HEADER_BYTES_MAX)])
    letter = make_letter(long, "decode", "NOT_JSON", "d")
    assert (letter.key, letter.value) == (
        b"k" * LETTER_VALUE_BYTES_MAX,
        value[:LETTER_VALUE_BYTES_MAX],
    )
    assert errors(letter)["value.bytes"] == "5000"
    assert errors(letter)["value.sha256"] == sha256(value).hexdigest()
    assert "h" not in dict(letter.headers)


def test_a_dead_letter_of_nothing() -> None:
    letter = make_letter(
        RawRecord("streams.v1", 0, 0, 0, None, None, []), "decode", "EMPTY_VALUE", "d"
    )
    assert (letter.key, letter.value) == (None, None)
    assert errors(letter)["value.bytes"] == "0"


def refused(
    offset: int, at: int, code: str = "NOT_JSON", topic: str = "streams.v1"
) -> RefusedRecord:
    return RefusedRecord(
        RawRecord(topic, 0, offset, at, b"k", b"torn", []), "decode", code, f"at {offset}"
    )


def test_in_a_flood_what_has_no_letter_is_in_a_summary_of_its_reason_and_place() -> None:
    letters = DeadLetterWriter(2)
    flood = [refused(offset, 1_000 + offset) for offset in range(5)]
    others = [refused(9, 1_005, "EMPTY_VALUE"), refused(3, 1_006, topic="acks.v1")]
    written, left_out = letters.make_letters([*flood, *others])
    told = [errors(each) for each in written]
    assert [(each["topic"], each["offset"], each.get("count")) for each in told] == [
        ("streams.v1", "0", None),
        ("streams.v1", "1", None),
        ("streams.v1", "9", None),
        ("acks.v1", "3", "1"),
        ("streams.v1", "2", "3"),
    ]
    assert (told[-1]["offset.last"], told[-1]["reason"], told[-1]["stage"]) == (
        "4",
        "NOT_JSON",
        "decode",
    )
    assert (written[-1].key, written[-1].value) == (None, None)
    assert left_out == {"NOT_JSON": 4}


def test_asyncapi_describes_the_headers_that_are_written() -> None:
    written, _ = DeadLetterWriter(1).make_letters([refused(0, 1_000), refused(1, 1_000)])
    names = {name for letter in written for name, _ in letter.headers}
    messages = document(generate.MODELS, generate.examples())["components"]["messages"]
    assert names == set(messages["DeadLetter"]["headers"]["properties"])


def test_the_limit_is_one_of_seconds_of_append_time_and_survives_batches() -> None:
    letters = DeadLetterWriter(1)
    assert letters.make_letters([refused(0, 1_999)])[1] == {}
    assert letters.make_letters([refused(1, 1_999)])[1] == {"NOT_JSON": 1}
    assert letters.make_letters([refused(2, 2_000)])[1] == {}
    assert letters.make_letters([refused(3, 1_500)])[1] == {"NOT_JSON": 1}, (
        "a partition that is behind"
    )


def test_a_flood_leaves_the_good_and_every_record_is_counted() -> None:
    driver, size = Driver(), LETTERS_PER_SECOND + 400
    flood = [RawRecord("acks.v1", 0, n, 1_100 + n // 2, b"k", b"torn", []) for n in range(size)]
    commits = driver.batch(flood, [registered("n1", 1, location="/z1", offset=0, at=1_500)])
    assert len(of_topic(commits, "topology.v1")) == 1
    assert len(commits) == 1, "what is refused takes no transaction for each thousand"
    told = [errors(each) for each in of_topic(commits, DEAD_LETTERS)]
    summaries = [each for each in told if "count" in each]
    assert len(told) - len(summaries) == LETTERS_PER_SECOND
    assert sum(int(each["count"]) for each in summaries) == 400
    assert summaries[-1]["offset.last"] == str(size - 1)
