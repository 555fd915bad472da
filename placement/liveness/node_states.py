"""Holds the states of the nodes of one topology shard, and changes them.

Heartbeats, silence (`table`) and all else that is said of nodes (`statements`) change the same
few things: who holds a node's name, what its status is, and how often that has changed.
"""

from collections import Counter
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from placement.liveness.clocks import SilenceClocks, Timers
from placement.liveness.incarnations import Incarnations, Mark
from placement.liveness.log import (
    Registration,
    ReportedStatus,
    Statement,
    Unregistration,
    Verdict,
    conflict_reason,
)
from placement.liveness.node_columns import NodeColumns
from placement.model import FlapHistory, Liveness, Reason, Reporting

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Status(IntEnum):
    """Names a node's liveness as a column holds it."""

    UP = 0
    SUSPECT = 1
    DEAD = 2
    UNREGISTERED = 3


LIVENESS = (Liveness.UP, Liveness.SUSPECT, Liveness.DEAD, Liveness.UNREGISTERED)
"""The liveness of each status."""
# A life is silent once it has missed so many of its usual beats: one may be late, two be lost.
BEATS_MISSED = 3


class NodeStates:
    """Holds the states of nodes, by their rows in `nodes`.

    - `lives`: the other lives of their processes.
    - `flaps`: the transitions of nodes that came and went.
    - `reports`: the last reports of detectors, on the nodes about which they decide.
    - `ignored`: how many records changed nothing, by reason.
    - `crowded`: there was no room for a node, and none has gone since.
    """

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self.ignored: Counter[str] = Counter()
        self.nodes = NodeColumns()
        self.lives = Incarnations(timers)
        self.silence = SilenceClocks(timers.gap_max_ms)
        self.flaps: dict[int, FlapHistory] = {}
        self.reports: dict[int, tuple[int, str]] = {}
        self.crowded = False

    def hear_earlier_life(
        self,
        node: int,
        incarnation: str,
        sequence: int,
        record: tuple[int, int],
        mark: Mark,
        verdicts: list[Verdict],
    ) -> None:
        """Apply a statement of a life that another has followed.

        `record`: its append time and offset. Adds a verdict if it is a conflict.
        """
        if self.nodes.status[node] == Status.UNREGISTERED:
            return
        reason = self.conflict_reason(node, incarnation)
        if self.lives.report_earlier_life(node, incarnation, reason, record[0], mark):
            changes = self.verdict(node, *record, lives=self.lives.of(node))
            verdicts.append(replace(changes, sequence=sequence))

    def conflict_reason(self, node: int, incarnation: str) -> Reason:
        """Make the reason for refusing a life that goes on speaking beside the holder."""
        return conflict_reason(self.nodes.ids[node], self.nodes.incarnations[node], incarnation)

    def ignore(self, reason: str, records: int = 1) -> bool:
        """Count records that change nothing, by reason."""
        if records:
            self.ignored[reason] += records
        return False

    def admit(self, node: int | None, statement: Statement, at: Mark) -> Verdict:
        """Apply what a life says of its node."""
        nodes, known = self.nodes, node is not None
        node = nodes.append(statement.node_id) if node is None else node
        holder = nodes.incarnations[node]
        same = known and holder == statement.incarnation
        nodes.name(node, statement.incarnation, statement.body_hash)
        nodes.touch(node, statement.sequence, at, anew=not same)
        if known and not same:
            self.lives.follow(node, holder, statement.incarnation, at)
            nodes.rename()
        if isinstance(statement.body, Registration):
            self.lives.stopping.discard(node)
            if not statement.body.external:
                self.reports.pop(node, None)
            elif not (same and node in self.reports):
                self.reports[node] = (-1, "")
        status = Status.UNREGISTERED if isinstance(statement.body, Unregistration) else Status.UP
        if status == Status.UP and self.reports.get(node, ("", ""))[1] == ReportedStatus.DOWN:
            status = Status.DEAD
        changes: dict[str, Any] = {
            "statement": statement,
            "flaps": self.set_status(node, status, statement.at, not same) if known else None,
            "reporting": self.reporting(node),
            "lives": self.lives.of(node) if known and not same else None,
        }
        nodes.status[node] = status
        return self.verdict(node, statement.at, statement.offset, **changes)

    def take_over(self, node: int, at: int, offset: int, now: Mark) -> Verdict:
        """Pass the name to the waiting life, with its statements about itself."""
        waiting = self.lives.waiting[node]
        life = waiting.life
        statement = Statement(
            offset,
            0,
            at,
            self.nodes.ids[node],
            life.incarnation,
            waiting.sequence,
            Registration(life.attributes, life.external),
            life.body_hash,
        )
        changes = self.admit(node, statement, waiting.heard)
        self.lives.recent[node] = now
        return changes

    def verdict(self, node: int, at: int, offset: int, **changes: Any) -> Verdict:
        """Make the verdict on a node at a record."""
        nodes = self.nodes
        life = (nodes.ids[node], nodes.incarnations[node], int(nodes.sequence[node]))
        return Verdict(at, offset, *life, LIVENESS[self.status(node)], **changes)

    def status(self, node: int) -> int:
        """Return the node's status."""
        return int(self.nodes.status[node])

    def grace_ms(self, node: int) -> int:
        """Return the silence of the holder, in ms, after which another life may follow."""
        missed = BEATS_MISSED * int(self.nodes.usual[node])
        return min(max(self.timers.incarnation_grace_ms, missed), self.timers.suspect_after_ms)

    def reporting(self, node: int) -> Reporting:
        """Return whether a detector decides about the node, and its last report."""
        return Reporting(True, *self.reports[node]) if node in self.reports else Reporting()

    def external(self) -> "NDArray[np.bool_]":
        """Mask the nodes about which a detector decides, not their silence."""
        found = np.zeros(len(self.nodes), bool)
        found[list(self.reports)] = True
        return found

    def set_status(
        self, node: int, status: Status, at: int, anew: bool = False
    ) -> FlapHistory | None:
        """Set a node's status; returns its flaps if that makes a transition.

        `anew`: by another life of its process. If the node was not dead yet, that is a restart.
        """
        before = self.status(node)
        if before == status:
            return None
        self.nodes.status[node] = status
        self.crowded = False
        flaps, rule = self.flaps.get(node, FlapHistory()), self.timers.flaps
        if anew and status == Status.UP and before != Status.DEAD:
            flaps = flaps.with_restart(at, rule)
        else:
            flaps = flaps.with_transition(at, LIVENESS[status], rule)
        self.flaps[node] = flaps
        return flaps

    def holder(self, node: int) -> str:
        """Name the life that holds the node's name, for a sentence."""
        nodes, status = self.nodes, LIVENESS[self.status(node)]
        return f"incarnation {nodes.incarnations[node]} at {nodes.sequence[node]} is {status}"
