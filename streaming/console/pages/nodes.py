"""The nodes: where they stand, whether they live, what is ordered for them, what they hold."""

from streaming.console.elements import show_heading
from streaming.console.page import Page, View, link_to
from streaming.console.table import Column, DataTable, Row, rows_reader
from streaming.live import LISTINGS

_WORDS = LISTINGS["nodes"].words


def _link(row: Row) -> str:
    return link_to("nodes", row["node"])


def _location_link(row: Row) -> str | None:
    return link_to("locations", at=row["location"]) if row["location"].startswith("/") else None


COLUMNS = (
    Column("node", "Node", "name", href=_link, searched=True),
    Column("location", "Location", "name", href=_location_link, searched=True),
    Column("status", "Status", "status", words=_WORDS["status"]),
    Column("liveness", "Liveness", "status", words=_WORDS["liveness"], wide=True),
    Column("replicas", "Replicas", "number"),
    Column("leaders", "Leaders", "number", wide=True),
    Column("coming", "Coming", "number", wide=True, hint="replicas on their way to it"),
    Column("going", "Going", "number", wide=True, hint="replicas on their way from it"),
    Column("weight", "Weight", "number", wide=True),
    Column("host", "Host", "name", searched=True, wide=True),
    Column("since", "Since", "time", wide=True, hint="of its liveness"),
)


async def build_nodes(view: View) -> None:
    """The table of all nodes."""
    show_heading("Nodes", "Where they stand, whether they live, and what they hold.")
    read = rows_reader(view, "nodes", COLUMNS, LISTINGS["nodes"].rows)
    await DataTable(
        view,
        "Nodes of the fleet",
        COLUMNS,
        read,
        noun="nodes",
        empty="No node has registered yet.",
    ).show()


PAGES = (Page("/nodes", "Nodes", build_nodes, icon="dns", group="Fleet"),)
