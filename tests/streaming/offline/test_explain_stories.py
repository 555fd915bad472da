"""`placer explain` on clusters that stand somewhere, as stories to be read.

Goal: of every replica that a file gives it is said whether it may stay, of every shard what is
broken and what comes next; of a node that holds nothing, which filter or rule and which values.
Method: every file in `testdata/explain_*.txt` is a story; `cluster` takes a file in YAML, `explain`
the words of the command behind it.
"""

from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from streaming.cli.main import app
from tests.stories.datadriven import CaseError, Command, run_file

TESTDATA = Path(__file__).parent / "testdata"


class Story:
    """The cluster file that the commands are about."""

    def __init__(self) -> None:
        self.text = ""

    def answer(self, command: Command) -> str:
        if command.name == "cluster":
            self.text = "\n".join(command.read())
            return ""
        if command.name != "explain":
            raise CaseError(f"unknown command {command.name}")
        words = command.take("words", "").split()
        found = CliRunner().invoke(app, ["explain", "-", *words], input=self.text)
        assert found.exception is None or isinstance(found.exception, SystemExit), found.output
        # A block ends with an empty line, a stream's lines do so too.
        lines = [line for line in found.stdout.splitlines() if line]
        return "\n".join([*lines, *([f"exit {found.exit_code}"] if found.exit_code else [])])


@pytest.mark.parametrize("path", sorted(TESTDATA.glob("explain_*.txt")), ids=lambda path: path.stem)
def test_explain_story(path: Path, request: pytest.FixtureRequest) -> None:
    run_file(path, Story().answer, rewrite=request.config.getoption("--rewrite"))


def test_one_shard_is_explained_as_all_are() -> None:
    """Goal: streams that nobody asks about are only counted; a shard is told of all the same."""
    nodes = [{"id": f"n{n}", "location": f"/r{n % 2}/z{n % 5}"} for n in range(20)]
    nodes[3]["status"] = "dead"
    asked = {"shards": 20, "replication_factor": 3}
    rules = {"policy": {"rules": [{"at_most": 1, "per": "az"}]}}
    given = {"streams": [{"stream": f"s{n}", **asked, **rules} for n in range(4)]}
    document = {"levels": ["region", "az"], "nodes": nodes, **given}
    placed = CliRunner().invoke(
        app, ["place", "-", "--output", "json"], input=orjson.dumps(document).decode()
    )
    decisions = orjson.loads(placed.stdout)["decisions"]
    for stream, decision in zip(given["streams"], decisions, strict=True):
        stream["replicas"] = decision["replicas"]
    nodes[7]["status"] = "dead"
    text = orjson.dumps(document).decode()

    def shards(*words: str) -> list[dict[str, Any]]:
        found = CliRunner().invoke(app, ["explain", "-", *words, "--output", "json"], input=text)
        return [each for each in orjson.loads(found.stdout)["explain"] if each["stream"] == "s2"]

    [whole] = shards()
    assert whole["health"] == "under_replicated"
    planned = [shard["shard"] for shard in whole["shards"] if shard["move"]]
    assert planned, "n7 held replicas"
    for number in (planned[0], 0, 19):
        [one] = shards(f"s2/{number}")
        [shard] = one["shards"]
        known = whole["shards"][number]
        for name in ("replicas", "health", "violations", "still"):
            assert shard[name] == known[name], (number, name)
        assert [each["lawful"] for each in shard["held"]] == [
            each["lawful"] for each in known["held"]
        ]
        assert (shard["move"] is None) == (known["move"] is None)
