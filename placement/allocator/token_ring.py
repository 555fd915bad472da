"""Token rings: where nodes and shards stand, for the strategies that walk clockwise.

Explicit tokens (`nodes[].tokens`, `streams[].shard_tokens`) reproduce a ring that exists. Without
them each node gets tokens by hashing its id, so that they are the same in every process and no
node's tokens depend on another node: a node that joins or leaves changes only the ranges next to
its own tokens.

`ring` and `network_topology` say slot by slot which node a shard takes next. Where the ring alone
decides (no rules of the user's, every node may lead, none gets full), `walk_in_bulk` finds the same
answer for many shards over arrays of ring positions; elsewhere the strategies ask shard by shard.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.allocator.choose import candidates
from placement.allocator.view import ReplicaRequest, View
from placement.hashing import digest64, digests64, scores
from placement.model import Code, Reason, StreamSpec, natural_key
from placement.policy import Policy
from placement.rules import Mask, Penalties, Rule, RuleContext, RuleFinding, Strength
from placement.topology import Topology

# Cassandra's `num_tokens` since 4.0, and the number in the tutorial's smoke test.
VNODES = 16
# Tokens of one node, however heavy: 64 times the usual number.
VNODES_MAX = 1024
# Shards from which the arrays pay for their making: about a hundred small ones.
BULK_FROM = 48

# Positions first looked at for every shard: three of four walks end among so many.
_WINDOW_FIRST = 4
# Positions looked at together, of all shards: what fits into a processor's cache.
_WINDOWS_MAX = 1 << 17

Positions = NDArray[np.int64]
Fits = Callable[[Positions, Positions], Mask]
"""Whether positions (a row for each shard) may be taken by shards (their numbers)."""
Lists = Callable[[Positions, Mask], Positions | None]
"""Positions of every slot (a row for each shard) from the shards' starts, on the open ones."""


@dataclass(frozen=True, slots=True)
class TokenRing:
    """Tokens in their order, all integers or all strings, and the node that owns each.

    Equal tokens stand in the natural order of their nodes' ids.
    """

    tokens: list[Any]
    nodes: list[int]
    explicit: bool
    _arrays: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def owners(self) -> NDArray[np.int64]:
        """Convert `nodes` to an array; cached."""
        owners: NDArray[np.int64] = self._array("owners", lambda: np.asarray(self.nodes, np.int64))
        return owners

    def start(self, need: ReplicaRequest) -> int:
        """Find the position of the first token at or after the shard's own; past the last it wraps.

        On a ring of hashed tokens the shard's token is a key and is hashed like the shard's name. A
        shard without a token on a ring of explicit ones draws a token by lot: every token is as
        likely, and a new token draws only shards to itself.
        """
        if not self.tokens:
            return 0
        if not self.explicit:
            named = (need.stream, need.shard) if need.token is None else (need.token,)
            key = digest64("shard", *named)
        elif isinstance(need.token, type(self.tokens[0])):
            key = need.token
        else:
            return self._draw_position(digest64("shard", need.stream, need.shard))
        return bisect_left(self.tokens, key) % len(self.tokens)

    def starts(self, spec: StreamSpec) -> NDArray[np.int64]:
        """Find the `start` of every shard of a stream."""
        name, factor, shards = spec.stream, spec.replication_factor, range(spec.shards)
        if self.explicit or spec.shard_tokens is not None:
            needs = (ReplicaRequest(name, s, 0, factor, (), token=spec.token(s)) for s in shards)
            return np.fromiter((self.start(need) for need in needs), np.int64, spec.shards)
        keys = digests64(("shard", name), shards)
        tokens = self._array("tokens", lambda: np.asarray(self.tokens, np.uint64))
        starts: NDArray[np.int64] = np.searchsorted(tokens, keys) % len(self.tokens)
        return starts

    def clockwise(self, start: int) -> Iterator[int]:
        """Walk over every node once, by the first of its tokens from `start` on."""
        seen: set[int] = set()
        for position in range(start - len(self.nodes), start):
            node = self.nodes[position]
            if node not in seen:
                seen.add(node)
                yield node

    def members(self, topology: Topology) -> Mask:
        """Mask the nodes that own a token."""
        owns = np.zeros(topology.size, bool)
        owns[np.asarray(self.nodes, np.int64)] = True
        return owns

    def _draw_position(self, seed: int) -> int:
        lots = self._array(
            "lots", lambda: np.asarray([digest64("token", t) for t in self.tokens], np.uint64)
        )
        return int(np.argmin(scores(seed, lots)))

    def _array(self, name: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        if name not in self._arrays:
            self._arrays[name] = make()
        return self._arrays[name]


def ring_of(topology: Topology, vnodes: int = VNODES) -> TokenRing:
    """Look up the ring of all registered nodes; cached in the topology.

    It holds nodes in any condition: the walk decides who may be taken. If some node has explicit
    tokens, nodes without any are not on the ring and receive nothing.
    """
    return topology.derive((TokenRing, vnodes), lambda: _make_ring(topology, vnodes))


def _make_ring(topology: Topology, vnodes: int) -> TokenRing:
    explicit = any(topology.attributes[n].tokens is not None for n in topology.index.values())
    return _make_explicit_ring(topology) if explicit else _make_hashed_ring(topology, vnodes)


@dataclass(frozen=True, slots=True)
class OnRing(Rule):
    """A node without a token stands on no ring of explicit tokens and holds nothing."""

    vnodes: int = VNODES
    strength: Strength = Strength.REQUIRED

    def __str__(self) -> str:
        return "nodes with tokens"

    def penalty(self, standing: RuleContext) -> Penalties:
        """Return one for every node without a token."""
        ring = ring_of(standing.topology, self.vnodes)
        return (~ring.members(standing.topology)).astype(np.int64)

    def violations(self, standing: RuleContext) -> list[RuleFinding]:
        """List the nodes without a token that hold a replica."""
        off = np.flatnonzero(self.penalty(standing))
        names = [standing.topology.ids[node] for node in standing.replicas if node in off]
        return [RuleFinding(name, 1, 0) for name in sorted(names, key=natural_key)]

    def may_violate(self, shards: NDArray[np.int64], standing: RuleContext) -> Mask:
        """Mask the whole shards, a row of nodes each, that may break the rule."""
        ring = ring_of(standing.topology, self.vnodes)
        members = ring.members(standing.topology)
        off: Mask = np.any(~members[shards], axis=1)
        return off


def find_token_fault(spec: StreamSpec, topology: Topology) -> Reason | None:
    """Explain why the explicit tokens of nodes and shards form no ring, if they do not."""
    kinds = dict(_token_kinds(topology))
    if spec.shard_tokens is not None:
        if len(spec.shard_tokens) != spec.shards:
            have = len(spec.shard_tokens)
            message = f"shard_tokens lists {have} tokens, the stream has {spec.shards} shards"
            return Reason(Code.SHARDS_OUT_OF_RANGE, message, spec.shards, have)
        if kinds:
            kinds.setdefault(type(spec.shard_tokens[0]), "shard_tokens")
    if len(kinds) > 1:
        integers, strings = kinds[int], kinds[str]
        message = f"tokens are all integers or all strings: {integers} has integers, {strings} has"
        return Reason(Code.POLICY_MALFORMED, f"{message} strings")
    return None


def _token_kinds(topology: Topology) -> dict[type, str]:
    """Find the kinds of explicit tokens, each with the first node that has such; cached."""
    return topology.derive(_token_kinds, lambda: _find_token_kinds(topology))


def _find_token_kinds(topology: Topology) -> dict[type, str]:
    kinds: dict[type, str] = {}
    having = (n for n, node in topology.index.items() if topology.attributes[node].tokens)
    for node_id in sorted(having, key=natural_key):
        for token in (topology.attributes[topology.index[node_id]].tokens or ())[:1]:
            kinds.setdefault(type(token), f"node '{node_id}'")
    return kinds


def _make_explicit_ring(topology: Topology) -> TokenRing:
    rank = topology.order()
    owners: list[tuple[Any, int, int]] = [
        (token, int(rank[node]), node)
        for node in topology.index.values()
        for token in topology.attributes[node].tokens or ()
    ]
    # Nothing is placed while nodes disagree on the kind; what stands is repaired by the integers.
    kind = int if any(isinstance(owner[0], int) for owner in owners) else str
    owners = sorted(owner for owner in owners if isinstance(owner[0], kind))
    return TokenRing([owner[0] for owner in owners], [owner[2] for owner in owners], True)


def _make_hashed_ring(topology: Topology, vnodes: int) -> TokenRing:
    """Hash the tokens: weight 1 has `vnodes`, a heavier node more of the same sequence."""
    nodes = np.fromiter(topology.index.values(), np.int64)
    counts = np.clip(np.rint(topology.weight[nodes] * vnodes), 1, max(VNODES_MAX, vnodes))
    tokens, owners = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    for number in range(int(counts.max(initial=0))):
        having = nodes[counts > number]
        tokens.append(scores(digest64("vnode", number), topology.digests[having]))
        owners.append(having)
    all_tokens, all_owners = np.concatenate(tokens), np.concatenate(owners)
    order = np.lexsort((topology.order()[all_owners], all_tokens))
    return TokenRing(all_tokens[order].tolist(), all_owners[order].tolist(), False)


def walk_in_bulk(
    spec: StreamSpec, policy: Policy, view: View, ring: TokenRing, lists: Lists
) -> list[list[int]] | None:
    """Walk for all shards at once; returns the nodes of every slot, counted in `view`.

    None if shards have to be walked one by one.
    """
    topology = view.topology
    mask = candidates(policy, view)
    if spec.shards < BULK_FROM or not ring.nodes or policy.rules or not view.shards_alike:
        return None
    if not topology.can_lead[mask].all():
        return None
    taken = lists(ring.starts(spec), mask[ring.owners])
    if taken is None:
        return None
    shards = ring.owners[taken]
    more = np.bincount(shards.ravel(), minlength=topology.size)
    if (more > view.room()).any():
        return None
    view.add_all(shards.ravel())
    view.leaders += np.bincount(shards[:, 0], minlength=topology.size)
    nodes: list[list[int]] = shards.tolist()
    return nodes


def find_first_fitting(shards: Positions, starts: Positions, size: int, fits: Fits) -> Positions:
    """Find the first position from its start that fits each of `shards`; -1 if none does."""
    found = np.full(len(shards), -1, np.int64)
    left = np.arange(len(shards))
    begin, width = 0, _WINDOW_FIRST
    while len(left) and begin < size:
        width = max(1, min(width, size - begin, _WINDOWS_MAX // len(left)))
        window = (starts[left, None] + np.arange(begin, begin + width)) % size
        hits = fits(shards[left], window)
        first = hits.argmax(axis=1)
        rows = np.arange(len(left))
        hit = hits[rows, first]
        found[left[hit]] = window[rows, first][hit]
        left, begin, width = left[~hit], begin + width, width * 2
    return found


def is_among(values: NDArray[np.generic], taken: NDArray[np.generic]) -> Mask:
    """Mask the values (a row for each shard) that are in the shard's row of `taken`."""
    found = np.zeros(values.shape, bool)
    for column in taken.T:
        found |= values == column[:, None]
    return found
