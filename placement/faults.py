"""What is wrong with one shard, in words: each fault with its class and the reason for it.

`examine` finds the shards that need a look; `Faults` gives it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY
from placement.diagnose import REPLICAS_RULE
from placement.diagnosis import UNKNOWN, Diagnosed
from placement.model import AdministrativeState, Code, Liveness, Reason, StreamSpec, ViolationClass
from placement.policy import Policy
from placement.prospects import Prospects
from placement.rules import Finding, Rule, Standing, Strength
from placement.topology import Topology
from placement.wording import are, counted

NODE_LEVEL = "node"


@dataclass(frozen=True, slots=True)
class Suspect:
    """A shard with something wrong: its list, where whole copies are, and its distinct living
    nodes. For a stream as a whole `shard` is None."""

    spec: StreamSpec
    shard: int | None = None
    nodes: Sequence[int] = ()
    complete: Sequence[int] = ()
    held: Sequence[int] | None = None


class Faults:
    """The faults of shards whose streams share a policy and a replication factor. `everywhere` is
    what their rules are asked about, without a shard."""

    def __init__(
        self, topology: Topology, policy: Policy, everywhere: Standing, prospects: Prospects
    ) -> None:
        self._topology, self._policy = topology, policy
        self._factor = everywhere.replication_factor
        self._everywhere, self._prospects = everywhere, prospects
        self._levels: dict[int, tuple[str | None, tuple[str, ...]]] = {}
        self._told: dict[tuple[int, Finding], Reason] = {}

    def copies_of(self, suspect: Suspect) -> Iterator[Diagnosed]:
        """Copies that are missing, or too many."""
        factor, nodes = self._factor, suspect.nodes
        live = len({n for n in suspect.complete if n >= 0 and not self._topology.is_dead(n)})
        if live < factor:
            lost = self._lost(nodes)
            prospect = self._prospect(None, suspect) or lost
            yield _of(suspect, REPLICAS_RULE, None, live, factor, prospect, lost)
        if len(nodes) > factor:
            listed = counted(len(nodes), "replica is", "replicas are")
            message = f"{listed} listed, {factor} {are(factor)} asked for"
            surplus = Reason(Code.REPLICA_SURPLUS, message, factor, len(nodes))
            yield _of(suspect, "surplus", None, len(nodes), factor, surplus, surplus)

    def places_of(self, suspect: Suspect) -> Iterator[Diagnosed]:
        """Nodes that should not hold a replica, or not lead."""
        topology, nodes = self._topology, suspect.nodes
        for node, times in Counter(nodes).items():
            if node < 0:
                continue
            name = topology.ids[node]
            if times > 1:
                twice = Reason(Code.REPLICA_TWICE, f"{name} is listed {times} times", 1, times)
                prospect = self._prospect(None, suspect) or twice
                yield _of(suspect, "distinct nodes", name, times, 1, prospect, twice)
            if topology.is_dead(node):
                continue
            if topology.administrative[node] is AdministrativeState.DRAINING:
                drains = Reason(Code.NODE_DRAINING, f"{name} is draining", 0, times)
                prospect = self._prospect(None, suspect) or drains
                yield _of(suspect, "drain", name, times, 0, prospect, drains)
            if not self._policy.nodes.passes(topology, node):
                message = f"the policy does not admit node {name}"
                outside = Reason(Code.RULE_NOT_MET, message, 0, times)
                prospect = self._prospect(None, suspect) or outside
                yield _of(suspect, "nodes", name, times, 0, prospect, outside)
        leader = nodes[0] if nodes else EMPTY
        if leader >= 0 and not topology.is_dead(leader) and not topology.can_lead[leader]:
            message = f"{topology.ids[leader]} may hold copies but not lead"
            refused = Reason(Code.LEADER_NOT_ALLOWED, message, 0, 1)
            able = any(topology.can_lead[node] for node in suspect.held or ())
            prospect = refused if able else self._prospect(None, suspect) or refused
            yield _of(suspect, "leader", topology.ids[leader], 1, 0, prospect, refused)

    def rule(self, suspect: Suspect, rule: Rule, finding: Finding) -> Diagnosed:
        """A rule that the shard, or the stream, breaks. A rule is known by its identity."""
        if id(rule) not in self._levels:
            self._levels[id(rule)] = self._everywhere.seen(rule)
        level, seen = self._levels[id(rule)]
        if level is None and finding.domain in self._topology.index:
            level = NODE_LEVEL
        broken = self._told.get((id(rule), finding))
        if broken is None:
            where = f" in {finding.domain}" if finding.domain else ""
            message = f"rule '{rule}': {finding.count}{where}, limit {finding.limit}"
            broken = Reason(Code.RULE_NOT_MET, message, finding.limit, finding.count, level, seen)
            self._told[id(rule), finding] = broken
        why = self._prospect(rule, suspect)
        return Diagnosed(
            suspect.spec.stream,
            suspect.shard,
            str(rule),
            str(rule.strength),
            level,
            finding.domain,
            finding.count,
            finding.limit,
            ViolationClass.UNFIXABLE if why else ViolationClass.FIXABLE,
            why or broken,
        )

    def _prospect(self, rule: Rule | None, suspect: Suspect) -> Reason | None:
        return self._prospects.why_not(suspect.spec, rule, suspect.held)

    def _lost(self, nodes: Sequence[int]) -> Reason:
        """Why copies are missing."""
        topology = self._topology
        gone = [node for node in dict.fromkeys(nodes) if node >= 0 and topology.is_dead(node)]
        if gone:
            left = all(topology.liveness[n] is Liveness.UNREGISTERED for n in gone)
            code = Code.NODE_UNREGISTERED if left else Code.NODE_DEAD
            said = ", ".join(f"{topology.ids[n]} is {topology.liveness[n]}" for n in gone)
            return Reason(code, said, seen=tuple(topology.ids[n] for n in gone))
        if UNKNOWN in nodes:
            return Reason(Code.NODE_UNREGISTERED, "a listed node is not registered")
        if len(set(nodes)) < len(nodes):
            return Reason(Code.REPLICA_TWICE, "a node that is listed twice holds one copy")
        missing = self._factor - len(nodes)
        if missing <= 0:
            return Reason(Code.REPLICA_MISSING, "a copy is on its way")
        return Reason(
            Code.REPLICA_MISSING,
            f"{counted(missing, 'replica has', 'replicas have')} not been placed",
        )


def _of(
    suspect: Suspect,
    rule: str,
    node: str | None,
    count: int,
    limit: int,
    prospect: Reason,
    cause: Reason,
) -> Diagnosed:
    """A violation of what every stream asks for; it is fixable where its prospect is its cause."""
    return Diagnosed(
        suspect.spec.stream,
        suspect.shard,
        rule,
        str(Strength.REQUIRED),
        None if node is None else NODE_LEVEL,
        node,
        count,
        limit,
        ViolationClass.FIXABLE if prospect is cause else ViolationClass.UNFIXABLE,
        prospect,
    )


def over_capacity(topology: Topology, load: NDArray[np.int64]) -> Iterator[Diagnosed]:
    """Nodes that hold more than they say they can; mended where another node has room."""
    capacity, eligible = topology.capacity, topology.eligible
    boundless = bool((eligible & (capacity < 0)).any())
    rooms = int(np.maximum(capacity - load, 0)[eligible & (capacity >= 0)].sum())
    over = np.flatnonzero((capacity >= 0) & (load > capacity))
    for node in sorted(over.tolist(), key=topology.order().__getitem__):
        room, held, name = int(capacity[node]), int(load[node]), topology.ids[node]
        message = f"{name} holds {counted(held, 'replica')} of {room}"
        reason = Reason(Code.CAPACITY_EXCEEDED, message, room, held)
        spare = boundless or rooms >= held - room
        kind = ViolationClass.FIXABLE if spare else ViolationClass.UNFIXABLE
        yield Diagnosed(
            None, None, "capacity", "required", NODE_LEVEL, name, held, room, kind, reason
        )
