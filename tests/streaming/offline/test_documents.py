"""Several documents in one text: each is answered, whatever is wrong with another."""

import orjson
import pytest
from typer.testing import CliRunner

from streaming.cli.main import app

FINE = '{"name": "fine", "nodes": []}'


def place(text):
    """Exit status and, for each answer, the name or the line and field of the error."""
    result = CliRunner().invoke(app, ["place", "-", "--output", "json"], input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    read = [orjson.loads(line) for line in result.stdout.splitlines()]
    return result.exit_code, [
        body.get("name") or (body["error"]["line"], body["error"]["field"]) for body in read
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(f"{FINE}\ngarbage\n\n{FINE}\n", ["fine", (2, None), "fine"], id="no object"),
        pytest.param(f"nodes\n{FINE}", [(1, None), "fine"], id="the first line is wrong"),
        pytest.param(f'{{"nodes": [\n{FINE}', [(1, None), "fine"], id="a line that is cut"),
        pytest.param(
            f"name: fine\nnodes: []\n---\nnodes: [\n---\n{FINE}\n",
            ["fine", (4, None), "fine"],
            id="a YAML document that is not well-formed",
        ),
        pytest.param(
            f"# of a kind\n%YAML 1.1\n---\nnodes: x\n--- # last\n{FINE}\n",
            [(4, "nodes"), "fine"],
            id="comments and directives",
        ),
        pytest.param("---\r\nnodes: x\r\n---\r\nnodes: y\r\n", [(2, "nodes"), (4, "nodes")]),
        pytest.param(f"{FINE}\n".encode() + b"\xff\xfe\n", ["fine", (2, None)], id="no text"),
        pytest.param(b"\x00\x9f\x92\x96", [(1, None)], id="a binary file"),
        pytest.param(b"\xef\xbb\xbf" + FINE.encode(), ["fine"], id="a byte order mark"),
    ],
)
def test_one_broken_document_does_not_silence_the_others(text, found):
    status, answers = place(text)
    assert (answers, status) == (found, 0 if found == ["fine"] else 2)


def test_json_over_several_lines_is_one_document():
    """Method: every line of it begins as a line of NDJSON would, one is a whole object."""
    text = '{"name": "fine", "nodes":\n[\n{"id": "a"},\n{"id": "b"}\n]}'
    assert place(text) == (0, ["fine"])
    assert place('{"name": "fine", "nodes": [\n{"id": "a"}]}') == (0, ["fine"])


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("nodes: []\nstreams: []\nnodes: []\n", 3, "nodes"),
        ("nodes:\n  - {id: a, location: /x}\n  - {id: b, id: c}\n", 3, "nodes[1].id"),
        ("nodes:\n  - id: a\n    location: /x\n    location: /y\n", 4, "nodes[0].location"),
        ('{"nodes": [], "streams": [{"stream": "s", "shards": 1, "shards": 2}]}', 1, None),
    ],
)
def test_a_field_that_is_given_twice_is_an_error(text, line, field):
    """Goal: YAML's readers take the last and say nothing; a node would stand in two places."""
    assert place(text) == (2, [(line, field or "streams[0].shards")])


def test_numbers_and_characters_of_json_are_understood():
    """Goal: what `json.dumps` writes by default: exponents without a point, pairs of escapes."""
    text = '{"name": "\\ud83d\\ude00 \\\\ud83d", "nodes": [{"id": "a", "weight": 1e-05}]}'
    assert place(text) == (0, ["\U0001f600 \\ud83d"])


def test_merge_keys_are_no_repetition():
    shared = "x: &x {location: /x}\nnodes:\n  - {id: a, <<: *x}\n  - {id: b, <<: *x, <<: *x}\n"
    assert place("name: fine\n" + shared) == (0, ["fine"])
