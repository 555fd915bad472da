"""What the documentation shows of the command line, held against what is answered.

A block that begins with ```` ```console ```` holds one command or several, each behind `$ ` with
its output below. ```` ```console 80 columns ```` is what a terminal of that width shows, else it is
what a pipe gets. `pytest --rewrite` writes the answers into the page: read the diff.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(
    r"^```console(?: (?P<columns>\d+) columns)?\n(?P<steps>.*?)^```$", re.MULTILINE | re.DOTALL
)
_STEP = re.compile(r"^\$ (?P<command>[^\n]*)\n(?P<shown>(?:(?!^\$ ).*\n)*)", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A command of a page, the `number`th of it, and the output below it; `columns` None: into a
    pipe."""

    page: Path
    number: int
    command: str
    columns: int | None
    shown: str
    start: int

    def __str__(self) -> str:
        return f"{self.page.parent.name}-{self.command}-{self.columns or 'pipe'}"


def steps(page: str) -> list[Step]:
    """All commands of a page, given by its path from the root, in order."""
    return _steps(ROOT / page)


def _steps(path: Path) -> list[Step]:
    found = [
        (block, step)
        for block in _BLOCK.finditer(path.read_text("utf-8"))
        for step in _STEP.finditer(block["steps"])
    ]
    return [
        Step(
            path,
            number,
            step["command"],
            int(block["columns"]) if block["columns"] else None,
            step["shown"],
            block.start("steps") + step.start("shown"),
        )
        for number, (block, step) in enumerate(found)
    ]


def hold(step: Step, answered: str, rewrite: bool) -> None:
    """Assert that the page shows the answer, blanks at ends of lines aside; or write it there."""
    lines = [line.rstrip() for line in answered.strip("\n").splitlines()]
    if not rewrite:
        assert lines == step.shown.rstrip("\n").splitlines()
        return
    # Steps before this one may have been rewritten, so that it is no longer where it was.
    now = _steps(step.page)[step.number]
    text = step.page.read_text("utf-8")
    # What an empty line sets apart from the next command stays so.
    tail = "\n" if now.shown.endswith("\n\n") else ""
    behind = text[now.start + len(now.shown) :]
    step.page.write_text(text[: now.start] + "\n".join(lines) + "\n" + tail + behind, "utf-8")
