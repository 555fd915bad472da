"""Configuration of the core: everything beside the events that decisions depend on.

Limits on what may be under way at once: per node, between domains, and in total.

A repair above a limit is not queued: it stays a violation and is derived again from the state.

Quotas: how many nodes and places there may be, and how fast new ones may come.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# A limit on moves that stands for none.
UNLIMITED = 1 << 40


@dataclass(frozen=True, slots=True)
class Limits:
    """Open moves at once. The per-node figures are those of Kudu's rebalancer tool (5 in and 5
    out, `max_moves_per_server`); the total keeps a dead node from loading the whole network; the
    batch bound keeps one batch, and so one transaction, short.

    `max_out_per_node` bounds the moves that take a replica off a node which lives and put it
    elsewhere, whichever node they copy from; a dead node gives nothing, and its replicas are
    replaced without this bound. `max_copies_from_node` bounds the moves that read their copy from
    the node, whoever gives up the replica. `max_touching_per_node` bounds the moves towards and
    away from a node together, as Kudu's option does; it is for plans. `max_per_domain_pair` bounds
    the copies between two domains of the top level, whose link is the narrowest.
    `max_bytes_per_node`, in plus out, `max_bytes_per_domain_pair` and `max_bytes_open` bound the
    bytes that open moves copy; a move larger than a bound goes alone."""

    max_in_per_node: int = 5
    max_out_per_node: int = 5
    max_copies_from_node: int = 5
    max_open: int = 200
    max_per_batch: int = 500
    max_touching_per_node: int | None = None
    max_per_domain_pair: int | None = None
    max_bytes_per_node: int | None = None
    max_bytes_per_domain_pair: int | None = None
    max_bytes_open: int | None = None


@dataclass(frozen=True, slots=True)
class Quotas:
    """Bounds on nodes and places.

    `pending` bounds nodes whose location is in doubt or not approved, `places` the domains of all
    levels. For `bootstrap_ms` after its first node a fleet may register at any rate, and no new
    location raises an alert.
    """

    nodes: int = 10_000
    pending: int = 1_000
    new_nodes_per_minute: int = 1_000
    places: int = 4_096
    bootstrap_ms: int = 600_000


# The resource whose load is what a copy transfers: moves carry it as `bytes`, limits in bytes and
# deadlines count it.
COPIED_RESOURCE = "disk_bytes"


@dataclass(frozen=True, slots=True)
class Resource:
    """What shards use of their nodes, beside a place: bytes, requests; loads are whole numbers.

    - `capacity`: the share of a node's capacity that may be filled; None: any load fits.
    - `balance`: the band around the mean utilisation in which nodes should be; None: no matter.
    - `led`: only the replica that leads bears the load.
    """

    name: str
    capacity: float | None = None
    balance: float | None = None
    led: bool = False


class Rebalance(StrEnum):
    """Occasion for evening out loads without a request.

    Never, when nodes have joined or may hold more again, or when nodes or streams have changed.
    """

    OFF = "off"
    ON_JOIN = "on_join"
    CONTINUOUS = "continuous"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration in force.

    Durations are milliseconds.

    `retention_ms`: an hour covers every executor that we know of reporting late. `hold_window_ms`:
    twice the time after which a silent node is dead, so that those that go one after the other
    within it count together. `hold_levels`: the levels whose domains are held when they are lost as
    a whole, None for every level that has another beneath. `backoff_ms`, `backoff_max_ms`: the
    first and the longest pause before a target on which a shard's move failed is tried again; a
    full disk or a broken link rarely clears sooner. `remind_ms`: the pause after which a called-off
    move is published again, until its executor has confirmed that. `rate_bytes_per_second` travels
    in every command.
    `relocate_up_to`: of how many shards a relocation takes effect by itself, None for any.
    `enforce_levels`: a place must have exactly the declared tiers. `authority`: who says where
    nodes stand. `link_slow_ms`: from where on a round trip is slow, None: never. `dwell_ms`: for so
    long a replica that was moved for balance is not moved for it again; shorter than
    `retention_ms`, by which it is known. `leader_moves`: a live leader is succeeded by a move that
    executors acknowledge, not by the list alone. `resources`: what is counted beside replicas.
    """

    cell: str = "main"
    levels: tuple[str, ...] = ()
    default_policy: Mapping[str, Any] = field(default_factory=lambda: {"strategy": "spread"})
    limits: Limits = field(default_factory=Limits)
    acked: bool = True
    deadline_ms: int = 600_000
    retention_ms: int = 3_600_000
    hold_window_ms: int = 600_000
    hold_levels: tuple[str, ...] | None = None
    backoff_ms: int = 10_000
    backoff_max_ms: int = 600_000
    remind_ms: int = 60_000
    rate_bytes_per_second: int | None = None
    quotas: Quotas = field(default_factory=Quotas)
    relocate_up_to: int | None = None
    enforce_levels: bool = False
    authority: str = "claim"
    link_slow_ms: float | None = 200.0
    rebalance: Rebalance = Rebalance.OFF
    dwell_ms: int = 600_000
    leader_moves: bool = False
    resources: tuple[Resource, ...] = ()
