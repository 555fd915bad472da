"""What nodes and detectors state one by one: registrations, changes, goodbyes and reports.

A statement counts if it comes from the life that holds the node's name, or from one that may take
it over (`incarnations`); otherwise it is refused with the reason, or counted as ignored.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from placement.liveness.incarnations import Mark
from placement.liveness.log import Statement, StatementKind, Verdict, refusal
from placement.liveness.node_states import NodeStates, Status
from placement.model import Code, NodeAttributes, PendingLife

# Nodes of one topology shard, whatever is sent: above any quota of the core, and what a
# batch can write back in a tenth of a second.
NODES_MAX = 16_384
# What makes the holder of a name go.
_LEAVING = (StatementKind.UNREGISTERED, StatementKind.STOPPING)


class Statements:
    """Applies statements to the states of nodes."""

    def __init__(self, states: NodeStates) -> None:
        self._states = states

    def apply(self, said: Statement, partition: int, now: int, verdicts: list[Verdict]) -> None:
        """Apply what a node says, where its partition's clock shows `now`; adds the verdicts."""
        node, at = self._states.nodes.index.get(said.node_id), Mark(partition, now)
        if node is None:
            counts = self._may_come(said)
        elif self._states.nodes.incarnations[node] == said.incarnation:
            counts = self._counts(node, said)
        else:
            counts = self._other_counts(node, said, at, verdicts)
        if isinstance(counts, Code):
            verdicts.append(refusal(said, self._why(node, counts), counts))
        elif counts and node in self._states.lives.waiting and said.told in _LEAVING:
            verdicts.append(self._states.take_over(node, said.at, said.offset, at))
        elif counts and said.told is StatementKind.STOPPING:
            assert node is not None
            self._states.nodes.touch(node, said.sequence, at)
            self._states.lives.stopping.add(node)
            if self._states.status(node) != Status.UP and node not in self._states.reports:
                flaps = self._states.turn(node, Status.UP, said.at)
                verdicts.append(self._states.verdict(node, said.at, said.offset, flaps=flaps))
        elif counts:
            verdicts.append(self._states.enter(node, said, at))

    def report(self, said: Statement) -> list[Verdict]:
        """Apply an external detector's word on a node. It is refused of a life that nobody knows
        and of a node that is judged by its heartbeats; a life that waits takes over by it, as the
        detector has seen it."""
        states = self._states
        node = states.nodes.index.get(said.node_id)
        if node is None:
            return [refusal(said, "", Code.NODE_UNKNOWN)]
        if states.nodes.incarnations[node] == said.incarnation:
            return self._report(node, said)
        if states.lives.is_earlier(node, said.incarnation):
            states.ignore("earlier_incarnation")
            return []
        waits = states.lives.is_waiting(node, said.incarnation)
        if waits and states.lives.waiting[node].life.external:
            seen = states.lives.waiting[node].heard
            over = states.take_over(node, said.at, said.offset, seen)
            return [over, *self._report(node, said)]
        code = Code.NODE_NOT_EXTERNAL if waits else Code.INCARNATION_UNKNOWN
        return [refusal(said, states.holder(node), code)]

    def _report(self, node: int, said: Statement) -> list[Verdict]:
        """A report on the life that holds the node's name."""
        states = self._states
        if states.status(node) == Status.UNREGISTERED:
            states.ignore("unregistered_node")
            return []
        if node not in states.reports:
            return [refusal(said, states.holder(node), Code.NODE_NOT_EXTERNAL)]
        last, word = states.reports[node]
        if said.sequence <= last:
            if said.sequence == last and said.told != word:
                return [refusal(said, f"the last one said {word}", Code.SEQUENCE_CONFLICT)]
            states.ignore("older_sequence")
            return []
        states.reports[node] = (said.sequence, said.told)
        status = Status.UP if said.told is StatementKind.REPORTED_UP else Status.DEAD
        if states.status(node) == status:
            return []
        if status == Status.DEAD and node in states.lives.waiting:
            seen = states.lives.waiting[node].heard
            return [states.take_over(node, said.at, said.offset, seen)]
        told: dict[str, Any] = {"flaps": states.turn(node, status, said.at)}
        told["reporting"] = states.reporting(node)
        return [states.verdict(node, said.at, said.offset, **told)]

    def _why(self, node: int | None, code: Code) -> str:
        """The end of a refusal's sentence. How many nodes there are would depend on the shard of
        the topology that is asked."""
        if node is not None:
            return self._states.holder(node)
        return f"at most {NODES_MAX} may be there" if code is Code.QUOTA_EXCEEDED else ""

    def _other_counts(
        self, node: int, said: Statement, at: Mark, verdicts: list[Verdict]
    ) -> bool | Code:
        """Whether what another life than the holder says makes it the holder, or why not."""
        lives, waits = self._states.lives, self._states.lives.is_waiting(node, said.incarnation)
        if waits and said.sequence <= (waiting := lives.waiting[node]).sequence:
            again = said.sequence == waiting.sequence and said.told is not StatementKind.STOPPING
            other = said.body_hash != waiting.life.body_hash
            return (
                Code.SEQUENCE_CONFLICT if again and other else self._states.ignore("older_sequence")
            )
        if said.told is StatementKind.REGISTERED:
            if self._comes_at_once(node, said, at):
                return True
            about = said.attributes or NodeAttributes()
            if not self._wait(node, said, about, said.external, at):
                return False
        elif waits and said.told is StatementKind.STOPPING:
            lives.hear(node, said.sequence, at)
            return False
        elif waits and said.told is StatementKind.UNREGISTERED:
            lives.withdraw(node)
        elif waits:
            life = lives.waiting[node].life
            tags = life.attributes.tags if said.tags is None else said.tags
            about = replace(life.attributes, location=said.location or "", tags=tags)
            if not self._wait(node, said, about, life.external, at):
                return False
        else:
            return self._refused_counts(node, said, at, verdicts)
        verdicts.append(self._states.verdict(node, said.at, said.offset, lives=lives.of(node)))
        return False

    def _refused_counts(
        self, node: int, said: Statement, at: Mark, verdicts: list[Verdict]
    ) -> bool | Code:
        """Why what a life says does not count that neither holds the name nor waits for it."""
        if not self._states.lives.is_earlier(node, said.incarnation):
            unknown = said.told is StatementKind.STOPPING
            return (
                self._states.ignore("unknown_incarnation") if unknown else Code.INCARNATION_UNKNOWN
            )
        reached, record = int(self._states.nodes.sequence[node]), (said.at, said.offset)
        self._states.overhear(node, said.incarnation, reached, record, at, verdicts)
        late = said.told is StatementKind.STOPPING
        return self._states.ignore("earlier_incarnation") if late else Code.INCARNATION_CONFLICT

    def _wait(
        self, node: int, said: Statement, about: NodeAttributes, external: bool, at: Mark
    ) -> bool:
        """A life waits for the holder's silence; whether that has to be published."""
        states = self._states
        who = (said.incarnation, said.sequence, said.body_hash, said.at, states.grace_ms(node))
        states.nodes.rename()
        return states.lives.wait(node, PendingLife(*who, about, external), at)

    def _comes_at_once(self, node: int, said: Statement, at: Mark) -> bool:
        """Whether a registering life need not wait: the holder is not up, or goes, or is followed
        by name, or has been silent for long enough."""
        nodes = self._states.nodes
        if self._states.status(node) != Status.UP or node in self._states.lives.stopping:
            return True
        if said.replaces == nodes.incarnations[node]:
            return True
        home, seen = nodes.partition[node : node + 1], nodes.seen[node : node + 1]
        return int(self._states.silence.silence(home, seen, *at)[0]) >= self._states.grace_ms(node)

    def _may_come(self, said: Statement) -> bool | Code:
        """Whether a node that is not known becomes known; what else is said of it is refused, to
        be sent again, as nothing may be remembered of nodes unseen."""
        if said.told is StatementKind.STOPPING:
            return self._states.ignore("unknown_node")
        if said.told is not StatementKind.REGISTERED:
            return Code.NODE_UNKNOWN
        return len(self._states.nodes.index) < NODES_MAX or self._vacate() or Code.QUOTA_EXCEEDED

    def _vacate(self) -> bool:
        """Forget the node that left or died first; its place is taken by the next that comes."""
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

    def _counts(self, node: int, said: Statement) -> bool | Code:
        """Whether what the life that holds the name says is news, or why it is refused."""
        known = int(self._states.nodes.sequence[node])
        if said.sequence <= known:
            again = said.sequence == known and said.told is not StatementKind.STOPPING
            other = said.body_hash != self._states.nodes.hashes[node]
            return (
                Code.SEQUENCE_CONFLICT if again and other else self._states.ignore("older_sequence")
            )
        if (
            self._states.status(node) == Status.UNREGISTERED
            and said.told is not StatementKind.REGISTERED
        ):
            return self._states.ignore("unregistered_node")
        return True
