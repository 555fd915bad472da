"""Plays a request to its end on a copy of the running reconciler: its moves, its waves.

Every move that is open together makes a wave; then all its copies complete at once, and the next
wave is what the limits allow then. So the waves are the fewest rounds of copies that the limits
leave, whatever time a copy takes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from placement.diagnosis import DRAIN_RULE, is_stuck
from placement.model import (
    AckKind,
    Action,
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
# Shards of a request up to which its moves are played: a wave of a few hundred takes 20 ms, and
# nobody waits minutes for the look at a hold.
SHARDS_MAX = 20_000
# What people ask for that makes moves.
_MOVING = (Action.OVERRIDE_HOLD, Action.APPROVE_RELOCATION, Action.REBALANCE)

ShardKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class RehearsedMove:
    """A move of the request, in which wave, and whether its copy comes from another top-level
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
    """Holds the moves of a request in their order, and what stays as it is: of a drain the replicas
    that cannot leave. `level`: the name of the top level of domains."""

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
                    "rule": each.rule,
                    "reason": reason_body(each.reason),
                }
                for each in self.blocked
            ],
        }


@dataclass(frozen=True, slots=True)
class _Scope:
    """Tells which moves a request makes, and which violations it is to end, while it is played."""

    makes: Callable[[Move], bool]
    ends: Callable[[ShardKey, Violation], bool]
    # A rebalance ends no violation; it is over when nothing is issued any more.
    until_quiet: bool = False


def rehearse_request(
    copy: Reconciler,
    first: Ready,
    under_way: Sequence[Move],
    action: Action,
    target: str,
    shards: Sequence[ShardKey],
    level: str,
) -> Rehearsal | None:
    """Play a request that `copy` has just been asked for, with the answer `first`, to its end. None
    for one that makes no moves by itself, or touches too many shards. `under_way`: the moves that
    were open before; `shards`: those that it touches; `level` names the top level."""
    if action is Action.DRAIN:
        return rehearse(copy, first, under_way, target, level)
    if action not in _MOVING or len(shards) > SHARDS_MAX:
        return None
    touched = {*shards}
    if action is Action.REBALANCE:
        scope = _Scope(lambda move: move.cause == Cause.BALANCE, lambda *_: False, until_quiet=True)
    else:
        scope = _Scope(
            lambda move: (move.stream, move.shard) in touched, lambda shard, _: shard in touched
        )
    return _play(copy, first, under_way, scope, level)


def rehearse(
    copy: Reconciler, first: Ready, under_way: Sequence[Move], target: str, level: str
) -> Rehearsal:
    """Play the drain of `target`, which `copy` has just been asked for with the answer `first`, to
    its end. `under_way`: the moves that were open before; `level` names the top level."""
    views = copy.in_force().topology.values()
    nodes = {view.node_id for view in views if view is not None and _is_within(view, target)}
    scope = _Scope(
        lambda move: move.cause == Cause.DRAIN and move.remove in nodes,
        lambda _, each: each.rule == DRAIN_RULE and each.domain in nodes,
    )
    return _play(copy, first, under_way, scope, level)


def _play(
    copy: Reconciler, first: Ready, under_way: Sequence[Move], scope: _Scope, level: str
) -> Rehearsal:
    standing = copy.in_force()
    places = {name: view for name, view in standing.topology.items() if view is not None}
    found: list[RehearsedMove] = []
    left = dict(_to_end(standing, scope))
    for wave, ready, issued in _waves(copy, first, under_way):
        left = {key: v for key, v in left.items() if key[0] not in ready.violations}
        left |= _to_end(ready, scope)
        found += [
            RehearsedMove(wave, move, _crosses_domains(move, places))
            for move in issued
            if scope.makes(move)
        ]
        if not scope.until_quiet and all(map(is_stuck, left.values())):
            break
    blocked = sorted(left, key=lambda key: (key[0], key[1] or "", key[2]))
    return Rehearsal(tuple(found), tuple(left[key] for key in blocked), level)


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


def _to_end(
    ready: Ready, scope: _Scope
) -> Iterator[tuple[tuple[ShardKey, str | None, str], Violation]]:
    """The violations that the request is to end."""
    for shard, violations in ready.violations.items():
        for each in violations:
            if scope.ends(shard, each):
                yield (shard, each.domain, each.rule), each


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
