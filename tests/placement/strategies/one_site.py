"""The example of placement/README.md: a user's strategy in thirty lines."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from placement.allocator import ByRules, Placement, View, find_unmet
from placement.model import Code, Reason, StreamSpec
from placement.policy import OnInfeasible, Policy
from placement.rules import Rule, SameDomain
from placement.strategies import defer_to
from placement.topology import Scope, Topology

SITE = Scope(depth=1, name="site")


class OneSite(ByRules):
    """All replicas of a stream in one site; streams with one replica are none of its business."""

    name = "one_site"
    aliases = ("acme.one_site",)
    parameters = ("limit",)
    on_infeasible = OnInfeasible.REJECT

    def compile(self, policy: Mapping[str, Any], _: Topology) -> Mapping[str, Any] | Reason:
        limit = policy.get("limit", 8)
        if type(limit) is not int:
            return Reason(Code.POLICY_UNKNOWN_VALUE, f"policy: 'limit' is {limit!r}, not a number")
        return {"limit": limit}

    def rules(self, policy: Policy, _: Topology) -> tuple[Rule, ...]:
        return (*policy.rules, SameDomain(SITE, policy.strength))

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        if spec.shards > policy.parameters["limit"]:
            return Reason(Code.DOMAIN_TOO_SMALL, f"{spec.shards} shards are too many for a site")
        other = defer_to("spread", policy, view.topology)
        if isinstance(other, Reason):
            return other
        spread, theirs = other
        if spec.replication_factor == 1:
            return spread.place(spec, theirs, view)
        own = self.rules(policy, view.topology)
        placed = spread.place(spec, replace(theirs, rules=own), view)
        if isinstance(placed, Reason):
            return placed
        # Not even over all sites: what this strategy is for. Its own rule may be unmet.
        warnings = find_unmet(own, placed.shards, spec, policy, view.topology)
        return Placement(placed.shards, placed.reasons, warnings)
