"""The locations: every domain of every level, with what stands in it."""

from streaming.console.derived import CommitState
from streaming.console.elements import show_heading
from streaming.console.page import Page, View, link_to
from streaming.console.table import Column, DataTable, Row, rows_reader


def _map_link(row: Row) -> str:
    return link_to("", at=row["location"])


def _nodes_link(row: Row) -> str:
    return link_to("nodes", q=row["location"])


COLUMNS = (
    Column("location", "Location", "name", href=_map_link, searched=True),
    Column("level", "Level"),
    Column("nodes", "Nodes", "number", href=_nodes_link),
    Column("share_up", "Up", "percent", hint="share of its nodes that are up"),
    Column("replicas", "Replicas", "number"),
    Column("weight", "Weight", "number", wide=True),
    Column("per_weight", "Replicas per weight", "number", wide=True),
)


def _rows(state: CommitState) -> list[Row]:
    levels = state.snapshot.levels
    found: list[Row] = []
    for row in state.list_rows("locations"):
        depth = row["location"].count("/")
        level = levels[depth - 1] if 0 < depth <= len(levels) else str(depth or "")
        found.append(row | {"level": level, "share_up": row["up"] / row["nodes"]})
    return found


async def build_locations(view: View) -> None:
    """The table of all domains."""
    show_heading("Locations", "Every domain of every level; a name leads to its place on the map.")
    read = rows_reader(view, "locations", COLUMNS, _rows)
    await DataTable(
        view,
        "Domains of the fleet",
        COLUMNS,
        read,
        noun="locations",
        empty="No node has a location yet.",
    ).show()


PAGES = (Page("/locations", "Locations", build_locations, icon="lan", group="Fleet"),)
