"""From a long history that fails to a short one that fails in the same way, as a text case.

Method: delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input",
2002), first over the commands, then over the lines of each batch, until nothing more can be left
out.
"""

import re
from collections.abc import Callable

from tests.simulation.history import Failure, tell
from tests.stories.datadriven import SEPARATOR, parse_command
from tests.stories.story import Story

Items = list[str]


def signature(error: BaseException) -> tuple[str, ...]:
    """Reduce a failure to what two failures of one fault share: the kind of the error, its first
    words."""
    return type(error).__name__, *re.findall(r"\b[a-z]{4,}\b", str(error))[:5]


def failing(blocks: Items) -> BaseException | None:
    """The error that the commands end in, if they do."""
    story = Story()
    for block in blocks:
        try:
            tell(story, block)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is sought
            return error
    return None


def shrink(failure: Failure, alike: Callable[[Items], bool] | None = None) -> Items:
    """The shortest commands found that fail as `failure` did."""
    wanted = signature(failure.cause)

    def same(blocks: Items) -> bool:
        error = failing(blocks)
        return error is not None and signature(error) == wanted

    alike = alike or same
    blocks, before = list(failure.blocks), None
    while blocks != before:
        before = list(blocks)
        blocks = minimal(blocks, alike)
        for place, block in enumerate(blocks):
            first, *lines = block.split("\n")

            def with_lines(
                kept: Items, place: int = place, first: str = first, blocks: Items = blocks
            ) -> Items:
                return [*blocks[:place], "\n".join((first, *kept)), *blocks[place + 1 :]]

            kept = minimal(lines, lambda lines, made=with_lines: alike(made(lines)))
            blocks = with_lines(kept)
    return blocks


def minimal(items: Items, fails: Callable[[Items], bool]) -> Items:
    """A sublist that fails and of which no single item can be left out (ddmin)."""
    size = max(len(items) // 2, 1)
    while items:
        for start in range(0, len(items), size):
            fewer = items[:start] + items[start + size :]
            if fails(fewer):
                items = fewer
                break
        else:
            if size == 1:
                break
            size = max(size // 2, 1)
    return items


def as_case(blocks: Items, goal: str) -> str:
    """The commands as a text case, with the answers up to the one that fails."""
    story, told = Story(), [f"# {goal}"]
    for block in blocks:
        first, *lines = block.split("\n")
        try:
            answer = story.answer(parse_command(first, lines))
        except Exception as error:  # noqa: BLE001 - the last command is the one that fails
            answer = f"{type(error).__name__}: {error}"
        told.append("\n".join((block, SEPARATOR, *answer.splitlines())))
    return "\n\n".join(told) + "\n"
