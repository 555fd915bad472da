"""The rule of systems that use as many failure domains as there are, up to a number.

Unlike `at_least` it asks for no more domains than the fleet has, so that a fleet of one rack is no
violation that nobody can mend (HDFS: satisfied = racks >= min(2, R, racks in the cluster)).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.assignments import first_mentions
from placement.rules import CountsDomains, Finding, Mask, Penalties, Standing, Strength
from placement.topology import NO_DOMAIN, Scope


@dataclass(frozen=True, slots=True)
class SpanDomains(CountsDomains):
    """A shard's replicas stand in as many domains of `per` as there are, or in `count` of them."""

    alike: ClassVar[bool] = True
    per: Scope
    count: int | None = None
    strength: Strength = Strength.PREFERRED

    def __str__(self) -> str:
        return f"span {'all' if self.count is None else self.count} domains of {self.per}"

    def penalty(self, standing: Standing) -> Penalties:
        """Domains that would still be missing once the rest is placed freshly."""
        domains, used = self._used(standing)
        fresh = ~np.isin(domains, list(used)) & (domains != NO_DOMAIN)
        left = max(standing.replication_factor - len(standing.replicas) - 1, 0)
        need = self._need(standing, used, standing.replication_factor)
        penalties: Penalties = np.maximum(need - len(used) - fresh.astype(np.int64) - left, 0)
        return penalties

    def violations(self, standing: Standing) -> list[Finding]:
        """One finding without a domain when the replicas there are could span more."""
        _, used = self._used(standing)
        need = self._need(standing, used, len(standing.replicas))
        return [Finding(None, len(used), need)] if len(used) < need else []

    def doubtful(self, shards: NDArray[np.int64], standing: Standing) -> Mask:
        """Which of many whole shards, a row of nodes each, break the rule."""
        domains = standing.topology.domain_of(self.per)
        live = np.zeros(int(domains.max(initial=0)) + 2, bool)
        live[standing.live_domains(self.per)] = True
        rows = domains[shards]
        fresh = first_mentions(rows) & (rows != NO_DOMAIN)
        there = live.sum() + (fresh & ~live[rows]).sum(axis=1)
        size = shards.shape[1]
        need = np.minimum(there, size if self.count is None else min(size, self.count))
        doubtful: Mask = fresh.sum(axis=1) < need
        return doubtful

    def _used(self, standing: Standing) -> tuple[np.ndarray, set[int]]:
        domains = standing.topology.domain_of(self.per)
        held = domains[np.asarray(standing.replicas, np.int64)]
        return domains, set(held.tolist()) - {NO_DOMAIN}

    def _need(self, standing: Standing, used: set[int], replicas: int) -> int:
        there = len(used | set(standing.live_domains(self.per).tolist()))
        return min(replicas, there, replicas if self.count is None else self.count)
