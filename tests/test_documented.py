"""Promises kept: each command, option and file that READMEs and help texts name is there."""

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer
from typer._click.exceptions import MissingParameter, UsageError
from typer.testing import CliRunner

from streaming.cli.main import app
from streaming.settings import Settings
from tests.documentation.commands import READMES, ROOT, Told, parse, told

TOLD = told()
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
VARIABLES = set(re.findall(r"^([A-Z]+) \?=", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
OFFLINE = ("place", "check", "plan", "explain", "nearest")


def test_there_is_something_to_hold() -> None:
    sources = {each.source.split()[0] for each in TOLD}
    assert {"README.md", "streaming/README.md", "placer", "deploy/placer.yaml"} <= sources
    assert len(TOLD) > 150


@pytest.mark.parametrize("each", TOLD, ids=str)
def test_a_command_parses(each: Told) -> None:
    pipeline = each.pipeline()
    assert pipeline
    for words in pipeline:
        if words[:1] == ["placer"]:
            try:
                parse(words)
            except MissingParameter:
                assert not each.whole
            except typer.Exit:
                assert "--help" in words
        elif words[:1] == ["make"]:
            named = [word.partition("=") for word in words[1:]]
            assert {word for word, equals, _ in named if not equals} <= TARGETS
            assert {word for word, equals, _ in named if equals} <= VARIABLES
        elif words[:2] == ["python", "-m"]:
            assert find_spec(words[2]) is not None


@pytest.mark.parametrize("words", ["placer plan FILE --nosuch", "placer nosuch", "placer plan"])
def test_what_does_not_parse_is_found(words: str) -> None:
    with pytest.raises(UsageError):
        parse(words.split())


LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)")
PATH = re.compile(r"(?<![\w/.~:-])((?:deploy|placement|schemas|streaming|tests)/[\w./-]*\w/?)")


@pytest.mark.parametrize("path", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_a_readme_names_exist(path: Path) -> None:
    text = path.read_text("utf-8")
    linked = [path.parent / name for name in LINK.findall(text)]
    quoted = [span for span in re.findall(r"`([^`\n]+)`", text) if not span.startswith("/")]
    named = {name for span in quoted if "*" not in span for name in PATH.findall(span)}
    missing = [
        name for name in named if not any((top / name).exists() for top in (ROOT, path.parent))
    ]
    assert missing + [str(each) for each in linked if not each.exists()] == []


def test_files_that_help_and_comments_name_exist() -> None:
    named = {name for each in TOLD for name in PATH.findall(each.line)}
    assert "deploy/examples/nearest.yaml" in named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


SETTING = re.compile(r"`([a-z_]+)\.([a-z_]+)`")


@pytest.mark.parametrize("path", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_that_a_readme_names_exist(path: Path) -> None:
    settings = Settings()
    sections = set(Settings.model_fields)
    found = SETTING.findall(path.read_text("utf-8"))
    named = {each for each in found if each[0] in sections and each[1] not in ("py", "log")}
    missing = [f"{a}.{b}" for a, b in sorted(named) if not hasattr(getattr(settings, a), b)]
    assert missing == []


def runs_here(words: list[str]) -> bool:
    offline = words[:1] == ["placer"] and {*words[1:2]} <= {*OFFLINE}
    return offline and len(words) > 2 and not {"-", "--live"} & {*words}


@pytest.mark.parametrize(
    "source", sorted({e.source for e in TOLD if e.whole and runs_here(e.pipeline()[0])})
)
def test_what_needs_no_broker_runs(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In their order, as one may need the file that another wrote."""
    shutil.copytree(ROOT / "deploy" / "examples", tmp_path / "deploy" / "examples")
    # A person's own file, which has a tag too.
    example = (ROOT / "deploy" / "examples" / "cluster.yaml").read_text("utf-8")
    mine = example.replace("weight: 2.0}", "weight: 2.0, tags: {power: b}}")
    assert mine != example
    (tmp_path / "cluster.yaml").write_text(mine, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    ran = 0
    for each in (one for one in TOLD if one.source == source and one.whole):
        first = each.pipeline()[0]
        if not runs_here(first):
            continue
        result = CliRunner().invoke(app, first[1:])
        assert result.exit_code in (0, 1), f"{each}\n{result.output}"
        written = re.search(r"> (\S+)$", each.line)
        if written:
            Path(written[1]).write_text(result.stdout, "utf-8")
        ran += 1
    assert ran
