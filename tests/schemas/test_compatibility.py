"""v1 only grows: the schemas are compared with those of the first release, kept in golden/.

Golden files are changed by hand and only to record an addition; a change of what is there needs a
v2 of the message.
"""

import copy
import json
from pathlib import Path

import pytest

from schemas import generate, limits
from schemas.inputs import INPUTS

GOLDEN = Path(__file__).parent / "golden"
WORDS = ("title", "description", "default", "examples")


def without_words(schema):
    """The part of a schema that decides what is valid. A property may be called `description`."""
    if isinstance(schema, list):
        return [without_words(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: without_words(part) for name, part in value.items()}
        if key in ("properties", "$defs")
        else without_words(value)
        for key, value in schema.items()
        if key not in WORDS
    }


# Patterns that came to allow more, each with what it was: names as long as Kafka's topics, racks
# with any character. No writer is refused, and who reads text reads these.
WIDENED = {
    r"^[A-Za-z0-9_.-]{1,128}$": limits.ID_PATTERN,
    r"^(/[A-Za-z0-9_.-]{1,128}){1,8}$": limits.LOCATION_PATTERN,
}
# Of these inputs the schema came to list the words that were legal ever since: any other one had
# its stream rejected, and still has.
REJECTED_BEFORE = ("repair", "quorum")


def replace_text(value, old, new):
    """The value with one text in the place of another, as name of a field or as its value."""
    if isinstance(value, list):
        return [replace_text(part, old, new) for part in value]
    if isinstance(value, dict):
        return {
            new if name == old else name: replace_text(part, old, new)
            for name, part in value.items()
        }
    return new if value == old else value


def is_listed(old, new, definitions):
    """Whether a string came to have listed values: no break for who reads strings."""
    if "anyOf" in old and "anyOf" in new and len(old["anyOf"]) == len(new["anyOf"]):
        pairs = zip(without_words(old["anyOf"]), without_words(new["anyOf"]), strict=True)
        return all(one == other or is_listed(one, other, definitions) for one, other in pairs)
    listed = definitions.get(new.get("$ref", "").rpartition("/")[2], new)
    return old.get("type") == listed.get("type") == "string" and "enum" in listed


def breaks(old, new, *, is_input, place=""):
    """What in `new` would break a writer (of inputs) or a reader (of outputs) of `old`."""
    found = []
    for name, definition in old.get("$defs", {}).items():
        if name not in new.get("$defs", {}):
            found.append(f"{place}{name} is gone")
        else:
            now = new["$defs"][name]
            found += breaks(definition, now, is_input=is_input, place=f"{place}{name}.")
    for name, prop in old.get("properties", {}).items():
        now = new.get("properties", {}).get(name)
        if now is None:
            found.append(f"{place}{name} is gone")
        elif without_words(prop) != without_words(now):
            listed = is_listed(prop, now, new.get("$defs", {}))
            if not listed or (is_input and name not in REJECTED_BEFORE):
                found.append(f"{place}{name} has changed")
    if "enum" in old and set(old["enum"]) - set(new.get("enum", ())):
        found.append(f"{place}enum lost values")
    required, required_now = set(old.get("required", ())), set(new.get("required", ()))
    if is_input:
        found += [f"{place}{name} is now required" for name in required_now - required]
    else:
        found += [f"{place}{name} is no longer always there" for name in required - required_now]
    return found


@pytest.mark.parametrize("name", generate.MODELS)
def test_schema_is_compatible_with_the_first_release(name):
    golden = json.loads((GOLDEN / f"{name}.schema.json").read_text("utf-8"))
    for old, new in WIDENED.items():
        golden = replace_text(golden, old, new)
    is_input = name in INPUTS or name == "ClusterFile"
    assert breaks(golden, generate.json_schema(name), is_input=is_input) == []


def test_no_message_of_the_first_release_is_gone():
    assert {path.name.split(".")[0] for path in GOLDEN.iterdir()} <= set(generate.MODELS)


def _lose_field(schema):
    del schema["properties"]["node_id"]


def _change_type(schema):
    schema["properties"]["sequence"]["type"] = "string"


def _narrow(schema):
    schema["properties"]["node_id"]["pattern"] = "^[a-z]{1,8}$"


def _require(schema):
    schema["required"].append("host")


def _list_values(schema):
    schema["properties"]["node_id"] = {"$ref": "#/$defs/NodeId"}
    schema["$defs"] = {"NodeId": {"type": "string", "enum": ["a", "b"]}}


@pytest.mark.parametrize("damage", [_list_values, _lose_field, _change_type, _narrow, _require])
def test_a_break_of_an_input_is_noticed(damage):
    old = generate.json_schema("NodeRegistered")
    new = copy.deepcopy(old)
    damage(new)
    assert len(breaks(old, new, is_input=True)) == 1


def _optional(schema):
    schema["required"].remove("outcome")


def _lose_outcome(schema):
    schema["$defs"]["Outcome"]["enum"].remove("waiting")


def _change_reason(schema):
    schema["$defs"]["Reason"]["properties"]["need"] = {"type": "string"}


@pytest.mark.parametrize("damage", [_optional, _lose_outcome, _change_reason])
def test_a_break_of_an_output_is_noticed(damage):
    old = generate.json_schema("Decision")
    new = copy.deepcopy(old)
    damage(new)
    assert len(breaks(old, new, is_input=False)) == 1


def test_additions_are_no_breaks():
    old = generate.json_schema("Decision")
    new = copy.deepcopy(old)
    new["properties"]["of_a_later_day"] = {"type": "object"}
    new["required"].append("of_a_later_day")
    new["$defs"]["Outcome"]["enum"].append("of_a_later_day")
    new["properties"]["strategy"] = {"$ref": "#/$defs/Strategy"}
    new["$defs"]["Strategy"] = {"type": "string", "enum": ["spread"]}
    new["properties"]["stream"]["description"] = "other words"
    assert breaks(old, new, is_input=False) == []
