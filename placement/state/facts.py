"""Holds the facts that the reconciler decides from, and the questions about them.

`State` writes them; the modules that publish read them and note what they have published. The role
rules of a policy say how many copies are kept aside and what each replica of a shard is for.
"""

from array import array
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY, AssignmentTable, SlotLayout
from placement.model import (
    Code,
    Configuration,
    Decision,
    Memory,
    NodeView,
    Ready,
    Reason,
    StreamSpec,
    Violation,
)
from placement.moves import Backoff, Ledger, cancellations
from placement.policy import Policy
from placement.rules import RoleApart, Rule, RuleSet
from placement.state import digest
from placement.strategies import STRATEGIES
from placement.topology import Topology

# What a replica is for that has no role of its own.
PLAIN_ROLE = "replica"


def role_rules(policy: Policy, topology: Topology) -> tuple[RoleApart, ...]:
    """The rules that keep copies aside; no strategy is asked where the policy has none."""
    if not (policy.extra_copies or RuleSet(policy.rules).roles):
        return ()
    return RuleSet(STRATEGIES[policy.strategy].rules(policy, topology)).roles


def role_names(
    policy: Policy | None, copies: int, nodes: Sequence[int], topology: Topology
) -> tuple[str, ...] | None:
    """What each replica is for, by the slots of a shard; None where none has a role."""
    rules = () if policy is None else role_rules(policy, topology)
    if not rules:
        return None
    names = [PLAIN_ROLE] * max(len(nodes), copies)
    for rule in rules:
        names[copies - rule.count : copies] = [rule.role] * rule.count
    return tuple(name for name, node in zip(names, nodes, strict=False) if node != EMPTY)


@dataclass(slots=True)
class Stream:
    """A stream as the reconciler holds it; `shards` is empty while nothing of it is placed."""

    decision: Decision
    policy: Policy | None
    index: int
    shards: Sequence[int] = range(0)

    @property
    def spec(self) -> StreamSpec:
        """What is in force."""
        return self.decision.spec

    @property
    def copies(self) -> int:
        """Slots of each shard as its spec and policy ask for."""
        factor = self.spec.replication_factor
        return factor if self.policy is None else self.policy.copies(factor)


class Facts:
    """Topology, assignments, ledger and streams, with the batch's outgoing records."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.topology = Topology(configuration.levels)
        self.table = AssignmentTable()
        self.ledger = Ledger()
        self.backoff = Backoff()
        self.cancel_notices = cancellations.CancelNotices()
        self.streams: dict[str, Stream] = {}
        self.stream_names: dict[int, str] = {}
        self.nodes: dict[str, NodeView] = {}
        self.violations: dict[int, tuple[Violation, ...]] = {}
        self.memory: dict[tuple[str, str], Memory] = {}
        self.places: Counter[str] = Counter()
        self.digest = digest.Digest()
        self.now = 0
        self.ready = Ready()
        self._move_hashes: dict[str, int] = {}
        self._stream_hashes = array("Q")

    def key(self, shard: int) -> tuple[str, int]:
        """Stream name and number of a shard: its name outside this process."""
        return self.stream_names[self.table.stream_of(shard)], self.table.number_of(shard)

    def keys(self, shards: Collection[int]) -> list[tuple[str, int]]:
        """`key` of many shards."""
        index = np.fromiter(shards, np.int64, len(shards))
        streams = self.table.streams_of(index).tolist()
        names = map(self.stream_names.__getitem__, streams)
        return [*zip(names, self.table.numbers_of(index).tolist(), strict=True)]

    def stream_hashes(self, shards: NDArray[np.int64]) -> NDArray[np.uint64]:
        """`hash64` of the name of each shard's stream, for `digest.keyed`."""
        return np.frombuffer(self._stream_hashes, np.uint64)[self.table.streams_of(shards)]

    def keys_and_shards(
        self, shards: Collection[int]
    ) -> tuple[list[tuple[str, int]], NDArray[np.int64]]:
        """Keys of shards in their order, and the shards in that order."""
        index = np.fromiter(shards, np.int64, len(shards))
        if len(shards) < 2:
            return self.keys(shards), index
        streams, stream = np.unique(self.table.streams_of(index), return_inverse=True)
        names = [self.stream_names[each] for each in streams.tolist()]
        places = np.argsort(sorted(range(len(names)), key=names.__getitem__))
        numbers = self.table.numbers_of(index)
        order = np.lexsort((numbers, places[stream]))
        named = map(names.__getitem__, stream[order].tolist())
        return [*zip(named, numbers[order].tolist(), strict=True)], index[order]

    def with_keys(self, shards: Collection[int]) -> list[tuple[tuple[str, int], int]]:
        """Shards with their keys, in the order of these."""
        keys, index = self.keys_and_shards(shards)
        return [*zip(keys, index.tolist(), strict=True)]

    def sorted_by_key(self, shards: Collection[int]) -> list[int]:
        """Shards by the names of their streams, then by number."""
        shards_in_order: list[int] = self.keys_and_shards(shards)[1].tolist()
        return shards_in_order

    def stream_of(self, shard: int) -> Stream:
        """The stream that a shard belongs to."""
        return self.streams[self.stream_names[self.table.stream_of(shard)]]

    def unknown_shard(self, name: str, number: int) -> Reason | None:
        """Why there is no shard of this number, and was none lately: one whose stream waits, or was
        dropped and is still remembered, is known."""
        stream = self.streams.get(name)
        if stream is None:
            return Reason(Code.STREAM_UNKNOWN, f"{name}/{number}: there is no stream '{name}'")
        if number < stream.spec.shards:
            return None
        have = stream.spec.shards
        message = f"{name}/{number}: '{name}' has {have} shard{'' if have == 1 else 's'}, from 0 on"
        return Reason(Code.SHARD_UNKNOWN, message, have, number)

    def policy_of(self, index: int) -> Policy | None:
        """The policy of a stream by its index in the table."""
        return self.streams[self.stream_names[index]].policy

    def spec_of(self, index: int) -> StreamSpec:
        """The spec of a stream by its index in the table."""
        return self.streams[self.stream_names[index]].spec

    def rules(self, stream: Stream) -> tuple[Rule, ...]:
        """The rules a placed stream lives under: the user's, then its strategy's."""
        assert stream.policy is not None
        return STRATEGIES[stream.policy.strategy].rules(stream.policy, self.topology)

    def is_colocated(self, stream: Stream) -> bool:
        """Whether replica r of all the stream's shards moves as one unit."""
        return RuleSet(self.rules(stream)).is_colocated

    def current_replicas(self, shard: int) -> list[int]:
        """Nodes that hold a whole replica: while a move runs, its source instead of its target."""
        nodes, opened = self.table.nodes(shard), self.ledger.by_shard.get(shard)
        if opened:
            opened.put_source_back(nodes)
        return nodes

    def role_copies(self, policy: Policy) -> int:
        """Copies of each shard that a policy keeps aside, in a role of their own."""
        return sum(rule.count for rule in role_rules(policy, self.topology))

    def slot_layout(self, stream: Stream) -> SlotLayout:
        """What the slots of a placed stream's shards are for."""
        assert stream.policy is not None
        return SlotLayout(stream.copies, self.role_copies(stream.policy))

    def backed_off_targets(self, shard: int) -> frozenset[int]:
        """Nodes on which a move of the shard has failed just now."""
        known, index = self.backoff.known, self.topology.index
        waits = self.backoff.pauses_of(self.key(shard), self.now) if known else ()
        return frozenset(index[node_id] for node_id in waits if node_id in index)

    def memory_of(self, kind: str) -> dict[str, Mapping[str, Any]]:
        """What is remembered of a kind, by name, in the order of the names."""
        found = {name: each.body for (of, name), each in self.memory.items() if of == kind}
        return dict(sorted(found.items()))
