"""Goal: an option in a place where it would do nothing is refused, before anything is done."""

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streaming.cli.main import app

CASES = (
    ("status /eu --output json", "PATH and --depth fold the text"),
    ("status --depth 1 --output json", "PATH and --depth fold the text"),
    ("drain n1 --dry-run --watch", "--dry-run begins none"),
    ("drain n1 --dry-run --yes", "--dry-run sends nothing"),
    ("drain n1 --dry-run --hash 00ff", "--dry-run sends nothing"),
    ("cordon n1 --dry-run --no-wait", "--dry-run sends nothing"),
    ("replay FILE --snapshot FILE", "--snapshot needs --from-topic"),
    ("replay FILE --speed 2", "--speed needs --inputs"),
    ("replay FILE --bootstrap x:1", "need --from-topic"),
    ("replay FILE --inputs --verify", "--inputs takes a recording"),
    ("replay FILE --inputs --output ndjson", "--inputs takes a recording"),
    ("plan FILE --verify FILE --max-moves 3", "leave out all others"),
    ("plan FILE --verify FILE --phase repair", "leave out all others"),
    ("plan FILE --verify FILE --fail-on never", "leave out all others"),
    ("plan FILE --verify FILE --output kafka", "leave out --output kafka"),
    ("explain --live orders --strict", "without --strict, --fail-on"),
    ("explain --live orders --fail-on never", "without --strict, --fail-on"),
    ("explain --live orders --assignments FILE", "without --strict, --fail-on and --assignments"),
    ("explain FILE --bootstrap x:1", "need --live"),
    ("plan FILE --verify FILE --output-dir DIR", "leave out all others"),
    ("plan FILE --squash --output kafka", "--squash needs --until-balanced"),
    ("plan FILE --squash --until-balanced", "--squash is for Kafka"),
    ("plan FILE --squash --until-balanced --output kafka --max-moves 1", "a limit holds for each"),
    ("kafka import --levels a,b", "2 levels need --separator"),
    ("run --embedded --bootstrap x:1", "leave out --bootstrap"),
    ("run --data-dir FILE", "--data-dir needs --embedded"),
    ("suggest --simple --policies x", "exclude each other"),
)


@pytest.mark.parametrize(("words", "says"), CASES, ids=[words for words, _ in CASES])
def test_it_is_refused(words: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("nodes: []\n")
    arguments = shlex.split(words.replace("FILE", str(file)))
    result = CliRunner(env={"COLUMNS": "400"}).invoke(app, arguments)
    assert (result.exit_code, says in result.stderr) == (2, True), result.output
