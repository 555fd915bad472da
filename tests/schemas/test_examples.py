"""Examples, models, JSON Schemas and README are held against each other."""

import json
from pathlib import Path

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
    assert generate.MODELS[name].model_validate(example(name)).record_key()


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
