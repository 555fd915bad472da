"""Data-driven text cases: a file is a story of commands with the answers that are expected.

A file is made of blocks, set apart by empty lines:

    # What the next command shows, if it needs saying.
    command key=value key='a value with spaces'
    input lines, if the command takes any
    ----
    expected lines

The first comment of a file says its goal. An argument or input that the command does not take is
an error, so that a mistyped key cannot make a case pass. `pytest --rewrite` writes the answers of
the code into the files: read the diff line by line before committing it. That reading is the review
of a change of behaviour; a rewritten file proves nothing until somebody has done it.
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path

SEPARATOR = "----"
TESTS = Path(__file__).resolve().parent.parent
# Where stories are told in the language of `story.py`; the shell's are told by the tests beside.
CORE_STORIES = ("placement", "needs", "simulation")


class CaseError(Exception):
    """The case itself is wrong: nothing was compared."""


@dataclass
class Command:
    """One command with its arguments and input; what is taken is noted."""

    name: str
    arguments: dict[str, str]
    lines: list[str] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)
    _read: bool = False

    def take(self, key: str, default: str | None = None) -> str:
        """The argument `key`; without a default it has to be given."""
        self._taken.add(key)
        value = self.arguments.get(key, default)
        if value is None:
            raise CaseError(f"{self.name} needs {key}=")
        return value

    def given(self, key: str) -> str | None:
        """The argument `key`, if it is given."""
        return self.take(key) if key in self.arguments else None

    def read(self) -> list[str]:
        """The input lines."""
        self._read = True
        return self.lines

    def check_used(self) -> None:
        """Raise CaseError for what nobody took."""
        unknown = sorted(set(self.arguments) - self._taken)
        if unknown:
            raise CaseError(f"{self.name} does not take {', '.join(unknown)}")
        if self.lines and not self._read:
            raise CaseError(f"{self.name} takes no input")


def is_core_story(path: Path) -> bool:
    """Whether the file is a story of the core, told in the language of `story.py`."""
    within = path.suffix == ".txt" and path.parent.name == "testdata"
    return within and any(path.is_relative_to(TESTS / folder) for folder in CORE_STORIES)


def story_files() -> list[Path]:
    """All stories, those of the shell included, in order of their paths."""
    return sorted(TESTS.rglob("testdata/*.txt"))


def parse_command(line: str, lines: list[str] | None = None) -> Command:
    """Parse `name key=value …`."""
    quoted = any(sign in line for sign in "'\"\\")
    name, *words = shlex.split(line) if quoted else line.split()
    arguments: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key in arguments:
            raise CaseError(f"'{word}' in '{line}' is not one more key=value")
        arguments[key] = value
    return Command(name, arguments, lines or [])


def run_file(path: Path, answer: Callable[[Command], str], rewrite: bool) -> None:
    """Run all blocks of a file in order; raise AssertionError with a diff where they differ.

    With `rewrite` the file is written anew with the answers given, and nothing is compared.
    """
    text = path.read_text(encoding="utf-8")
    blocks = [block for block in text.split("\n\n") if block.strip()]
    if not text.startswith("#"):
        raise CaseError(f"{path.name} must open with a comment that says its goal")
    answered, place = [], 0
    for block in blocks:
        place = text.index(block, place)
        try:
            answered.append(_answer_block(block.strip("\n"), answer))
        except Exception as error:
            error.add_note(f"{path.name}, line {text[:place].count(chr(10)) + 1}")
            raise
        place += len(block)
    actual = "\n\n".join(answered) + "\n"
    if rewrite:
        path.write_text(actual, encoding="utf-8")
        return
    diff = unified_diff(text.splitlines(), actual.splitlines(), path.name, "answered", lineterm="")
    assert text == actual, "\n".join(diff)


def _answer_block(block: str, answer: Callable[[Command], str]) -> str:
    """The block with the answer below its separator; comments stand for themselves."""
    lines = block.split("\n")
    start = next((at for at, line in enumerate(lines) if not line.startswith("#")), len(lines))
    if start == len(lines):
        return block
    if SEPARATOR not in lines:
        raise CaseError(f"'{lines[start]}' has no {SEPARATOR}")
    end = lines.index(SEPARATOR)
    command = parse_command(lines[start], lines[start + 1 : end])
    said = [line.rstrip() for line in answer(command).splitlines()]
    command.check_used()
    if not all(said):
        raise CaseError(f"{command.name} answered an empty line, which would end the block")
    return "\n".join([*lines[: end + 1], *said])
