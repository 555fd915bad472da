"""Goal: the checked-in AsyncAPI document is what catalogue and models say, and holds together."""

import json
from collections.abc import Iterator
from typing import Any

from schemas import generate
from schemas.asyncapi import document
from schemas.inputs import INPUTS
from schemas.outputs import OUTPUTS
from schemas.topics import CATALOGUE, full_name

WRITTEN = json.loads((generate.PACKAGE / "asyncapi.json").read_text("utf-8"))


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for below in value.values():
            yield from references(below)
    elif isinstance(value, list):
        for below in value:
            yield from references(below)


def test_it_is_fresh() -> None:
    assert document(generate.MODELS, generate.examples()) == WRITTEN


def test_every_message_has_an_example_that_its_headers_and_schema_allow() -> None:
    messages = WRITTEN["components"]["messages"]
    assert messages.keys() >= {*INPUTS, *OUTPUTS}
    for name, message in messages.items():
        (example,) = message["examples"]
        described = message["headers"]["properties"]
        assert example["headers"].keys() <= described.keys(), name
        assert set(message["headers"].get("required", ())) <= example["headers"].keys(), name
        if name != "DeadLetter":
            assert example["payload"] == generate.examples()[name]


def test_it_has_every_topic_and_every_message() -> None:
    addresses = [channel["address"] for channel in WRITTEN["channels"].values()]
    assert addresses == [full_name(topic) for topic in sorted(CATALOGUE, key=lambda t: t.name)]
    messages = set(WRITTEN["components"]["messages"])
    assert messages == {*INPUTS, *OUTPUTS, "DeadLetter"}
    actions = {each["channel"]["$ref"]: each["action"] for each in WRITTEN["operations"].values()}
    for topic in CATALOGUE:
        expected = "receive" if topic.direction == "in" else "send"
        assert actions[f"#/channels/{topic.name}"] == expected


def test_every_reference_leads_somewhere() -> None:
    found = {*references(WRITTEN)}
    assert found
    for reference in found:
        file, _, inside = reference.partition("#")
        if file:
            assert (generate.PACKAGE / file).is_file(), reference
        else:
            value = WRITTEN
            for part in inside.strip("/").split("/"):
                value = value[part]
