"""What the operator of the reconciler chose: all that decides beside the events."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from placement.limits import Limits
from placement.quotas import Quotas


class Rebalance(StrEnum):
    """When loads are evened out, besides on request: never, when a node has joined, or whenever
    nodes or streams have changed."""

    OFF = "off"
    ON_JOIN = "on_join"
    CONTINUOUS = "continuous"


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the operator of the reconciler chose. Durations are milliseconds.

    `retention_ms`: an hour covers every executor that we know of reporting late. `hold_window_ms`:
    twice the time after which a silent node is dead, so that those that go one after the other
    within it count together. `backoff_ms`, `backoff_max_ms`: the first and the longest pause before
    a target on which a shard's move failed is tried again; a full disk or a broken link rarely
    clears sooner. `remind_ms`: so long after an executor was told that a move was called off it is
    told again, unless it has confirmed that. `rate_bytes_per_second` travels in every command.
    `relocate_up_to`: of how many shards a relocation takes effect by itself, None for any.
    `enforce_levels`: a place must have exactly the declared tiers. `authority`: who says where
    nodes stand. `link_slow_ms`: from where on a round trip is slow, None: never. `dwell_ms`: for so
    long a replica that was moved for balance is not moved for it again; shorter than
    `retention_ms`, by which it is known.
    """

    cell: str = "main"
    levels: tuple[str, ...] = ()
    default_policy: Mapping[str, Any] = field(default_factory=lambda: {"strategy": "spread"})
    limits: Limits = field(default_factory=Limits)
    acked: bool = True
    deadline_ms: int = 600_000
    retention_ms: int = 3_600_000
    hold_window_ms: int = 600_000
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
