"""The moves: those in flight with age, progress and deadline, and the needs that wait with why."""

from collections.abc import Mapping
from typing import Any

from placement.model import Move, ViolationClass
from streaming.console.derived import CommitState
from streaming.console.elements import panel, show_heading, tag
from streaming.console.page import Page, View, link_to
from streaming.console.table import Column, DataTable, Row, rows_reader


def _shard_link(row: Row) -> str:
    return link_to("streams", row["stream"], "shards", row["number"])


def _node_link(name: str) -> Any:
    return lambda row: link_to("nodes", row[name]) if row[name] else None


def _cancel_link(row: Row) -> str:
    return link_to("requests", type="CancelMove", target=row["move"])


_MOVES = (
    Column("shard", "Shard", "name", href=_shard_link, searched=True),
    Column("kind", "Kind", words=("replace", "add", "remove", "leader")),
    Column("remove", "From", "name", href=_node_link("remove"), searched=True),
    Column("add", "To", "name", href=_node_link("add"), searched=True),
    Column("state", "State", "status", words=("issued", "accepted")),
    Column("progress", "Copied", "percent", hint="as its executor reports it"),
    Column("cause", "Cause", wide=True),
    Column("issued_at", "Issued", "time"),
    Column("deadline", "Expires", "time", hint="unless its executor reports progress", wide=True),
    Column("message", "Why", "name", searched=True, wide=True),
)
_CANCEL = Column("cancel", "Cancel", href=_cancel_link, sortable=False)
_WAITING = (
    Column("shard", "Shard", "name", href=_shard_link, searched=True),
    Column("rule", "Rule", "name", searched=True),
    Column("code", "Reason", "name", searched=True),
    Column("message", "Why it waits", "name", searched=True),
    Column("since", "Since", "time", wide=True),
)


def _progress(move: Move) -> float | None:
    if not move.bytes_total:
        return None
    return min((move.bytes_done or 0) / move.bytes_total, 1.0)


def list_moves(state: CommitState) -> list[Row]:
    """The open moves, the oldest first."""
    return [
        {
            "move": move.move_id,
            "shard": f"{move.stream}/{move.shard}",
            "stream": move.stream,
            "number": move.shard,
            "kind": str(move.kind),
            "remove": move.remove,
            "add": move.add or move.leader,
            "state": str(move.state),
            "progress": _progress(move),
            "cause": str(move.cause).replace("_", " "),
            "issued_at": move.issued_at,
            "deadline": move.deadline,
            "message": move.reason.message,
            "cancel": "cancel",
        }
        for move in state.snapshot.open_moves
    ]


def list_waiting(state: CommitState) -> list[Row]:
    """The needs for which no move can be issued now."""
    return [
        {
            "shard": f"{each.stream}/{each.shard}",
            "stream": each.stream,
            "number": each.shard,
            "rule": each.rule,
            "code": str(each.reason.code),
            "message": each.reason.message,
            "since": each.since or None,
        }
        for each in state.snapshot.violations
        if each.violation_class is ViolationClass.DEFERRED and each.shard is not None
    ]


def count_reasons(state: CommitState) -> Mapping[str, int]:
    """Count the waiting needs by reason, the most frequent first."""
    counts: dict[str, int] = {}
    for row in state.part("waiting moves", list_waiting):
        counts[row["code"]] = counts.get(row["code"], 0) + 1
    return dict(sorted(counts.items(), key=lambda each: -each[1]))


async def build_moves(view: View) -> None:
    """The page."""
    show_heading("Moves", "What is copied now, and what is needed and waits.")
    columns = (*_MOVES[:-1], _CANCEL, _MOVES[-1]) if view.may_operate else _MOVES
    with panel("In flight"):
        await DataTable(
            view,
            "Moves in flight",
            columns,
            rows_reader(view, "open moves", columns, list_moves),
            noun="moves",
            empty="No replica is on its way.",
        ).show()
        if not view.may_operate:
            tag("p", "soft", "To cancel a move, sign in as a principal with the role operate.")
    with panel("Waiting"):

        async def read() -> Mapping[str, int]:
            return await view.derive("waiting reasons", count_reasons)

        await view.live(read, _show_reasons)
        await DataTable(
            view,
            "Needs that wait",
            _WAITING,
            rows_reader(view, "waiting moves", _WAITING, list_waiting),
            noun="needs",
            empty="Nothing waits.",
            prefix="w_",
        ).show()


def _show_reasons(counts: Mapping[str, int]) -> None:
    if counts:
        said = ", ".join(f"{count:,} for {code}" for code, count in counts.items())
        tag("p", "soft", f"Waiting: {said}.")


PAGES = (Page("/moves", "Moves", build_moves, icon="swap_horiz", group="Operate", file=False),)
