"""What becomes of shards next: the rules they break and the move that repair makes of each first.

`explain` asks it of a fleet as it stands, for a few shards among many: only these are looked at.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from placement.model import Move, MoveState, Violation
from placement.repair import Repair
from placement.state import State


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a shard breaks, each with its class and the reason for it, and the move that is made of
    it first, if one is."""

    violations: tuple[Violation, ...] = ()
    move: Move | None = None


def outlook(state: State, shards: Iterable[int]) -> Mapping[int, Outlook]:
    """Let the reconciler's own repair loose on some shards, by index. The state is changed: the
    moves are begun in it."""
    looked_at = list(shards)
    state.begin(state.now)
    repair = Repair(state)
    repair.look_at(looked_at)
    repair.run(caught_up=True)
    moves = {
        state.streams[move.stream].shards[move.shard]: move
        for move, _ in state.ready.moves.values()
        if move.state is MoveState.ISSUED
    }
    return {
        shard: Outlook(tuple(state.violations.get(shard, ())), moves.get(shard))
        for shard in looked_at
    }
