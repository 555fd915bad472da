"""What a dead letter holds of the record it is about."""

from hashlib import sha256

from streaming.dead_letter import HEADER_BYTES_MAX, VALUE_BYTES_MAX, dead_letter
from streaming.source import Raw
from tests.streaming.batches import errors


def test_a_dead_letter_holds_the_first_kib_only() -> None:
    value = b"x" * 5_000
    long = Raw("streams.v1", 0, 0, 0, b"k" * 5_000, value, [("h", b"y" * HEADER_BYTES_MAX)])
    letter = dead_letter(long, "decode", "NOT_JSON", "d")
    assert (letter.key, letter.value) == (b"k" * VALUE_BYTES_MAX, value[:VALUE_BYTES_MAX])
    assert errors(letter)["value.bytes"] == "5000"
    assert errors(letter)["value.sha256"] == sha256(value).hexdigest()
    assert "h" not in dict(letter.headers)


def test_a_dead_letter_of_nothing() -> None:
    letter = dead_letter(Raw("streams.v1", 0, 0, 0, None, None, []), "decode", "EMPTY_VALUE", "d")
    assert (letter.key, letter.value) == (None, None)
    assert errors(letter)["value.bytes"] == "0"
