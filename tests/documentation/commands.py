"""What READMEs, help texts and the files in `deploy` tell a person to type.

A command in a block of its own, or in an example of `--help`, is complete: it has to parse as it
stands. One in running text may leave out what it is not about.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer
from typer.core import TyperCommand, TyperGroup

from streaming.cli.main import app

Command = TyperCommand | TyperGroup

ROOT = Path(__file__).resolve().parents[2]
READMES = (
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    *sorted(
        path
        for package in ("placement", "schemas", "streaming", "deploy", "tests")
        for path in (ROOT / package).rglob("README.md")
    ),
)
TREE: Command = typer.main.get_command(app)

_TOOLS = ("placer", "make", "python")
_BLOCK = re.compile(r"^```[a-z]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_COMMENT = re.compile(r"(^|\s)#\s.*$")
_MARKUP = re.compile(r"\[(/?)(dim|bold)\]")
# Words that stand for a value: most parse as they are, a number does not.
_NUMBERS = {"N": "1", "SECONDS": "1", "PORT": "9092"}


@dataclass(frozen=True, slots=True)
class Told:
    """A line that somebody may type; `whole`: with everything that it needs."""

    source: str
    line: str
    whole: bool

    def __str__(self) -> str:
        return f"{self.source}: {self.line}"

    def pipeline(self) -> list[list[str]]:
        """The words of each command of it, redirections left out."""
        lexer = shlex.shlex(self.line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        commands: list[list[str]] = [[]]
        words = iter(lexer)
        for word in words:
            if set(word) <= set("|&;"):
                commands.append([])
            elif set(word) <= set("<>"):
                next(words)
            else:
                commands[-1].append(word)
        return [_without_variables(words) for words in commands if words]


def _without_variables(words: list[str]) -> list[str]:
    """Without `NAME=value` in front, or the container that it runs in."""
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    return words[4:] if words[:3] == ["docker", "compose", "exec"] else words


def told() -> list[Told]:
    """Everything that names a command of ours, once for each source."""
    found = {str(each): each for each in (*_of_readmes(), *_of_help(), *_of_files())}
    return [each for each in found.values() if any(tool in each.line.split() for tool in _TOOLS)]


def _of_readmes() -> Iterator[Told]:
    for path in READMES:
        source, text = str(path.relative_to(ROOT)), path.read_text("utf-8")
        for block in _BLOCK.findall(text):
            for line in block.splitlines():
                bare = _COMMENT.sub("", line.removeprefix("$ ")).strip()
                first = bare.removeprefix("docker compose exec reconciler ").split()
                if first and (first[0] in _TOOLS or re.match(r"[A-Z_]+=\S+ placer ", bare)):
                    yield Told(source, bare, whole=True)
        for inline in _INLINE.findall(_BLOCK.sub("", text)):
            words = inline.split()
            if words and words[0] in _TOOLS:
                yield from (Told(source, line, whole=False) for line in _alternatives(inline))


def _alternatives(line: str) -> list[str]:
    """`dlq show|redrive` is two lines; what is in brackets may be given."""
    line = re.sub(r"\[(.*?)\]", r"\1", line)
    choice = re.search(r"\b[a-z]+(?:\|[a-z]+)+\b", line)
    if choice is None:
        return [line]
    return [
        each
        for word in choice[0].split("|")
        for each in _alternatives(line.replace(choice[0], word, 1))
    ]


def _of_help() -> Iterator[Told]:
    for names, command in commands(TREE, ("placer",)):
        source = f"{' '.join(names)} --help"
        for line in f"{command.help or ''}\n\n{command.epilog or ''}".splitlines():
            bare = _COMMENT.sub("", _MARKUP.sub("", line.replace("\\[", "["))).strip()
            if line.startswith("  ") and re.search(r"\b(placer|make) ", bare):
                yield Told(source, bare, whole=True)


def _of_files() -> Iterator[Told]:
    """Comments of what is deployed."""
    files = [*(ROOT / "deploy").rglob("*.yaml"), ROOT / "docker-compose.yml"]
    for path in (*sorted(files), ROOT / "deploy" / "Dockerfile"):
        source = str(path.relative_to(ROOT))
        for comment in re.findall(r"^\s*#(.*)$", path.read_text("utf-8"), re.MULTILINE):
            bare = re.split(r"\s#\s|(?<=\S)\s{3}", comment)[0].strip()
            if bare.startswith("placer "):
                yield Told(source, bare, whole=True)
            for inline in _INLINE.findall(comment):
                words = inline.split()
            if words and words[0] in _TOOLS:
                yield Told(source, inline, whole=False)


def commands(command: Command, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Command]]:
    """A command and all below it, by their names."""
    yield names, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*names, name))


def parse(words: list[str]) -> None:
    """Parse a `placer` command line as the command does. Raises UsageError."""
    command, context = TREE, None
    name, rest = words[0], [_NUMBERS.get(word, word) for word in words[1:]]
    if "--plugin" in rest:
        # Whose code it names is a reader's own, and would be imported.
        at = rest.index("--plugin")
        del rest[at : at + 2]
    while True:
        if not rest and isinstance(command, TyperGroup):
            return
        context = command.make_context(name, rest, parent=context)
        if not isinstance(command, TyperGroup):
            return
        found, below, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert below is not None
        name, command = found or "", below
