"""Text for people: one console, one table, one way to count, for every command.

The same rule for all of it. On a terminal nothing is wider than the terminal. Into a pipe or a file
everything goes, a row a line, with no blanks behind it: nobody sees a width there.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TextIO

import typer

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

# Wider than any line that we print; rich would take 80 where there is no terminal.
PIPE_WIDTH = 1_000_000
GAP = "  "
# A sentence in fewer columns than this is a tower of single words.
PROSE_WIDTH_MIN = 32
# What a row is about. It is shown whole at any width.
IDENTIFYING = {"node", "location", "stream", "shard", "domain", "level", "policy", "move", "client"}
IDENTIFYING |= {"id", "replica", "topic", "check", "wave", "from", "to"}
# Columns of sentences and of long lists, which may go on in the next line.
PROSE = {"reason", "reasons", "why", "detail", "followers", "streams", "named", "found"}


def text_console(
    width: int | None = None,
    file: TextIO | None = None,
    height: int | None = None,
    stderr: bool = False,
) -> "Console":
    """A console for text. `width` and `height` stand for a terminal of so many columns and lines,
    without colours, whatever there is."""
    from rich.console import Console

    if width is not None:
        return Console(
            file=file,
            width=width,
            height=height,
            force_terminal=True,
            color_system=None,
            highlight=False,
            soft_wrap=True,
        )
    console = Console(file=file, stderr=stderr, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


def tell(sentence: str) -> None:
    """Say something about the command itself, beside its output."""
    typer.echo(f"placer: {sentence}", err=True)


def escape_control(text: str) -> str:
    """Escape control characters, so that a record cannot draw on the terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shorten(words: Sequence[str], most: int, separator: str = ", ") -> str:
    """The first of a list, and how many follow: `a, b and 3 more`."""
    if len(words) <= most:
        return separator.join(words)
    return f"{separator.join(words[:most])} and {len(words) - most} more"


class Table:
    """Rows under the names of their columns, to be printed on a console of any width.

    Where the terminal is too narrow, a sentence in the last column is wrapped, then columns are
    left out in the order of `first_left_out` (else from the right, sentences last), and a line
    below names them. Columns that say what a row is about stay at any width. `hint`: how to see
    what is left out. Cells are text, or rich's Text where they have a style.
    """

    def __init__(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        *,
        right: Iterable[str] = (),
        first_left_out: Sequence[str] | None = None,
        hint: str = "--output json",
        header: bool = True,
    ) -> None:
        self._columns = tuple(columns)
        self._rows = [tuple(row) for row in rows]
        self._right = frozenset(right)
        # A sentence says what the short columns before it say, and more.
        from_right = self._columns[::-1]
        short = [name for name in from_right if name not in PROSE]
        usual = [*short, *(name for name in from_right if name in PROSE)]
        order = usual if first_left_out is None else first_left_out
        self._leaves = [name for name in order if name not in IDENTIFYING]
        self._hint, self._header = hint, header
        self._widths: dict[int, int] = {}

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """The lines for a console of `options.max_width` columns."""
        yield from self.lines(options.max_width)

    def lines(self, width: int) -> "list[Text]":
        """The header, the rows, and what is left out."""
        from rich.text import Text

        shown, left_out = self._fit_columns(width)
        lines = list(self._lines(shown, width))
        if left_out:
            lines.append(Text(f"not shown: {', '.join(left_out)} ({self._hint})", "dim"))
        return lines

    def _fit_columns(self, width: int) -> tuple[list[int], list[str]]:
        """The columns that are shown, by number, and the names of the others."""
        shown = list(range(len(self._columns)))
        left_out: list[str] = []
        for name in self._leaves:
            if self._min_width(shown) <= width:
                break
            if name in self._columns:
                shown.remove(self._columns.index(name))
                left_out.append(name)
        return shown, [name for name in self._columns if name in left_out]

    def _min_width(self, shown: Sequence[int]) -> int:
        """The fewest columns of a terminal in which these fit."""
        widths = [self._width(number) for number in shown]
        prose = self._prose_column(shown)
        if prose is not None:
            widths[shown.index(prose)] = min(self._width(prose), PROSE_WIDTH_MIN)
        return sum(widths) + len(GAP) * (len(shown) - 1)

    def _width(self, number: int) -> int:
        """Return the width of a column's widest cell. It is computed once: a fleet may have
        thousands of rows."""
        from rich.cells import cell_len

        if number not in self._widths:
            cells = (str(row[number]) for row in self._rows)
            head = cell_len(self._columns[number]) if self._header else 0
            self._widths[number] = max([head, *map(cell_len, cells)])
        return self._widths[number]

    def _prose_column(self, shown: Sequence[int]) -> int | None:
        """The column whose sentences may be wrapped: the last, if it has any."""
        last = shown[-1] if shown else None
        return last if last is not None and self._columns[last] in PROSE else None

    def _lines(self, shown: Sequence[int], width: int) -> "Iterable[Text]":
        from rich.text import Text

        widths = {number: self._width(number) for number in shown}
        prose = self._prose_column(shown)
        if prose is not None:
            before = sum(widths[number] + len(GAP) for number in shown[:-1])
            widths[prose] = max(min(widths[prose], width - before), PROSE_WIDTH_MIN)
        if self._header:
            heads = [Text(self._columns[number], "bold") for number in shown]
            yield from self._row(dict(zip(shown, heads, strict=True)), widths, prose)
        for row in self._rows:
            cells = {n: row[n] if isinstance(row[n], Text) else Text(str(row[n])) for n in shown}
            yield from self._row(cells, widths, prose)

    def _row(
        self, cells: "dict[int, Text]", widths: dict[int, int], prose: int | None
    ) -> "Iterable[Text]":
        """Lay out one row, in several lines where its sentence needs them."""
        from rich.text import Text

        parts: dict[int, Sequence[Text]] = {number: [cell] for number, cell in cells.items()}
        if prose is not None:
            parts[prose] = wrap(cells[prose], widths[prose])
        for line in zip_longest(*parts.values(), fillvalue=Text()):
            told = Text(no_wrap=True, overflow="ignore")
            for place, (number, part) in enumerate(zip(parts, line, strict=True)):
                blanks = " " * (widths[number] - part.cell_len)
                right = self._columns[number] in self._right
                told.append(GAP if place else "")
                told.append_text(Text.assemble(blanks, part) if right else part)
                told.append("" if right else blanks)
            told.rstrip()
            yield told


class Paragraph:
    """A sentence of one line, to be printed on a console of any width.

    A terminal wraps it between words; the next lines are indented as the first one, below the text
    of a list item.
    """

    def __init__(self, text: "str | Text") -> None:
        """`text`: with the blanks, and the dash of a list item, that it begins with."""
        self._text = text

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """The lines for a console of `options.max_width` columns."""
        from rich.text import Text

        text = self._text if isinstance(self._text, Text) else Text(self._text)
        indent = len(text) - len(text.plain.lstrip(" ").removeprefix("- "))
        head, body = text.divide([indent]) if indent else (Text(), text)
        for line in wrap(body, max(options.max_width - indent, PROSE_WIDTH_MIN)):
            yield Text.assemble(head, line, no_wrap=True, overflow="ignore")
            head = Text(" " * indent)


def wrap(sentence: "Text", width: int) -> "list[Text]":
    """The lines of a sentence in so many columns, without blanks behind them."""
    from rich.console import Console

    if sentence.cell_len <= width:
        return [sentence]
    lines = sentence.wrap(Console(width=width, file=None), width)
    for line in lines:
        line.rstrip()
    return list(lines)
