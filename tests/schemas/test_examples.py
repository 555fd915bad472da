"""Examples, models, JSON Schemas and README are held against each other."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import schemas
from schemas import generate
from schemas.base import Message, unknown_fields
from schemas.envelope import decode, validate
from schemas.inputs import INPUTS
from schemas.topics import CATALOGUE

EXAMPLES = Path(schemas.__file__).parent / "examples"
TOPIC_OF = {message: topic.name for topic in CATALOGUE for message in topic.messages}


def example(name: str) -> dict[str, object]:
    return json.loads((EXAMPLES / f"{name}.json").read_text("utf-8"))


def test_there_is_one_example_per_model():
    assert {path.stem for path in EXAMPLES.iterdir()} == set(generate.MODELS)


@pytest.mark.parametrize("name", generate.MODELS)
def test_example_is_read_completely_and_written_unchanged(name):
    model = generate.MODELS[name]
    given = example(name)
    assert unknown_fields(model, given) == []
    message = model.model_validate_json(json.dumps(given))
    written = json.loads(message.model_dump_json(by_alias=True, exclude_unset=True))
    assert written == given


@pytest.mark.parametrize("name", generate.MODELS)
def test_example_read_from_python_values_is_the_same(name):
    model = generate.MODELS[name]
    given = example(name)
    assert model.model_validate(given) == model.model_validate_json(json.dumps(given))


@pytest.mark.parametrize("name", generate.MODELS)
def test_example_obeys_the_published_schema(name):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((generate.PACKAGE / "json" / f"{name}.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    given = example(name)
    assert list(validator.iter_errors(given)) == []
    for field in schema["required"]:
        assert not validator.is_valid({k: v for k, v in given.items() if k != field})


@pytest.mark.parametrize("name", INPUTS)
def test_example_of_an_input_passes_the_envelope(name):
    given = example(name)
    key = INPUTS[name].model_validate(given).record_key().encode()
    envelope = decode(json.dumps({"type": name, **given}).encode(), None)
    assert isinstance(validate(envelope, key, TOPIC_OF[name]), INPUTS[name])


@pytest.mark.parametrize("name", [n for n, m in generate.MODELS.items() if issubclass(m, Message)])
def test_every_message_knows_its_key(name):
    message = generate.MODELS[name].model_validate(example(name))
    assert isinstance(message, Message)
    assert message.record_key()


def properties() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property of every published schema, with the path to it."""
    for name in generate.MODELS:
        schema = generate.json_schema(name)
        for definition, part in {name: schema, **schema.get("$defs", {})}.items():
            for field, found in part.get("properties", {}).items():
                path = f"{name}.{field}" if definition == name else f"{name}: {definition}.{field}"
                yield path, found


def test_every_property_is_described_in_a_sentence():
    found = dict(properties())
    assert len(found) > 300
    texts = {path: each.get("description", "") for path, each in found.items()}
    assert [path for path, text in texts.items() if len(text) < 10] == []
    assert [path for path, text in texts.items() if not text.endswith(".")] == []


# By the end of a field's name, how its description says the unit.
UNITS = {
    "_ms": "in milliseconds",
    "append_ms": "in ms since the epoch, UTC",
    "clock_ms": "in ms",
    "_seconds": "Seconds",
    "bytes_per_second": "in bytes a second",
    **dict.fromkeys(
        ("_at", ".at", ".since", ".until", ".deadline", ".now"), "in ms since the epoch, UTC"
    ),
}


@pytest.mark.parametrize("ending", UNITS)
def test_what_has_a_unit_says_it(ending):
    found = {
        path: each["description"]
        for path, each in properties()
        if path.endswith(ending) and max(filter(path.endswith, UNITS), key=len) == ending
    }
    assert found
    assert [path for path, text in found.items() if UNITS[ending] not in text] == []


def test_every_value_of_an_enumeration_is_explained_or_has_a_table():
    definitions = {
        definition: part
        for name in generate.MODELS
        for definition, part in generate.json_schema(name).get("$defs", {}).items()
        if "enum" in part
    }
    assert len(definitions) > 10
    for definition, part in definitions.items():
        text = part.get("description", "")
        missing = [word for word in part["enum"] if f"`{word}`" not in text]
        assert "see the table" in text or missing in ([], ["none"]), definition


def test_schemas_and_readme_are_fresh(capsys):
    status = generate.main(["--check"])
    assert status == 0, f"run python -m schemas.generate\n{capsys.readouterr().out}"


def test_a_stale_or_superfluous_file_is_found_and_mended(tmp_path, monkeypatch, capsys):
    for path, text in generate.schema_files().items():
        copy = tmp_path / path.relative_to(generate.PACKAGE)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(text, "utf-8")
    readme = generate.readme((generate.PACKAGE / "README.md").read_text("utf-8"))
    (tmp_path / "README.md").write_text(readme, "utf-8")
    described = (generate.PACKAGE / "asyncapi.json").read_text("utf-8")
    (tmp_path / "asyncapi.json").write_text(described, "utf-8")
    monkeypatch.setattr(generate, "PACKAGE", tmp_path)
    assert generate.main(["--check"]) == 0

    (tmp_path / "json" / "Tick.schema.json").write_text("{}", "utf-8")
    (tmp_path / "json" / "Gone.schema.json").write_text("{}", "utf-8")
    (tmp_path / "README.md").write_text(readme.replace("`TOO_DEEP`", "`TO_DEEP`"), "utf-8")
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "stale: json/Tick.schema.json",
        "stale: README.md",
        "stale: json/Gone.schema.json",
    ]

    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    assert (tmp_path / "README.md").read_text("utf-8") == readme


def test_generate_refuses_other_arguments(capsys):
    assert generate.main(["--chekc"]) == 2
    assert "usage" in capsys.readouterr().err
