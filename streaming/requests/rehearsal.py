"""Plays a drain to its end on a copy of the running reconciler: its moves, its waves.

Every move that is open together makes a wave; then all its copies complete at once, and the next
wave is what the limits allow then. So the waves are the fewest rounds of copies that the limits
leave, whatever time a copy takes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from placement.diagnosis import DRAIN_RULE, is_stuck
from placement.model import (
    AckKind,
    Cause,
    Move,
    MoveAcked,
    NodeView,
    Ready,
    Reason,
    Violation,
    parse_location,
)
from placement.reconciler import Reconciler
from streaming.codec import reason_body

# Each is a batch of the planner, milliseconds; ten times what a drain under tight limits takes.
WAVES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class RehearsedMove:
    """A move of the drain, in which wave, and whether its copy comes from another top-level
    domain."""

    wave: int
    move: Move
    crossing: bool

    def body(self) -> dict[str, Any]:
        """The move in the form of `plan`."""
        move = self.move
        return {
            "wave": self.wave,
            "stream": move.stream,
            "shard": move.shard,
            "kind": move.kind,
            "remove": move.remove,
            "add": move.add,
            "cause": move.cause,
            "crossing": self.crossing,
            "reason": reason_body(move.reason),
        }


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Holds the moves of a drain in their order, and the replicas that cannot leave. `level`: the
    name of the top level of domains."""

    moves: tuple[RehearsedMove, ...]
    blocked: tuple[Violation, ...]
    level: str

    @property
    def waves(self) -> int:
        """Rounds of copies, each as large as the limits allow."""
        return len({each.wave for each in self.moves})

    def body(self) -> dict[str, Any]:
        """As `drain --dry-run --output json` shows it."""
        return {
            "moves": [each.body() for each in self.moves],
            "waves": self.waves,
            "copies": sum(each.move.add is not None for each in self.moves),
            "crossing": sum(each.crossing for each in self.moves),
            "level": self.level,
            "blocked_replicas": [
                {
                    "stream": each.stream,
                    "shard": each.shard,
                    "node": each.domain,
                    "reason": reason_body(each.reason),
                }
                for each in self.blocked
            ],
        }


def rehearse(
    copy: Reconciler, first: Ready, under_way: Sequence[Move], target: str, level: str
) -> Rehearsal:
    """Play the drain of `target`, which `copy` has just been asked for with the answer `first`, to
    its end. `under_way`: the moves that were open before; `level` names the top level."""
    standing = copy.in_force()
    places = {name: view for name, view in standing.topology.items() if view is not None}
    nodes = {name for name, view in places.items() if _is_within(view, target)}
    found: list[RehearsedMove] = []
    left = {(shard, v.domain): v for shard, v in _drains(standing, nodes)}
    for wave, ready, issued in _waves(copy, first, under_way):
        left = {key: v for key, v in left.items() if key[0] not in ready.violations}
        left |= {(shard, v.domain): v for shard, v in _drains(ready, nodes)}
        found += [
            RehearsedMove(wave, move, _crosses_domains(move, places))
            for move in issued
            if move.cause == Cause.DRAIN and move.remove in nodes
        ]
        if all(map(is_stuck, left.values())):
            break
    return Rehearsal(tuple(found), tuple(left[key] for key in sorted(left)), level)


def _waves(
    copy: Reconciler, ready: Ready, under_way: Sequence[Move]
) -> Iterator[tuple[int, Ready, list[Move]]]:
    """Yield every batch with the number of its wave and the moves it issues. A wave is batches that
    issue more, then one in which all open moves complete."""
    opened = {move.move_id: move for move in under_way}
    known = set(opened)
    for wave in range(1, WAVES_MAX + 1):
        while True:
            # The others are older ones: reminders, and tombstones of what has ended.
            moves = [move for move, _ in ready.moves.values() if move.issued_at == copy.now]
            issued = [move for move in moves if move.move_id not in known]
            yield wave, ready, issued
            known.update(move.move_id for move in issued)
            for move, _ in ready.moves.values():
                opened.pop(move.move_id, None)
                if move.state.is_open:
                    opened[move.move_id] = move
            if not issued:
                break
            ready = copy.apply([], copy.now)
        if not opened:
            return
        done = [
            MoveAcked(copy.now, AckKind.COMPLETED, move.move_id, move.stream, move.shard)
            for move in opened.values()
        ]
        ready = copy.apply(done, copy.now)


def _drains(ready: Ready, nodes: set[str]) -> Iterator[tuple[tuple[str, int], Violation]]:
    """The replicas that still stand on the nodes."""
    for shard, violations in ready.violations.items():
        for each in violations:
            if each.rule == DRAIN_RULE and each.domain in nodes:
                yield shard, each


def _is_within(view: NodeView, target: str) -> bool:
    if not target.startswith("/"):
        return view.node_id == target
    domain, here = parse_location(target), parse_location(view.attributes.location)
    if isinstance(domain, Reason) or isinstance(here, Reason):
        return False
    return here.is_within(domain)


def _crosses_domains(move: Move, places: dict[str, NodeView]) -> bool:
    if move.add is None or move.source is None:
        return False
    ends = [places[node].attributes.location.split("/")[1:2] for node in (move.add, move.source)]
    return ends[0] != ends[1]
