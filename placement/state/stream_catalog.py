"""Catalogues the streams: decisions, compiled policies, shards and their names.

`ClusterState` enters streams and drops them. All others ask here which stream a shard belongs to,
which rules apply to it, and in which order shards are published. Outside this process a shard is
named by its stream and its number; its index in the assignment table is private.
"""

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY, AssignmentTable, SlotLayout
from placement.hashing import hash64
from placement.model import Code, Decision, Reason, StreamSpec
from placement.policy import Policy, compile_policy
from placement.rules import RoleApart, Rule, RuleSet
from placement.strategies import STRATEGIES
from placement.topology import Topology

# A shard's name outside this process: its stream and its number.
ShardKey = tuple[str, int]

# A stream has fewer shards than that many bits count: their numbers are kept in 32 of them.
_NUMBER_BITS = 32

# What a replica is for that has no role of its own.
PLAIN_ROLE = "replica"


def role_rules(policy: Policy, topology: Topology) -> tuple[RoleApart, ...]:
    """Find the rules that keep copies in a role of their own.

    No strategy is asked where the policy has none.
    """
    if not (policy.extra_copies or RuleSet(policy.rules).roles):
        return ()
    return RuleSet(STRATEGIES[policy.strategy].rules(policy, topology)).roles


def role_names(
    policy: Policy | None, copies: int, nodes: Sequence[int], topology: Topology
) -> tuple[str, ...] | None:
    """Name the role of each replica, by the slots of a shard; None where none has a role."""
    rules = () if policy is None else role_rules(policy, topology)
    if not rules:
        return None
    names = [PLAIN_ROLE] * max(len(nodes), copies)
    for rule in rules:
        names[copies - rule.count : copies] = [rule.role] * rule.count
    return tuple(name for name, node in zip(names, nodes, strict=False) if node != EMPTY)


@dataclass(slots=True)
class Stream:
    """Holds a stream as the reconciler knows it.

    `shards` is empty while nothing of it is placed.
    """

    decision: Decision
    policy: Policy | None
    index: int
    shards: Sequence[int] = range(0)

    @property
    def name(self) -> str:
        """Return the stream's name."""
        return self.decision.stream

    @property
    def spec(self) -> StreamSpec:
        """Return the spec in force."""
        return self.decision.spec

    @property
    def copies(self) -> int:
        """Slots of each shard as its spec and policy ask for."""
        factor = self.spec.replication_factor
        return factor if self.policy is None else self.policy.copies(factor)


class StreamCatalog(Mapping[str, Stream]):
    """Holds the streams by name, and by their shards in the assignment table."""

    def __init__(
        self, default_policy: Mapping[str, Any], topology: Topology, table: AssignmentTable
    ) -> None:
        self._default_policy = default_policy
        self._topology, self._table = topology, table
        self._streams: dict[str, Stream] = {}
        self._by_index: dict[int, Stream] = {}
        self._name_hashes = array("Q")
        self._policies: dict[str, Policy] = {}

    def __getitem__(self, name: str) -> Stream:
        return self._streams[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    def with_topology(self, topology: Topology) -> "StreamCatalog":
        """Make a view of the same streams whose rules are asked in another topology."""
        made: StreamCatalog = copy(self)
        made._topology = topology
        return made

    # Shards and their names

    def of_shard(self, shard: int) -> Stream:
        """Find the stream that a shard belongs to."""
        return self._by_index[self._table.stream_of(shard)]

    def at(self, index: int) -> Stream:
        """Find a stream by its index in the assignment table."""
        return self._by_index[index]

    def key(self, shard: int) -> ShardKey:
        """Name a shard by its stream and number."""
        table = self._table
        return self._by_index[table.stream_of(shard)].name, table.number_of(shard)

    def keys_and_shards(self, shards: Collection[int]) -> tuple[list[ShardKey], NDArray[np.int64]]:
        """Sort shards by stream name and number; returns their keys and the shards, in parallel."""
        index = np.fromiter(shards, np.int64, len(shards))
        if len(shards) < 2:
            return [self.key(shard) for shard in shards], index
        numbers, of = self._table.numbers_of(index), self._table.streams_of(index)
        streams = np.unique(of)
        stream = np.searchsorted(streams, of)
        names = [self._by_index[each].name for each in streams.tolist()]
        places = np.argsort(sorted(range(len(names)), key=names.__getitem__))
        # One number for both is sorted in half the time of two.
        order = np.argsort((places[stream] << _NUMBER_BITS) + numbers, kind="stable")
        named = map(names.__getitem__, stream[order].tolist())
        return [*zip(named, numbers[order].tolist(), strict=True)], index[order]

    def with_keys(self, shards: Collection[int]) -> list[tuple[ShardKey, int]]:
        """Sort shards by their keys, and give each with its own."""
        keys, index = self.keys_and_shards(shards)
        return [*zip(keys, index.tolist(), strict=True)]

    def sorted_by_key(self, shards: Collection[int]) -> list[int]:
        """Sort shards by the names of their streams, then by number."""
        in_order: list[int] = self.keys_and_shards(shards)[1].tolist()
        return in_order

    def names_of(self, shards: Collection[int]) -> set[str]:
        """Name the streams that any of the shards belongs to."""
        index = np.fromiter(shards, np.int64, len(shards))
        streams = np.unique(self._table.streams_of(index))
        return {self._by_index[each].name for each in streams.tolist()}

    def name_hashes(self, shards: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Hash the name of each shard's stream (`hash64`), for digests."""
        return np.frombuffer(self._name_hashes, np.uint64)[self._table.streams_of(shards)]

    def other_uid(self, name: str, uid: str | None) -> Reason | None:
        """Return why a message is about another stream of this name, with another `uid`.

        None where one of both has none, or there is no such stream.
        """
        stream = self._streams.get(name)
        known = None if stream is None else stream.spec.uid
        if uid is None or known is None or uid == known:
            return None
        message = f"stream '{name}' has uid '{known}', the message is about uid '{uid}'"
        return Reason(Code.STREAM_UID_DIFFERS, message)

    def unknown_shard(self, name: str, number: int) -> Reason | None:
        """Return why no shard of this number exists or has existed lately.

        A shard is known whose stream waits, or was dropped and is still remembered.
        """
        stream = self._streams.get(name)
        if stream is None:
            return Reason(Code.STREAM_UNKNOWN, f"{name}/{number}: there is no stream '{name}'")
        have = stream.spec.shards
        if number < have:
            return None
        message = f"there is no shard {name}/{number}: the last one is {name}/{have - 1}"
        return Reason(Code.SHARD_UNKNOWN, message, have, number)

    # Policies and their rules

    def compile(
        self, placement_policies: str | None, policy: Mapping[str, Any] | None
    ) -> Policy | Reason:
        """Compile a request against the configured default and the known levels.

        Equal policies are one object, by which streams are told apart at no cost.
        """
        compiled = compile_policy(
            placement_policies, policy, self._default_policy, self._topology, STRATEGIES
        )
        if isinstance(compiled, Reason):
            return compiled
        known = self._policies.setdefault(repr(compiled), compiled)
        return known if known == compiled else compiled

    @property
    def divides_by_weight(self) -> bool:
        """Return whether a policy compiled here has a rule that divides by the weights of nodes."""
        return any(RuleSet(each.rules).divides_by_weight for each in self._policies.values())

    def policy_of(self, index: int) -> Policy | None:
        """Find the policy of a stream by its index in the assignment table."""
        return self._by_index[index].policy

    def spec_of(self, index: int) -> StreamSpec:
        """Find the spec of a stream by its index in the assignment table."""
        return self._by_index[index].spec

    def rules(self, stream: Stream) -> tuple[Rule, ...]:
        """List the rules that apply to a placed stream: the user's, then its strategy's."""
        assert stream.policy is not None
        return STRATEGIES[stream.policy.strategy].rules(stream.policy, self._topology)

    def is_colocated(self, stream: Stream) -> bool:
        """Return whether replica r of all the stream's shards moves as one unit."""
        return RuleSet(self.rules(stream)).is_colocated

    def role_copies(self, policy: Policy) -> int:
        """Count the copies of each shard that a policy keeps in a role of their own."""
        return RuleSet(role_rules(policy, self._topology)).role_copies

    def slot_layout(self, stream: Stream) -> SlotLayout:
        """Return the purpose of each slot of a placed stream's shards."""
        assert stream.policy is not None
        return SlotLayout(stream.copies, self.role_copies(stream.policy))

    def nodes_without(self, shard: int, slot: int) -> list[int]:
        """List the shard's planned nodes by slot without one of them; those behind it move up."""
        return self.slot_layout(self.of_shard(shard)).without_slot(self._table.nodes(shard), slot)

    # Writes; `ClusterState` alone calls them

    def upsert(self, decision: Decision, policy: Policy | None) -> Stream:
        """Add a stream, or replace its decision and policy."""
        stream = self._streams.get(decision.stream)
        if stream is not None:
            stream.decision, stream.policy = decision, policy
            return stream
        stream = Stream(decision, policy, len(self._name_hashes))
        self._name_hashes.append(hash64(decision.stream))
        self._by_index[stream.index] = self._streams[stream.name] = stream
        return stream

    def forget(self, name: str) -> Stream:
        """Forget a stream that has no shards any more; its name is free again."""
        stream = self._streams.pop(name)
        del self._by_index[stream.index]
        return stream

    def add_shards(self, stream: Stream, count: int, slots: int) -> range:
        """Add `count` shards of `slots` empty slots each to a stream; return their indexes."""
        added = self._table.add_shards(stream.index, count, slots)
        stream.shards = self._table.shards_of(stream.index)
        return added

    def drop_shards(self, stream: Stream) -> None:
        """Free all shards of a stream."""
        self._table.drop_stream(stream.index)
        stream.shards = self._table.shards_of(stream.index)
