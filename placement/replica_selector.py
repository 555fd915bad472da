"""Selector: which replica a client should read from. Pure, apart from placing, and without
numpy, so that a client of the published records needs none.

Two rules. `select_nearest` compares whole components of locations, as Kudu's design intends and its
client does not, and as the vendor's multi-level selector of Kafka does not (it compares characters,
so that `/DC1` is near `/DC10`, and breaks ties by chance). `select_exact_rack` is KIP-392's
`RackAwareReplicaSelector`: only an equal location counts, and the leader serves everybody else.

Both read from live nodes only. A suspect node (Kafka: fenced, so not in sync) serves only where
the shard has no other: it may be gone, but nothing better is left to try.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from placement.model import UNLOCATED, Liveness, Location, NodeAttributes, natural_key


class Nodes(Protocol):
    """What is asked of a fleet, each by a node's index: a `Topology`, or a client's table."""

    @property
    def ids(self) -> Sequence[str]:
        """The nodes' ids."""

    @property
    def attributes(self) -> Sequence[NodeAttributes]:
        """What the nodes registered."""

    @property
    def locations(self) -> Sequence[Location]:
        """Where the nodes stand."""

    @property
    def liveness(self) -> Sequence[Liveness]:
        """What the failure detector says of the nodes."""

    def status(self, node: int) -> str:
        """Name a node's condition in one word."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """Progress of a replica: the end of its log, and how many ms it has been behind the leader."""

    offset: int | None = None
    lag_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """Somebody who reads. It stands on the node that `client` or `host` names, or that its
    location ends with; else at `location`, else where `tags` say."""

    client: str
    location: Location = UNLOCATED
    tags: tuple[tuple[str, str], ...] = ()
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The node to read from, None where no replica lives, and why."""

    node: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class _Shard:
    """The replicas that may be chosen, with what is needed to compare them."""

    usable: Sequence[int]
    leader: int
    nodes: Nodes
    fresh: Mapping[int, Freshness] = field(default_factory=dict)

    def rank(self, node: int) -> tuple[object, ...]:
        """Rank a replica by KIP-392, greatest first.

        End of the log, the smaller lag, the leader, the higher id. A leader that says nothing of
        itself is taken as complete, others as not.
        """
        told = self.fresh.get(node, Freshness())
        leads = node == self.leader
        offset = told.offset if told.offset is not None else inf if leads else -1
        lag = told.lag_ms if told.lag_ms is not None else 0 if leads else inf
        return offset, -lag, leads, natural_key(self.nodes.ids[node])


def select_nearest(
    client: Client, replicas: Sequence[int], nodes: Nodes, fresh: Mapping[int, Freshness]
) -> Choice:
    """Choose the replica that is nearest to the client.

    It is the one on the client's node, else that with the longest common prefix, else with most
    common tags; among equals the freshest, then the leader, then the highest id.
    """
    shard = _readable_shard(replicas, nodes, fresh)
    if isinstance(shard, Choice):
        return shard
    own = [node for node in shard.usable if is_own_node(client, node, nodes)]
    if own:
        return Choice(
            own[0], f"{nodes.ids[own[0]]} is the client's own node{_format_caveat(shard)}"
        )

    def shared_parts(node: int) -> tuple[int, int]:
        common = len(set(client.tags) & set(nodes.attributes[node].tags))
        return nodes.locations[node].common_depth(client.location), common

    depth, tags = max(map(shared_parts, shard.usable))
    equals = [node for node in shard.usable if shared_parts(node) == (depth, tags)]
    chosen = max(equals, key=shard.rank)
    name = nodes.ids[chosen]
    decided, beside = (
        _format_tie_break(chosen, equals, shard),
        _format_equals(chosen, equals, nodes),
    )
    if depth:
        levels = f"{depth} of {client.location.depth} levels"
        why = f"{name} is in {client.location.prefix(depth)} with the client ({levels}){beside}"
    elif tags:
        why = f"{name} shares {tags} of the client's {len(client.tags)} tags{beside}"
    else:
        why = f"no replica shares a location or tag with the client, so {name} serves it"
    return Choice(chosen, f"{why}{decided}{_format_caveat(shard)}")


def select_exact_rack(
    client: Client, replicas: Sequence[int], nodes: Nodes, fresh: Mapping[int, Freshness]
) -> Choice:
    """Choose by KIP-392.

    It is the leader if its location is the client's, else the most caught-up replica at that
    location, else the leader.
    """
    shard = _readable_shard(replicas, nodes, fresh)
    if isinstance(shard, Choice):
        return shard
    leader = nodes.ids[shard.leader]
    if client.location == UNLOCATED:
        why = f"the client has no location, so the leader {leader} serves it"
        return Choice(shard.leader, f"{why}{_format_caveat(shard)}")
    same = [node for node in shard.usable if nodes.locations[node] == client.location]
    if not same:
        why = f"no replica is at {client.location}, so the leader {leader} serves it"
        return Choice(shard.leader, f"{why}{_format_caveat(shard)}")
    if shard.leader in same:
        why = f"the leader {leader} is at {client.location} as the client is"
        return Choice(shard.leader, f"{why}{_format_caveat(shard)}")
    chosen = max(same, key=shard.rank)
    why = f"{nodes.ids[chosen]} is at {client.location} as the client is"
    why += _format_equals(chosen, same, nodes) + _format_tie_break(chosen, same, shard)
    return Choice(chosen, f"{why}{_format_caveat(shard)}")


def _readable_shard(
    replicas: Sequence[int], nodes: Nodes, fresh: Mapping[int, Freshness]
) -> _Shard | Choice:
    """List the replicas to choose from, or say why there is none."""
    live = [node for node in replicas if not nodes.liveness[node].is_gone]
    if not live:
        states = ", ".join(f"{nodes.ids[n]} is {nodes.status(n)}" for n in replicas)
        return Choice(None, f"no replica lives: {states}" if states else "no replica is placed")
    usable = [node for node in live if nodes.liveness[node] is Liveness.UP] or live
    able = [node for node in usable if nodes.attributes[node].leader] or usable
    return _Shard(usable, able[0], nodes, fresh)


def is_own_node(client: Client, node: int, nodes: Nodes) -> bool:
    """Return whether the client and the node are one machine."""
    name, host = nodes.ids[node], nodes.attributes[node].host
    if client.client == name or (host is not None and _machine(host) == _machine(client.host)):
        return True
    return client.location.components == (*nodes.locations[node].components, name)


def _machine(host: str | None) -> str | None:
    """Cut the port off a host's name."""
    name, colon, port = (host or "").rpartition(":")
    return name if colon and port.isdecimal() else host


def _format_equals(chosen: int, equals: Sequence[int], nodes: Nodes) -> str:
    """List the replicas that are as near."""
    others = [nodes.ids[node] for node in equals if node != chosen]
    if not others:
        return ""
    return f", as {' and '.join(others)} {'is' if len(others) == 1 else 'are'}"


def _format_tie_break(chosen: int, equals: Sequence[int], shard: _Shard) -> str:
    """Say what decided between replicas that are equally near."""
    if len(equals) < 2:
        return ""
    if chosen == shard.leader and chosen not in shard.fresh:
        return "; it is the leader"
    offset, lag = shard.rank(chosen)[:2]
    ranks = [shard.rank(node) for node in equals if node != chosen]
    if all(rank[0] != offset for rank in ranks):
        return "; its log is the longest"
    if all(rank[:2] != (offset, lag) for rank in ranks):
        return "; it lags least"
    return "; it is the leader" if chosen == shard.leader else "; the highest id breaks the tie"


def _format_caveat(shard: _Shard) -> str:
    if shard.nodes.liveness[shard.usable[0]] is Liveness.UP:
        return ""
    return "; it is suspect, but no replica of the shard is up"
