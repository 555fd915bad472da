"""Applies single statements of nodes and detectors: registrations, changes, goodbyes, reports.

A statement counts if it comes from the life that holds the node's name, or from one that may take
it over (`incarnations`). Any other is refused with the reason, or counted as ignored.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from placement.liveness.incarnations import Mark
from placement.liveness.log import (
    LastHeartbeat,
    LivenessReport,
    LocalityChange,
    Registration,
    ReportedStatus,
    Statement,
    Unregistration,
    Verdict,
    refusal,
)
from placement.liveness.node_states import NodeStates, Status
from placement.model import Code, NodeAttributes, PendingLife

# Nodes of one topology shard, whatever is sent: above any quota of the core, and what a
# batch can write back in a tenth of a second.
NODES_MAX = 16_384
# What makes the holder of a name go.
_LEAVING = (Unregistration, LastHeartbeat)


class Statements:
    """Applies statements to the states of nodes."""

    def __init__(self, states: NodeStates) -> None:
        self._states = states

    def apply(
        self, statement: Statement, partition: int, now: int, verdicts: list[Verdict]
    ) -> None:
        """Apply a node's statement, where its partition's clock shows `now`; adds to `verdicts`."""
        node, at = self._states.nodes.index.get(statement.node_id), Mark(partition, now)
        leaves = isinstance(statement.body, _LEAVING)
        if node is None:
            accepted = self._admit_unknown(statement)
        elif self._states.nodes.incarnations[node] == statement.incarnation:
            accepted = self._accept_holder(node, statement)
        else:
            accepted = self._accept_other_life(node, statement, at, verdicts)
        if isinstance(accepted, Code):
            verdicts.append(refusal(statement, self._refusal_detail(node, accepted), accepted))
        elif accepted and leaves and node in self._states.lives.waiting:
            verdicts.append(self._states.take_over(node, statement.at, statement.offset, at))
        elif accepted and isinstance(statement.body, LastHeartbeat):
            assert node is not None
            self._states.nodes.touch(node, statement.sequence, at)
            self._states.lives.stopping.add(node)
            if self._states.status(node) != Status.UP and node not in self._states.reports:
                flaps = self._states.set_status(node, Status.UP, statement.at)
                verdicts.append(
                    self._states.verdict(node, statement.at, statement.offset, flaps=flaps)
                )
        elif accepted:
            verdicts.append(self._states.admit(node, statement, at))

    def report(self, statement: Statement) -> list[Verdict]:
        """Apply an external detector's report on a node.

        Refused for an unknown life, and for a node that is decided about by its heartbeats. A life
        that waits takes over by it, as the detector has seen it.
        """
        states = self._states
        node = states.nodes.index.get(statement.node_id)
        if node is None:
            return [refusal(statement, "", Code.NODE_UNKNOWN)]
        if states.nodes.incarnations[node] == statement.incarnation:
            return self._report(node, statement)
        if states.lives.is_earlier(node, statement.incarnation):
            states.ignore("earlier_incarnation")
            return []
        waits = states.lives.is_waiting(node, statement.incarnation)
        if waits and states.lives.waiting[node].life.external:
            seen = states.lives.waiting[node].heard
            over = states.take_over(node, statement.at, statement.offset, seen)
            return [over, *self._report(node, statement)]
        code = Code.NODE_NOT_EXTERNAL if waits else Code.INCARNATION_UNKNOWN
        return [refusal(statement, states.holder(node), code)]

    def _report(self, node: int, statement: Statement) -> list[Verdict]:
        """Apply a report on the life that holds the node's name."""
        states = self._states
        report = statement.body
        assert isinstance(report, LivenessReport), "detectors state nothing else"
        if states.status(node) == Status.UNREGISTERED:
            states.ignore("unregistered_node")
            return []
        if node not in states.reports:
            return [refusal(statement, states.holder(node), Code.NODE_NOT_EXTERNAL)]
        last, word = states.reports[node]
        if statement.sequence <= last:
            if statement.sequence == last and report.status != word:
                return [refusal(statement, f"the last report said {word}", Code.SEQUENCE_CONFLICT)]
            states.ignore("older_sequence")
            return []
        states.reports[node] = (statement.sequence, report.status)
        status = Status.UP if report.status is ReportedStatus.UP else Status.DEAD
        if states.status(node) == status:
            return []
        if status == Status.DEAD and node in states.lives.waiting:
            seen = states.lives.waiting[node].heard
            return [states.take_over(node, statement.at, statement.offset, seen)]
        changes: dict[str, Any] = {"flaps": states.set_status(node, status, statement.at)}
        changes["reporting"] = states.reporting(node)
        return [states.verdict(node, statement.at, statement.offset, **changes)]

    def _refusal_detail(self, node: int | None, code: Code) -> str:
        """Return the end of a refusal's sentence.

        It names no number of nodes, which would depend on the shard of the topology.
        """
        if node is not None:
            return self._states.holder(node)
        return f"the limit is {NODES_MAX} nodes" if code is Code.QUOTA_EXCEEDED else ""

    def _accept_other_life(
        self, node: int, statement: Statement, at: Mark, verdicts: list[Verdict]
    ) -> bool | Code:
        """Return whether a statement of another life makes it the holder, else the reason against
        it."""
        lives, waits = (
            self._states.lives,
            self._states.lives.is_waiting(node, statement.incarnation),
        )
        if waits and statement.sequence <= (waiting := lives.waiting[node]).sequence:
            again = statement.sequence == waiting.sequence and not isinstance(
                statement.body, LastHeartbeat
            )
            other = statement.body_hash != waiting.life.body_hash
            return (
                Code.SEQUENCE_CONFLICT if again and other else self._states.ignore("older_sequence")
            )
        body = statement.body
        if not waits and not isinstance(body, Registration):
            return self._refuse_stranger(node, statement, at, verdicts)
        match body:
            case Registration(attributes, external, replaces):
                if self._takes_over_at_once(node, replaces, at):
                    return True
                if not self._queue_life(node, statement, attributes, external, at):
                    return False
            case LocalityChange(location, tags):
                life = lives.waiting[node].life
                tags = life.attributes.tags if tags is None else tags
                attributes = replace(life.attributes, location=location, tags=tags)
                if not self._queue_life(node, statement, attributes, life.external, at):
                    return False
            case Unregistration():
                lives.withdraw(node)
            case LastHeartbeat():
                lives.record_heartbeat(node, statement.sequence, at)
                return False
        verdicts.append(
            self._states.verdict(node, statement.at, statement.offset, lives=lives.of(node))
        )
        return False

    def _refuse_stranger(
        self, node: int, statement: Statement, at: Mark, verdicts: list[Verdict]
    ) -> bool | Code:
        """Refuse a statement whose life neither holds the name nor waits for it."""
        if not self._states.lives.is_earlier(node, statement.incarnation):
            unknown = isinstance(statement.body, LastHeartbeat)
            return (
                self._states.ignore("unknown_incarnation") if unknown else Code.INCARNATION_UNKNOWN
            )
        reached, record = int(self._states.nodes.sequence[node]), (statement.at, statement.offset)
        self._states.hear_earlier_life(node, statement.incarnation, reached, record, at, verdicts)
        late = isinstance(statement.body, LastHeartbeat)
        return self._states.ignore("earlier_incarnation") if late else Code.INCARNATION_CONFLICT

    def _queue_life(
        self, node: int, statement: Statement, attributes: NodeAttributes, external: bool, at: Mark
    ) -> bool:
        """Queue a life until the holder is silent; return whether this must be published."""
        states = self._states
        who = (
            statement.incarnation,
            statement.sequence,
            statement.body_hash,
            statement.at,
            states.grace_ms(node),
        )
        states.nodes.rename()
        return states.lives.wait(node, PendingLife(*who, attributes, external), at)

    def _takes_over_at_once(self, node: int, replaces: str | None, at: Mark) -> bool:
        """Return whether a registering life need not wait.

        It need not where the holder is not up, has announced its end, is followed by name, or has
        been silent for the grace.
        """
        nodes = self._states.nodes
        if self._states.status(node) != Status.UP or node in self._states.lives.stopping:
            return True
        if replaces == nodes.incarnations[node]:
            return True
        home, seen = nodes.partition[node : node + 1], nodes.seen[node : node + 1]
        return int(self._states.silence.silence(home, seen, *at)[0]) >= self._states.grace_ms(node)

    def _admit_unknown(self, statement: Statement) -> bool | Code:
        """Return whether an unknown node becomes known by the statement, else the reason against
        it.

        Only a registration makes it known. Other statements are refused, to be sent again: nothing
        may be remembered of nodes that never registered.
        """
        if isinstance(statement.body, LastHeartbeat):
            return self._states.ignore("unknown_node")
        if not isinstance(statement.body, Registration):
            return Code.NODE_UNKNOWN
        return (
            len(self._states.nodes.index) < NODES_MAX
            or self._evict_dead_node()
            or Code.QUOTA_EXCEEDED
        )

    def _evict_dead_node(self) -> bool:
        """Forget the node that left or died first; returns whether there was one."""
        if self._states.crowded:
            return False
        nodes, size = self._states.nodes, len(self._states.nodes)
        status, seen = nodes.status[:size], nodes.seen[:size]
        gone = np.flatnonzero(status >= Status.DEAD)
        if not len(gone):
            self._states.crowded = True
            return False
        first = gone[np.lexsort((seen[gone], -status[gone]))[0]]
        alike = (status == status[first]) & (seen == seen[first])
        node = min(np.flatnonzero(alike).tolist(), key=nodes.ids.__getitem__)
        nodes.release(node)
        self._states.lives.forget(node)
        self._states.flaps.pop(node, None)
        self._states.reports.pop(node, None)
        return True

    def _accept_holder(self, node: int, statement: Statement) -> bool | Code:
        """Return whether a statement of the holding life is new, else the reason against it."""
        known = int(self._states.nodes.sequence[node])
        if statement.sequence <= known:
            again = statement.sequence == known and not isinstance(statement.body, LastHeartbeat)
            other = statement.body_hash != self._states.nodes.hashes[node]
            return (
                Code.SEQUENCE_CONFLICT if again and other else self._states.ignore("older_sequence")
            )
        if self._states.status(node) == Status.UNREGISTERED and not isinstance(
            statement.body, Registration
        ):
            return self._states.ignore("unregistered_node")
        return True
