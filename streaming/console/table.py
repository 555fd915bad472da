"""Tables of any length: the server searches, filters, sorts and cuts out a page; the browser holds
no more than that page. What is asked for stands in the page's address.

    address ──▶ TableQuery ──▶ read ──▶ TablePage ──▶ assets/table.js
                    ▲                                      │ typed, chosen, clicked
                    └──────────────────────────────────────┘

Viewers who ask for the same page of a table share it until the next commit.
"""

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from nicegui import ui
from nicegui.events import GenericEventArguments

from placement.model import natural_key
from streaming.console.derived import CommitState
from streaming.console.elements import SIGNS, TONES, cut
from streaming.console.page import View
from streaming.errors import StreamingError

PAGE_SIZES = (25, 50, 100, 250)
PAGE_SIZE = 50
# As long as the longest name; a longer search finds nothing.
SEARCH_CHARS_MAX = 512

Row = Mapping[str, Any]
Kind = Literal["text", "name", "number", "time", "status", "list", "percent"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    - `name`: the field of rows, and the parameter in the address where it is a filter.
    - `kind`: how a value is drawn. `text` is our own, `name` anybody's; `time` is in ms; `list` a
      sequence of names; `percent` a share of 1, drawn as a bar.
    - `href`: the address that a row's cell leads to.
    - `words`: those that it can have; with them it is a filter. `choices`: the same for words that
      are known later only, in their order.
    - `searched`: whether the search looks at it. `wide`: left out on narrow screens.
    """

    name: str
    label: str
    kind: Kind = "text"
    href: Callable[[Row], str | None] | None = None
    words: Sequence[str] = ()
    searched: bool = False
    sortable: bool = True
    wide: bool = False
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class TableQuery:
    """What of a table is asked for. `sort`: a column's name, empty for the rows' own order; `page`:
    counted from 0."""

    search: str = ""
    filters: Mapping[str, str] = field(default_factory=dict)
    sort: str = ""
    descending: bool = False
    page: int = 0
    size: int = PAGE_SIZE

    @property
    def key(self) -> Hashable:
        """Equal for equal queries."""
        filters = tuple(sorted(self.filters.items()))
        return (self.search, filters, self.sort, self.descending, self.page, self.size)


@dataclass(frozen=True, slots=True)
class TablePage:
    """The rows of a page, each as its cells are drawn. `found`: how many match in all; `total`: how
    many there are."""

    rows: Sequence[Sequence[Any]]
    found: int
    total: int


Reader = Callable[[TableQuery], Awaitable[TablePage]]


class _TableElement(ui.element, component="assets/table.js"):
    """The element in the browser."""


class DataTable:
    """A table on a page, kept up to the last commit."""

    def __init__(
        self,
        view: View,
        caption: str,
        columns: Sequence[Column],
        read: Reader,
        *,
        noun: str = "rows",
        empty: str = "There are none.",
        prefix: str = "",
        search_label: str | None = None,
    ) -> None:
        """`caption`: says what the rows are; `noun`: their plural; `search_label`: what may be
        searched for; `prefix`: of its parameters in
        the address, where a page has several tables."""
        self._view, self._columns, self._read, self._prefix = view, columns, read, prefix
        self._query = self._parse(
            {
                name.removeprefix(prefix): value
                for name, value in view.query.items()
                if name.startswith(prefix)
            }
        )
        self._element = _TableElement()
        self._element.props.update(
            {
                "caption": caption,
                "noun": noun,
                "empty": empty,
                "searchLabel": search_label or f"Search {noun}",
                "prefix": prefix,
                "columns": [_column_body(each) for each in columns],
                "sizes": list(PAGE_SIZES),
                "searched": any(each.searched for each in columns),
                "page": None,
                "tones": TONES,
                "signs": SIGNS,
            }
        )
        self._element.on("query", self._take)

    async def show(self) -> None:
        """Show the page that the address asks for, and keep it current."""
        await self._view.live_part(self._look, self._show)

    async def _look(self) -> tuple[TableQuery, TablePage]:
        """Read the page that is asked for, or the last one where there are fewer."""
        query = self._query
        found = await self._read(query)
        last = max(-(-found.found // query.size) - 1, 0)
        if query.page > last:
            query = replace(query, page=last)
            found = await self._read(query)
        return query, found

    def _show(self, seen: tuple[TableQuery, TablePage]) -> None:
        """Send the browser the page where it has changed."""
        query, found = seen
        body = {
            "rows": found.rows,
            "found": found.found,
            "total": found.total,
            "query": asdict(query),
        }
        if self._element.props["page"] != body:
            self._element.props["page"] = body

    async def _take(self, event: GenericEventArguments) -> None:
        given = event.args if isinstance(event.args, dict) else {}
        self._query = self._parse({str(name): str(value) for name, value in given.items()})
        try:
            self._show(await self._look())
        except StreamingError as error:
            ui.notify(str(error), type="negative")

    def _parse(self, given: Mapping[str, str]) -> TableQuery:
        """Read the parameters of an address; what is none of a table's is its default."""
        sort = given.get("sort", "")
        name = sort.removeprefix("-")
        known = {each.name for each in self._columns if each.sortable}
        size = given.get("size", "")
        page = given.get("page", "")
        return TableQuery(
            search=given.get("q", "")[:SEARCH_CHARS_MAX].strip(),
            filters={
                each.name: given[each.name]
                for each in self._columns
                if each.words and given.get(each.name) in each.words
            },
            sort=name if name in known else "",
            descending=sort.startswith("-") and name in known,
            page=int(page) - 1 if page.isdecimal() and 0 < int(page[:9]) < 10**9 else 0,
            size=int(size) if size in map(str, PAGE_SIZES) else PAGE_SIZE,
        )


def commit_reader(
    view: View, key: Hashable, read: Callable[[CommitState, TableQuery], TablePage]
) -> Reader:
    """Read pages of what a commit holds. `key`: names the table among the derived values."""

    async def read_page(query: TableQuery) -> TablePage:
        return await view.derive(("table", key, query.key), lambda state: read(state, query))

    return read_page


def rows_reader(
    view: View,
    key: Hashable,
    columns: Sequence[Column],
    make: Callable[[CommitState], Sequence[Row]],
) -> Reader:
    """Read pages of rows that are made at once from the state, some ten thousand at most. `key`:
    names rows and columns among the derived values."""

    def read(state: CommitState, query: TableQuery) -> TablePage:
        return select_rows(state.part(key, make), columns, query)

    return commit_reader(view, key, read)


def select_rows(rows: Sequence[Row], columns: Sequence[Column], query: TableQuery) -> TablePage:
    """Search, filter and sort rows, and cut out the page."""
    found: Iterable[Row] = rows
    for name, word in query.filters.items():
        found = [row for row in found if str(row.get(name)) == word]
    if query.search:
        needle = query.search.casefold()
        searched = [each.name for each in columns if each.searched]
        found = [row for row in found if any(_holds(row.get(name), needle) for name in searched)]
    chosen = list(found)
    if query.sort:
        chosen.sort(key=lambda row: _sort_key(row.get(query.sort)), reverse=query.descending)
        # What is not known stands last, in either direction.
        chosen.sort(key=lambda row: row.get(query.sort) is None)
    start = query.page * query.size
    page = chosen[start : start + query.size]
    return TablePage(draw_rows(page, columns), len(chosen), len(rows))


def draw_rows(rows: Iterable[Row], columns: Sequence[Column]) -> list[list[Any]]:
    """The cells of rows, as the browser draws them."""
    return [[_cell(column, row) for column in columns] for row in rows]


def _holds(value: Any, needle: str) -> bool:
    if isinstance(value, str):
        return needle in value.casefold()
    return isinstance(value, list | tuple) and any(needle in str(each).casefold() for each in value)


def _sort_key(value: Any) -> Any:
    if isinstance(value, int | float):
        return (0, value)
    if isinstance(value, list | tuple):
        return (1, len(value))
    return (2, natural_key(str(value)))


def _column_body(column: Column) -> dict[str, Any]:
    names = ("name", "label", "kind", "sortable", "wide", "hint")
    return {name: getattr(column, name) for name in names} | {"words": list(column.words)}


def _cell(column: Column, row: Row) -> Any:
    """A value as the browser draws it: plain, or with the address it leads to."""
    value = row.get(column.name)
    if column.kind == "list" and value is not None:
        value = [cut(str(each)) for each in value]
    elif isinstance(value, str):
        value = cut(value)
    href = column.href(row) if column.href is not None else None
    return value if href is None else {"value": value, "href": href}
