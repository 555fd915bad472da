"""Chooses the nodes that all shards of a colocated stream share, for one run of repair.

Replica r of every shard of such a stream stands on one node. While some shards have moved and
others have not, the shards differ: repair then needs one answer for all of them, and keeps to it
until the run ends. `ShardNeeds` finds the replicas that stand apart by it, `MoveIssuer` the target
of each of their moves.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations

from placement.allocator import View
from placement.diagnosis import shared_nodes
from placement.repair.shard_case import ShardCase, score
from placement.rules import RuleSet
from placement.state import ClusterState, Stream
from placement.topology import Topology

# More nodes than replicas are on trial, so many at most: their sets are all scored (20 sets of 3
# of 6 nodes). More come up only when many nodes fail within one repair; the most used are taken.
_SPARES_MAX = 3


def is_leaving(stream: Stream, node: int, topology: Topology) -> bool:
    """Return whether the stream's replicas must leave a node, which drains or is not admitted."""
    return topology.is_draining(node) or not is_admitted(stream, node, topology)


def is_admitted(stream: Stream, node: int, topology: Topology) -> bool:
    """Return whether the stream's policy admits a node."""
    assert stream.policy is not None
    return stream.policy.nodes.passes(topology, node)


class Colocation:
    """The nodes of colocated streams, as one run of repair finds and changes them."""

    def __init__(
        self, state: ClusterState, rule_set: Callable[[Stream], RuleSet], judging: Topology
    ) -> None:
        self._state, self._rule_set, self._judging = state, rule_set, judging
        self._nodes: dict[int, dict[int, int]] = {}
        self._targets: dict[int, dict[int, int]] = {}

    def nodes(self, stream: Stream) -> dict[int, int]:
        """Return the nodes of a stream, each with its slot; what the run moves to is added.

        The order of choice: nodes that are to stay before those that leave; the set that keeps the
        rules best, so that what has been begun is finished; what most shards are on.
        """
        if stream.index not in self._nodes:
            self._nodes[stream.index] = self._find_nodes(stream)
        return self._nodes[stream.index]

    def targets(self, stream: Stream) -> dict[int, int]:
        """Return the nodes that the run wants the stream to have in the end, each with its slot.

        The issuer writes its choice here. Limits may keep a choice from being begun.
        """
        return self._targets.setdefault(stream.index, {**self.nodes(stream)})

    def join_target(self, stream: Stream, node: int) -> None:
        """Make the targets the nodes of the stream, if a replica goes to a new one of them."""
        targets = self._targets.get(stream.index, {})
        if node in targets and node not in self.nodes(stream):
            self._nodes[stream.index] = {**targets}

    def case(self, stream: Stream, shard: int, view: View) -> ShardCase:
        """Return the targets by slot as the case of one shard."""
        targets, rank = self.targets(stream), self._state.topology.order()
        ordered = sorted(targets, key=lambda node: (targets[node], int(rank[node])))
        held = Counter(node for each in stream.shards for node in view.replicas(each))
        backed_off = self._state.backed_off_targets(shard)
        return self._case_of(stream, ordered)._replace(backed_off_targets=backed_off, held=held)

    def _find_nodes(self, stream: Stream) -> dict[int, int]:
        topology, table = self._state.topology, self._state.table
        shards = [table.nodes(shard) for shard in stream.shards]
        ranked = shared_nodes(shards, topology)
        stays = [node for node in ranked if not is_leaving(stream, node, topology)]
        first = [*stays, *(node for node in ranked if node not in stays)]
        copies = stream.copies
        if len(stays) > copies:
            sets = combinations(stays[: copies + _SPARES_MAX], copies)
            cases = ((self._case_of(stream, nodes), nodes) for nodes in sets)
            scored = ((score(case, self._judging).key, nodes) for case, nodes in cases)
            first = [*min(scored, key=lambda each: each[0])[1]]
        return {node: ranked[node] for node in first[:copies]}

    def _case_of(self, stream: Stream, nodes: Sequence[int]) -> ShardCase:
        """Make the case of a shard on the nodes of a colocated stream."""
        assert stream.policy is not None
        rules, room = tuple(self._rule_set(stream).rules), len(stream.shards)
        return ShardCase(stream.spec, stream.policy, rules, 0, nodes, (), room)
