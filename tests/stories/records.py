"""What the compacted topics hold: the records that a reconciler is rebuilt from."""

import random
from collections.abc import Mapping
from typing import Any

from placement.model import (
    Assignment,
    Configuration,
    Decision,
    Memory,
    Move,
    NodeView,
    Published,
    Ready,
    ShardLoad,
    Violation,
)
from placement.reconciler import Reconciler


class Records:
    """The last record of every key."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeView] = {}
        self.decisions: dict[str, Decision] = {}
        self.assignments: dict[tuple[str, int], Assignment] = {}
        self.moves: dict[str, Move] = {}
        self.violations: dict[tuple[str, int], tuple[Violation, ...]] = {}
        self.memory: dict[tuple[str, str], Memory] = {}
        self.loads: dict[tuple[str, int], ShardLoad] = {}

    def commit(self, ready: Ready) -> None:
        """Take over what a batch published."""
        _take_over(self.nodes, ready.topology)
        self.commit_streams(ready)
        for move_id, (move, dropped) in ready.moves.items():
            self.moves[move_id] = move
            if dropped:
                del self.moves[move_id]
        for shard, violations in ready.violations.items():
            self.violations[shard] = violations
            if not violations:
                del self.violations[shard]
        _take_over(self.memory, ready.memory)
        _take_over(self.loads, ready.loads)

    def commit_streams(self, ready: Ready) -> None:
        """Take over decisions and assignments."""
        self.decisions |= ready.decisions
        for name in ready.forgotten:
            del self.decisions[name]
        for key in ready.dropped:
            del self.assignments[key]
        self.assignments |= ready.assignments

    def open_moves(self) -> list[Move]:
        """Moves under way, in the order in which they were issued."""
        return [move for move in self.moves.values() if move.state.is_open]

    def rebuild(
        self, configuration: Configuration, now: int, rng: random.Random | None = None
    ) -> Reconciler:
        """A reconciler from the records; see `published`."""
        return Reconciler.restore(configuration, self.published(rng), now)

    def published(self, rng: random.Random | None = None) -> Published:
        """The records in the reverse order or in that of `rng`: topics are read partition by
        partition, so that none can be relied on."""

        def mixed(records: dict[Any, Any]) -> list[Any]:
            values = list(records.values())
            return rng.sample(values, len(values)) if rng else values[::-1]

        return Published(
            mixed(self.nodes),
            mixed(self.decisions),
            mixed(self.assignments),
            mixed(self.moves),
            mixed(self.violations),
            mixed(self.memory),
            mixed(self.loads),
        )


def _take_over(known: dict[Any, Any], news: Mapping[Any, Any]) -> None:
    """Put the latest records last; None is a tombstone."""
    for key, record in news.items():
        known.pop(key, None)
        if record is not None:
            known[key] = record
