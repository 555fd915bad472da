"""The rule of systems that use as many failure domains as there are, up to a number.

Unlike `at_least` it asks for no more domains than the fleet has, so that a fleet of one rack is no
violation that nobody can mend (HDFS: satisfied = racks >= min(2, R, racks in the cluster)).
"""

from dataclasses import dataclass

import numpy as np

from placement.rules import Finding, Penalties, Standing, Strength
from placement.topology import NO_DOMAIN, Scope


@dataclass(frozen=True, slots=True)
class SpanDomains:
    """A shard's replicas stand in as many domains of `per` as there are, or in `count` of them."""

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

    def _used(self, standing: Standing) -> tuple[np.ndarray, set[int]]:
        domains = standing.topology.domain_of(self.per)
        held = domains[np.asarray(standing.replicas, np.int64)]
        return domains, set(held.tolist()) - {NO_DOMAIN}

    def _need(self, standing: Standing, used: set[int], replicas: int) -> int:
        there = len(used | set(standing.live_domains(self.per).tolist()))
        return min(replicas, there, replicas if self.count is None else self.count)
