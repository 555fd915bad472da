"""Arrangements in a few words for the tests of rebalancing, and what a plan does to them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from placement.allocator import View
from placement.assignments import EMPTY, AssignmentTable
from placement.model import Liveness, MoveKind, NodeAttributes, StreamSpec
from placement.policy import Policy, compile_policy
from placement.rebalance import RebalanceMove, RebalancePlan, plan_rebalance
from placement.rules import RuleContext
from placement.strategies import STRATEGIES
from placement.topology import Topology

Rows = Sequence[Sequence[str]]


@dataclass
class Arrangement:
    """A fleet and streams; `rows` are node ids by shard, leader first."""

    topology: Topology
    table: AssignmentTable = field(default_factory=AssignmentTable)
    specs: list[StreamSpec] = field(default_factory=list)
    policies: list[Policy] = field(default_factory=list)
    shards: list[range] = field(default_factory=list)

    @property
    def view(self) -> View:
        return View(self.topology, self.table, self.policies.__getitem__, self.specs.__getitem__)

    def node(self, node_id: str, location: str = "", up: bool = True, **more: Any) -> None:
        liveness = Liveness.UP if up else Liveness.SUSPECT
        self.topology.upsert(node_id, NodeAttributes(location, **more), liveness)

    def stream(
        self,
        name: str,
        rows: Rows,
        policy: Mapping[str, Any] | None = None,
        policies: str | None = None,
        **more: Any,
    ) -> None:
        """A placed stream; `policies` is Timeplus' string."""
        policy = policy or {"strategy": "simple"}
        given = None if policies is not None else policy
        compiled = compile_policy(policies, given, {}, self.topology, STRATEGIES)
        assert isinstance(compiled, Policy), compiled
        index, factor = len(self.specs), len(rows[0])
        replication = factor - compiled.extra_copies
        self.specs.append(StreamSpec(name, len(rows), replication, policy, **more))
        self.policies.append(compiled)
        self.shards.append(self.table.add_shards(index, len(rows), factor))
        for shard, row in zip(self.shards[-1], rows, strict=True):
            for slot, node_id in enumerate(row):
                self.table.set(shard, slot, self.topology.index[node_id])

    def plan(self, **limits: Any) -> RebalancePlan:
        return plan_rebalance(self.view, **limits)

    def apply(self, moves: Iterable[RebalanceMove]) -> None:
        """Carry moves out, each checked against what it says of the shard."""
        for move in moves:
            nodes = self.table.nodes(move.shard)
            if move.kind is MoveKind.LEADER:
                assert (nodes[0], nodes[move.slot]) == (move.remove, move.add)
                self.table.swap(move.shard, 0, move.slot)
            else:
                assert nodes[move.slot] == move.remove
                assert move.add not in nodes
                self.table.set(move.shard, move.slot, move.add)

    def counts(self, name: str | None = None) -> dict[str, int]:
        """Replicas by node, of one stream or of all."""
        found = dict.fromkeys(self.topology.ids, 0)
        for spec, shards in zip(self.specs, self.shards, strict=True):
            if name in (None, spec.stream):
                for shard in shards:
                    for node in self.table.replicas(shard):
                        found[self.topology.ids[node]] += 1
        return found

    def words(self, moves: Iterable[RebalanceMove]) -> list[str]:
        """Moves as `stream/shard slot: from>to`, those of leaders with a `!`."""
        ids = self.topology.ids
        return [
            f"{self.specs[self.table.stream_of(m.shard)].stream}/{self.table.number_of(m.shard)} "
            f"{'!' if m.kind is MoveKind.LEADER else m.slot}: {ids[m.remove]}>{ids[m.add]}"
            for m in moves
        ]

    def broken(self, shard: int) -> dict[int, int]:
        """How much each rule of the shard's stream is broken, by the rule's place."""
        stream = self.table.stream_of(shard)
        policy, spec = self.policies[stream], self.specs[stream]
        judging = self.topology.for_diagnosis()
        nodes = self.table.nodes(shard)
        rules = STRATEGIES[policy.strategy].rules(policy, judging)
        others: list[int] = []
        if any(rule.spans_stream for rule in rules):
            kin = (other for other in self.shards[stream] if other != shard)
            others = [node for other in kin for node in self.table.replicas(other)]
        standing = RuleContext(
            judging,
            policy.copies(spec.replication_factor),
            [node for node in nodes if node != EMPTY],
            others,
            policy.nodes,
            spec.shards,
            [slot for slot, node in enumerate(nodes) if node != EMPTY],
            load=self.table.load(self.topology.size),
        )
        return {
            place: sum(max(abs(f.count - f.limit), 1) for f in rule.violations(standing))
            for place, rule in enumerate(rules)
        }


def arrangement(nodes: Iterable[tuple[str, str]] = (), levels: Sequence[str] = ()) -> Arrangement:
    """A fleet of nodes with their locations."""
    made = Arrangement(Topology(levels))
    for node_id, location in nodes:
        made.node(node_id, location)
    return made


def tables(
    counts: Mapping[str, Sequence[int]], locations: Sequence[str] | None = None
) -> Arrangement:
    """Kudu's form: so many replicas of each table on each server, every one a tablet of its own.
    `A:r` is range r of table A."""
    width = len(next(iter(counts.values())))
    made = arrangement((str(n), locations[n] if locations else "") for n in range(width))
    streams: dict[str, list[tuple[str, str]]] = {}
    for written, held in counts.items():
        name, _, label = written.partition(":")
        streams.setdefault(name, []).extend(
            (label, str(server)) for server, count in enumerate(held) for _ in range(count)
        )
    for name, tablets in streams.items():
        policy = {"strategy": "location_majority", "range_aware": True}
        labels = tuple(label for label, _ in tablets)
        made.stream(name, [[server] for _, server in tablets], policy, ranges=labels)
    return made
