"""The table of shards: a page of a stream's million costs no more than that of its ten."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from streaming.console.derived import CommitState
from streaming.console.page import View, link_to
from streaming.console.table import (
    Column,
    DataTable,
    Row,
    TablePage,
    TableQuery,
    commit_reader,
    draw_rows,
)
from streaming.read_model import RUNGS, ShardQuery

_SORTED = ("shard", "epoch", "decided_at")


def _link(row: Row) -> str:
    return link_to("streams", row["stream"], "shards", row["shard"])


def _columns() -> tuple[Column, ...]:
    return (
        Column("name", "Shard", "name", href=_link, searched=True, sortable=False),
        Column("health", "Health", "status", words=[str(each) for each in RUNGS], sortable=False),
        Column("replicas", "Replicas", "list", sortable=False, hint="the leader first"),
        Column("moving", "Moving", "list", sortable=False, wide=True),
        Column("epoch", "Epoch", "number", wide=True),
        Column("decided_at", "Decided", "time", wide=True),
    )


async def show_shard_table(view: View, stream: str) -> None:
    """The shards of a stream. The search takes a shard's number, or the id of a node that holds a
    replica; the address may name the node as `node`."""
    columns = _columns()

    await DataTable(
        view,
        f"Shards of {stream}",
        columns,
        commit_reader(
            view, ("shards", stream), lambda state, query: _read(state, columns, stream, query)
        ),
        noun="shards",
        empty="None of its shards is placed.",
        search_label="Shard number or node",
    ).show()


def _read(
    state: CommitState, columns: Sequence[Column], stream: str, query: TableQuery
) -> TablePage:
    steps = state.judged.get(stream)
    if steps is None:
        return TablePage([], 0, 0)
    wanted = ShardQuery(
        health=query.filters.get("health"),
        sort=query.sort if query.sort in _SORTED else "shard",
        descending=query.descending,
        start=query.page * query.size,
        size=query.size,
    )
    text = query.search.rpartition("/")[2]
    if text.isdecimal() and len(text) < 10:
        wanted = replace(wanted, shard=int(text))
    elif query.search:
        wanted = replace(wanted, node=query.search)
    found = state.model.select_shards(stream, steps, wanted)
    rows = draw_rows(map(_row, found.rows), columns)
    return TablePage(rows, found.found, found.total)


def _row(body: Row) -> dict[str, Any]:
    moving = [f"+{node}" for node in body["adding"]] + [f"−{node}" for node in body["removing"]]
    return {
        "stream": body["stream"],
        "shard": body["shard"],
        "name": f"{body['stream']}/{body['shard']}",
        "health": body["health"],
        "replicas": body["replicas"],
        "moving": moving,
        "epoch": body.get("epoch"),
        "decided_at": body.get("decided_at"),
    }
