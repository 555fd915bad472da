"""The nodes: where they stand, whether they live, what is ordered for them, what they hold."""

from collections.abc import Mapping
from typing import Any

from streaming.console.derived import CommitState
from streaming.console.elements import SIGNS, panel, show_heading, show_name, show_status, tag
from streaming.console.facts import HistoryPanel, show_facts
from streaming.console.page import Page, View, link_to
from streaming.console.pages.streams import show_violations
from streaming.console.table import (
    Column,
    DataTable,
    Row,
    TablePage,
    TableQuery,
    rows_reader,
    select_rows,
)
from streaming.console.times import show_time
from streaming.live import LISTINGS, describe_node
from streaming.replay import NodeTimeline

_WORDS = LISTINGS["nodes"].words


def _link(row: Row) -> str:
    return link_to("nodes", row["node"])


def _location_link(row: Row) -> str | None:
    return link_to("", at=row["location"]) if row["location"].startswith("/") else None


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
    read = rows_reader(view, "nodes", COLUMNS, lambda state: state.list_rows("nodes"))
    await DataTable(
        view,
        "Nodes of the fleet",
        COLUMNS,
        read,
        noun="nodes",
        empty="No node has registered yet.",
    ).show()


_HELD_COLUMNS = (
    Column(
        "stream",
        "Stream",
        "name",
        href=lambda row: link_to("streams", row["stream"], q=row["node"]),
        searched=True,
    ),
    Column("replicas", "Replicas", "number"),
    Column("leaders", "Leaders", "number"),
)


async def build_node(view: View) -> None:
    """The page of one node."""
    name = view.parameters["node"]

    def describe(state: CommitState) -> dict[str, Any]:
        return describe_node(state.model.take_snapshot(node=name)[1], name)

    async def read() -> dict[str, Any]:
        return await view.derive(("node", name), describe)

    async def read_held(query: TableQuery) -> TablePage:
        rows = [{**each, "node": name} for each in (await read())["by_stream"]]
        return select_rows(rows, _HELD_COLUMNS, query)

    await view.live(read, lambda node: _show_node(view, node))
    with panel("What it holds"):
        await DataTable(
            view,
            f"Replicas on {name}",
            _HELD_COLUMNS,
            read_held,
            noun="streams",
            empty="It holds no replica.",
        ).show()
    if not view.console.is_file:
        with panel("Its history"):
            HistoryPanel(view, lambda: NodeTimeline(name), f"placer history node {name}")


def _show_node(view: View, node: Mapping[str, Any]) -> None:
    with tag("div", "page-head"):
        with tag("nav", "crumbs", aria_label="Breadcrumb"):
            tag("a", "", "Nodes", href="/nodes")
            if node["location"]:
                tag("span", "", "/", aria_hidden="true")
                show_name(node["location"], link_to("", at=node["location"]))
        with tag("div", "title"):
            with tag("h1"):
                show_name(node["node"])
            show_status(str(node["status"]), str(node["condition"]))
    _show_notices(node)
    with tag("div", "columns"):
        with panel("Facts"):
            _show_facts(view, node)
        with panel("Moves"):
            _show_moves(node)
        if node["transitions"]:
            with panel("Its liveness"), tag("ol", "timeline"):
                for each in reversed(node["transitions"]):
                    with tag("li"):
                        show_time(each["at"])
                        show_status(str(each["liveness"]))
    if node["violations"]:
        with panel("Broken rules of its shards"):
            show_violations(node["violations"])


def _show_notices(node: Mapping[str, Any]) -> None:
    """What a person has to know before anything else."""
    said: list[tuple[str, str]] = []
    pending = node["pending_location"]
    if pending:
        said.append(("warn", f"A relocation to {pending['location']} waits for approval."))
    if node["quarantine"]:
        said.append(("bad", f"It is quarantined: {_reason_of(node['quarantine'])}"))
    for life in ("pending_life", "refused_life"):
        if node[life]:
            words = "waits for its turn" if life == "pending_life" else "is refused"
            said.append(("warn", f"Another life of its process {words}."))
    if node["hold_down"]:
        said.append(("warn", "It flapped, and receives nothing for a while."))
    said += [
        ("bad", f"A hold keeps its replicas from being replaced: {hold['name']}.")
        for hold in node["holds"]
    ]
    said += [
        ("info", f"Ordered: {order.get('action', 'request')} of {order['target']}.")
        for order in node["orders"]
    ]
    if node["critical_shards"]:
        count = node["critical_shards"]
        said.append(("warn", f"{count:,} of its shards lose their quorum if it is lost alone."))
    for tone, sentence in said:
        with tag("div", f"notice {tone}"):
            tag("span", "sign", SIGNS[tone], aria_hidden="true")
            show_name(sentence, classes="message")


def _reason_of(body: Mapping[str, Any]) -> str:
    reason = body.get("reason")
    return str(reason["message"] if isinstance(reason, Mapping) else reason or body)


def _show_facts(view: View, node: Mapping[str, Any]) -> None:
    tags = ", ".join(f"{name}={value}" for name, value in node["tags"].items())
    show_facts(
        [
            ("Location", node["location"] or "none"),
            ("Said by", node["location_source"]),
            ("Claims", node["claimed_location"]),
            ("Host", node["host"]),
            ("Tags", tags or None),
            ("Liveness", str(node["liveness"])),
            ("Since", None if view.console.is_file else node["since"]),
            ("Replicas", f"{node['replicas']:,}, {node['leaders']:,} of them lead"),
            ("Weight", f"{node['weight']:g}"),
            ("Capacity", None if node["capacity"] is None else f"{node['capacity']:,} replicas"),
            ("May lead", "yes" if node["may_lead"] else "no"),
            ("Incarnation", None if view.console.is_file else str(node["incarnation"])),
        ]
    )


def _show_moves(node: Mapping[str, Any]) -> None:
    if not (node["moves_in"] or node["moves_out"]):
        tag("p", "soft", "No replica is on its way to it or from it.")
        return
    with tag("ul", "plain"):
        for word, moves in (("coming", node["moves_in"]), ("going", node["moves_out"])):
            for move in moves[:_MOVES_SHOWN_MAX]:
                with tag("li", "said"):
                    show_status(str(move["state"]))
                    stream, shard = move["stream"], move["shard"]
                    show_name(f"{stream}/{shard}", link_to("streams", stream, "shards", shard))
                    other = move["remove"] if word == "coming" else move["add"]
                    tag("span", "", f"{word} {'from' if word == 'coming' else 'to'}")
                    if other:
                        show_name(other, link_to("nodes", other))
                    show_time(move["issued_at"])
            left = len(moves) - _MOVES_SHOWN_MAX
            if left > 0:
                tag("li", "soft", f"and {left} more {word}")


# A node that is drained has thousands; the page of moves lists all.
_MOVES_SHOWN_MAX = 15

PAGES = (
    Page("/nodes", "Nodes", build_nodes, icon="dns", group="Fleet"),
    Page("/nodes/{node}", "Node", build_node, parent="Nodes"),
)
