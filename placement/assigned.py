"""Shards as they are published: the assignments that a batch has changed, many at a time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from placement.assignments import EMPTY
from placement.model import Assignment
from placement.roles import role_names

if TYPE_CHECKING:
    from placement.state import State


def assignments(
    state: "State", keyed: Sequence[tuple[tuple[str, int], int]], epochs: Sequence[int]
) -> list[Assignment]:
    """Shards with their keys, at these epochs: while a move runs its source still stands in the
    list of replicas."""
    ids, opened = state.topology.ids, state.ledger.by_shard
    lists = state.table.lists([shard for _, shard in keyed])
    plain: dict[str, bool] = {}
    made: list[Assignment] = []
    for ((name, number), shard), planned, epoch in zip(keyed, lists, epochs, strict=True):
        stream, nodes, move = state.streams[name], planned, None
        if name not in plain:
            plain[name] = stream.policy is None or not state.aside(stream.policy)
        if shard in opened:
            nodes, move = state.complete(shard), opened[shard].move
        made.append(
            Assignment(
                stream=name,
                shard=number,
                epoch=epoch,
                replicas=tuple([ids[node] for node in nodes if node != EMPTY]),
                adding=(move.add,) if move and move.add else (),
                removing=(move.remove,) if move and move.remove else (),
                move_id=move.move_id if move else None,
                decided_at=state.now,
                roles=None
                if plain[name]
                else role_names(stream.policy, stream.copies, nodes, state.topology),
            )
        )
    return made
