"""Goal: of dead letters the latest are read, older ones by their offsets, one alone by its own.

Method: letters on the embedded broker, in windows of two offsets.
"""

import pytest
from confluent_kafka import Producer

from schemas.topics import DEAD_LETTERS, full_name
from streaming.administration import apply_topics
from streaming.codec import RawRecord
from streaming.console import letters
from streaming.console.letters import KafkaLetters
from streaming.console.pages.dead_letters import format_places, parse_places
from streaming.outbox.dead_letters import make_letter
from streaming.settings import Settings
from streaming.settings.sections import KafkaSettings, TopicSettings


def test_letters_are_read_from_the_end(
    bootstrap: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "LETTERS_READ_MAX", 2)
    apply_topics(bootstrap, prefix, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(5):
        raw = RawRecord("nodes.v1", 0, number, 1_000 + number, b"n", b"{}", [])
        made = make_letter(raw, "decode", "KEY_MISMATCH", f"letter {number}")
        name = full_name(DEAD_LETTERS, prefix)
        producer.produce(name, made.value, made.key, headers=list(made.headers), partition=0)
        assert producer.flush(10) == 0
    kafka, topics = KafkaSettings(bootstrap_servers=bootstrap), TopicSettings(prefix=prefix)
    source = KafkaLetters(Settings(kafka=kafka, topics=topics))
    seen, before = [], {}
    for _ in range(3):
        page = source.read(before)
        seen.append([each.header("message") for each in page.letters])
        before = page.older
    assert seen == [["letter 3", "letter 4"], ["letter 1", "letter 2"], ["letter 0"]]
    assert before == {}
    found = source.find(0, 2)
    assert found is not None
    assert (found.id, found.header("message")) == ("0/2", "letter 2")
    assert [source.find(*place) for place in ((0, 5), (0, 99), (7, 0))] == [None] * 3
    assert len(source.read({0: 99, 5: 1}).letters) == 2, "offsets that are not there"


def test_places_are_read_as_they_are_written() -> None:
    assert parse_places(format_places({2: 88, 0: 1_200})) == {0: 1_200, 2: 88}
    for text in ("", "x", "0:", ":1", "0:-1", "0:1:2", "٣:1", "0:" + "9" * 19):
        assert parse_places(text) == {}, text
