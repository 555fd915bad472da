"""Short tables as they are given, one element each: hundreds of cells cost a page no more than one.

Cells are words and numbers of the console's own, or made by the functions here.
"""

from collections.abc import Sequence
from typing import Any

from nicegui import ui

from streaming.console.elements import SIGNS, TONES, cut

Cell = Any


class PlainTable(ui.element, component="assets/plain_table.js"):
    """A table; the first cell of a row is its heading."""

    def __init__(
        self, caption: str, heads: Sequence[str], rows: Sequence[Sequence[Cell]] = ()
    ) -> None:
        """`caption`: says what the rows are."""
        super().__init__()
        self.props.update({"caption": caption, "heads": [*heads], "rows": [*rows]})

    def show(self, rows: Sequence[Sequence[Cell]]) -> None:
        """Show other rows."""
        if self.props["rows"] != rows:
            self.props["rows"] = [*rows]


def name_cell(name: str, href: str | None = None, *, whole: bool = False) -> Cell:
    """A name from a topic or file, cut to one line unless `whole`; a link where `href` is given."""
    return {"name": cut(name), "href": href, "whole": whole}


def status_cell(statuses: Sequence[tuple[str, str]]) -> Cell:
    """Words of status, each with what is shown for it."""
    tones = [(TONES.get(word, ""), label) for word, label in statuses]
    return {
        "statuses": [{"tone": tone, "sign": SIGNS[tone], "text": label} for tone, label in tones]
    }
