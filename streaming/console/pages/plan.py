"""A cluster file checked and planned: which rules are broken, and the moves that mend them."""

from typing import Any

from streaming.console.elements import panel, show_heading, show_name, show_status, tag
from streaming.console.facts import show_facts
from streaming.console.page import Page, View, link_to
from streaming.console.pages.streams import show_violations
from streaming.console.table import Column, DataTable, Row, TablePage, TableQuery, select_rows
from streaming.offline import CheckOptions, Document, PlanOptions, check_cluster, plan_moves


def _shard_link(row: Row) -> str:
    return link_to("streams", row["stream"], "shards", row["number"])


COLUMNS = (
    Column("shard", "Shard", "name", href=_shard_link, searched=True),
    Column("kind", "Kind", words=("replace", "add", "remove", "leader")),
    Column("remove", "From", "name", searched=True),
    Column("add", "To", "name", searched=True),
    Column("leader", "Leader", "name", wide=True),
    Column("cause", "Cause", wide=True),
    Column("message", "Why", "name", searched=True, wide=True),
)


def check_and_plan(document: Document) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answers of `placer check` and `placer plan` for a file."""
    check = check_cluster(document, CheckOptions()).body()
    return check, plan_moves(document, PlanOptions()).body()


def _rows(plan: dict[str, Any]) -> list[Row]:
    return [
        {
            "shard": f"{move['stream']}/{move['shard']}",
            "stream": move["stream"],
            "number": move["shard"],
            "message": move["reason"]["message"],
            **{name: move.get(name) for name in ("kind", "remove", "add", "leader", "cause")},
        }
        for move in plan["moves"]
    ]


async def build_plan(view: View) -> None:
    """The page."""
    document = view.console.document
    assert document is not None, "the page is for files"

    async def read() -> tuple[dict[str, Any], dict[str, Any]]:
        return await view.derive("plan", lambda _: check_and_plan(document))

    check, plan = await read()
    show_heading("Check and plan", "What the rules say of the file, and the moves that mend it.")
    with tag("div", "columns"):
        with panel("Check"):
            _show_check(check)
        with panel("Plan"):
            _show_plan(plan)
    if check["violations"]:
        with panel("Broken rules"):
            show_violations(check["violations"])
    rows = _rows(plan)

    async def read_moves(query: TableQuery) -> TablePage:
        return select_rows(rows, COLUMNS, query)

    with panel("Planned moves"):
        await DataTable(
            view,
            "Planned moves",
            COLUMNS,
            read_moves,
            noun="moves",
            empty="Nothing is to be moved.",
        ).show()


def _show_check(check: dict[str, Any]) -> None:
    summary = check["summary"]
    for name, counts in (("violations", summary["violations"]), ("streams", summary["streams"])):
        with tag("div", "said"):
            tag("strong", "", name.capitalize())
            for word, count in counts.items():
                if word == "total":
                    tag("span", "", f"{count:,}")
                else:
                    show_status(word, f"{count:,} {word.replace('_', ' ')}")
    with tag("ul", "plain"):
        for refused in check.get("decisions", ()):
            with tag("li", "said"):
                show_status("rejected")
                show_name(str(refused["stream"]))
                show_name(refused["reasons"][0]["message"], classes="message")
    with tag("p", "soft"):
        tag("span", "", "The same in a terminal: ")
        tag("code", "", "placer check FILE")


def _show_plan(plan: dict[str, Any]) -> None:
    traffic = plan.get("traffic") or {}
    facts: list[tuple[str, str | int | None]] = [("Moves", f"{len(plan['moves']):,}")]
    facts += [
        (name.capitalize(), f"{traffic[name]:,}")
        for name in ("copies", "crossing")
        if name in traffic
    ]
    facts.append(("At least", f"{plan['lower_bound']:,} moves are needed"))
    facts.append(("Not to be mended", f"{len(plan['unfixable']):,} violations"))
    show_facts(facts)
    if plan.get("hold"):
        with tag("p", "said"):
            show_status("held", "hold")
            tag("span", "", "A reconciler would wait for an operator before these moves.")
    with tag("p", "soft"):
        tag("span", "", "The same in a terminal: ")
        tag("code", "", "placer plan FILE")


PAGES = (Page("/plan", "Check and plan", build_plan, icon="checklist", group="File", live=False),)
