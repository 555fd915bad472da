"""What was published, as a reconciler is rebuilt from it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from placement.model import Assignment, Decision, Memory, Move, NodeView, Violation


@dataclass(frozen=True, slots=True)
class Settled:
    """Assignments at rest (no move under way, no roles) as columns: the n-th entries of all are
    one of them."""

    streams: Sequence[str]
    shards: Sequence[int]
    epochs: Sequence[int]
    replicas: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Published:
    """The records that a reconciler is rebuilt from, in any order. Assignments may come one by one
    or, those at rest, in chunks of columns."""

    nodes: Iterable[NodeView] = ()
    decisions: Iterable[Decision] = ()
    assignments: Iterable[Assignment] = ()
    moves: Iterable[Move] = ()
    violations: Iterable[tuple[Violation, ...]] = ()
    memory: Iterable[Memory] = ()
    settled: Iterable[Settled] = ()
