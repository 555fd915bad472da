"""HDFS' block placement policies: default, rack fault tolerant, and with upgrade domains."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from placement.allocator import (
    ByRules,
    Placement,
    ReplicaRequest,
    View,
    admitted_mask,
    candidates,
    choose,
    exclude_taken,
    explain_no_node,
    fill_slots,
    find_unmet,
)
from placement.assignments import first_occurrences
from placement.model import Code, Location, Reason, StreamSpec, parse_location
from placement.policy import Balance, OnInfeasible, Policy, unknown_value
from placement.rules import (
    AtMost,
    Mask,
    Penalties,
    Rule,
    RuleContext,
    RuleFinding,
    ScopedRule,
    SpanDomains,
    Strength,
)
from placement.topology import LEAF, NO_DOMAIN, Scope, Topology

# dfs.namenode.upgrade.domain.factor: the default replication factor.
_FACTOR = 3
# The label's key: as our tags are written, and as HDFS' hosts file spells it.
_UPGRADE_DOMAIN_TAGS = ("upgrade_domain", "upgrade-domain", "upgradeDomain")


class Variant(StrEnum):
    """Variant of HDFS' policies."""

    DEFAULT = "default"
    RACK_FAULT_TOLERANT = "rack_fault_tolerant"
    UPGRADE_DOMAIN = "upgrade_domain"


@dataclass(frozen=True, slots=True)
class HdfsStrategy(ByRules):
    """Writer's node, another rack, that rack again: HDFS' block placement.

    Goals, in this order:
        1. A shard survives the loss of a rack: it spans two racks (`rack_fault_tolerant`: as many
           as there are, evenly).
        2. Copies travel little between racks: the first replica is near the writer, the third in
           the rack of the second.
        3. Where HDFS draws at random the less loaded rack and node come first.

    Constraints:
        Distinct nodes; the user's required rules and node filters; capacity. No rack, which is the
        whole path, holds more than (R - 1) / racks + 2 of R replicas, one fewer if that is all of
        them; `rack_fault_tolerant`: one if R < racks, else ceil(R / racks). `upgrade_domain` adds
        that the first `factor` (3) replicas stand in different upgrade domains, the values of
        `tag`; a node without it is its own. What cannot be kept is given up, upgrade domains
        before rack caps, and the decision is `degraded`: HDFS leaves the replica out instead,
        which is the greater danger (HDDS-9019). Where nodes run out the stream is `partial`.

    Algorithm:
        `BlockPlacementPolicyDefault.java` and its two subclasses. First: the writer's node, else a
        node of its rack, else any. Second: another rack than the first's. Third: another rack if
        the first two share one; else, for a new shard, the rack of the second, for a lost replica
        the rack of the first that is left. Further ones anywhere under the cap.
        `rack_fault_tolerant`: always a rack that holds fewest, the writer's own first (its
        "cap - 1, then one more", without the retries of HDFS-17052). `writer` is a node, or the
        location of a client. Rebalancing evens out each stream before all replicas.

    Example:
        Racks /a with a1, a2 and /b with b1, b2; writer a1, three replicas: a1, b1, b2.
    """

    name: str = "hdfs"
    aliases: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ("variant", "writer", "factor", "tag")
    on_infeasible: OnInfeasible = OnInfeasible.DEGRADE
    balance: ClassVar[Balance] = Balance.STREAMS_FIRST
    # The first replica is no leader, but where the writer was.
    has_leaders: ClassVar[bool] = False
    on_shortage: ClassVar[OnInfeasible] = OnInfeasible.PARTIAL

    def compile(self, policy: Mapping[str, Any], _topology: Topology) -> Mapping[str, Any] | Reason:
        """Check `variant` (default), `writer` and, for upgrade domains, `factor` (3) and `tag`."""
        written = policy.get("variant", Variant.DEFAULT)
        variant = written.replace("-", "_") if isinstance(written, str) else written
        if variant not in list(Variant):
            return unknown_value("policy", "variant", written, Variant)
        writer = policy.get("writer")
        if writer is not None and not (isinstance(writer, str) and writer):
            return unknown_value("policy", "writer", writer, ("a node id", "a location"))
        location = parse_location(writer) if writer and writer.startswith("/") else None
        if isinstance(location, Reason):
            return location
        factor = policy.get("factor", _FACTOR)
        if type(factor) is not int or factor < 1:
            return unknown_value("policy", "factor", factor, ())
        tag = policy.get("tag")
        if tag is not None and not (isinstance(tag, str) and tag):
            return unknown_value("policy", "tag", tag, ("the key of a tag",))
        return {
            "variant": Variant(variant),
            "writer": location or writer,
            "factor": factor,
            "tag": tag,
        }

    def rules(self, policy: Policy, topology: Topology) -> tuple[Rule, ...]:
        """List the user's rules, the racks to span, and upgrade domains."""
        variant: Variant = policy.parameters["variant"]
        racks = None if variant is Variant.RACK_FAULT_TOLERANT else 2
        rules: list[Rule] = [*policy.rules, SpanDomains(LEAF, racks, policy.strength)]
        if variant is Variant.UPGRADE_DOMAIN:
            rules.append(_upgrade_domain_rule(policy, topology))
        return tuple(rules)

    def find_fault(self, _spec: StreamSpec, policy: Policy, topology: Topology) -> Reason | None:
        """Find a writer that is not a registered node."""
        writer = policy.parameters["writer"]
        if isinstance(writer, str) and writer not in topology.index:
            return Reason(Code.NODE_UNKNOWN, f"policy: writer '{writer}' is not registered")
        return None

    def place(self, spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
        """Place slot by slot; slots that find no node stay empty with the reason."""
        topology, factor = view.topology, spec.replication_factor
        cap = AtMost(
            _cap(policy, factor, candidates(policy, view), topology), LEAF, Strength.PREFERRED
        )

        def pick(need: ReplicaRequest, mask: Mask) -> int | Reason:
            return self.extend(need, policy, mask, view)

        shards, reasons = fill_slots(spec, policy, view, pick, self.rules(policy, topology))
        rules = (*self.rules(policy, topology), cap)
        return Placement(shards, reasons, find_unmet(rules, shards, spec, policy, topology))

    def extend(self, need: ReplicaRequest, policy: Policy, mask: Mask, view: View) -> int | Reason:
        """Choose the node that HDFS' order gives, given the replicas that stay."""
        left = exclude_taken(mask, need)
        if not left.any():
            return explain_no_node(need, mask, view)
        refused: Reason | None = None
        for allowed in _allowed_masks(need, policy, mask, view.topology):
            if not (left & allowed).any():
                continue
            lawful = admitted_mask(policy, left & allowed, need, view)
            if isinstance(lawful, Reason):
                refused = lawful
                continue
            stage = next(s for s in _stages(need, policy, lawful, view.topology) if s.any())
            drawn = stage if need.kept else _keep_least_leading(stage, view)
            return choose((), drawn, need, view)
        return refused or _explain_full_racks(need, left, view.topology)


def rack_cap(variant: Variant, replicas: int, racks: int) -> int:
    """Compute the replicas of a shard that one rack may hold (`getMaxNodesPerRack`)."""
    if racks <= 1 or replicas <= 1:
        return replicas
    if variant is Variant.RACK_FAULT_TOLERANT:
        return ceil(replicas / racks)
    cap = (replicas - 1) // racks + 2
    return cap - 1 if cap == replicas else cap


def _cap(policy: Policy, factor: int, usable: Mask, topology: Topology) -> int:
    """Compute the cap over the nodes that may hold a replica."""
    racks = len(np.unique(topology.domain_of(LEAF)[usable]))
    return rack_cap(policy.parameters["variant"], min(factor, int(usable.sum())), racks)


def _allowed_masks(
    need: ReplicaRequest, policy: Policy, mask: Mask, topology: Topology
) -> Iterator[Mask]:
    """Mask the nodes that cap and upgrade domains admit.

    Then, unless these rules are required, those that the cap admits, then all.
    """
    usable = mask.copy()
    usable[_to_indexes(need.kept)] = True
    racks = topology.domain_of(LEAF)
    copies = np.bincount(racks[_to_indexes(need.kept)], minlength=int(racks.max()) + 1)
    under = copies[racks] < _cap(policy, need.replication_factor, usable, topology)
    preferred, enough = policy.strength is Strength.PREFERRED, True
    if policy.parameters["variant"] is Variant.UPGRADE_DOMAIN:
        rule = _upgrade_domain_rule(policy, topology)
        yield under & rule.unused(topology, need.kept)
        # HDFS requires it of the first `factor` replicas; the others only mend what is broken.
        enough = len(need.kept) >= rule.factor
    if enough or preferred:
        yield under
    if preferred:
        yield np.ones(topology.size, bool)


def _stages(need: ReplicaRequest, policy: Policy, mask: Mask, topology: Topology) -> Iterator[Mask]:
    """List the sets of nodes that HDFS tries one after the other, each within `mask`."""
    if not mask.any():
        return
    racks = topology.domain_of(LEAF)
    kept = [int(racks[node]) for node in need.kept]
    if policy.parameters["variant"] is Variant.RACK_FAULT_TOLERANT:
        copies = np.bincount(np.asarray(kept, np.int64), minlength=int(racks.max()) + 1)
        mask = mask & (copies[racks] == copies[racks[mask]].min())
        yield from (mask & near for near in _masks_near_writer(policy, topology))
        if kept:
            yield mask & (racks == kept[0])
    elif not kept:
        yield from (mask & near for near in _masks_near_writer(policy, topology))
    elif len(kept) == 1 or (len(kept) == 2 and kept[0] == kept[1]):
        yield mask & (racks != kept[0])
    elif len(kept) == 2:
        for rack in reversed(kept) if need.fresh else kept:
            yield mask & (racks == rack)
    yield mask


def _keep_least_leading(mask: Mask, view: View) -> Mask:
    """Keep the nodes that lead least for their weight.

    Load alone goes round in step with the replicas of a shard and would let one rack lead them all.
    """
    leads = (view.leaders + 1) / view.topology.weight
    least: Mask = mask & (leads == leads[mask].min())
    return least


def _masks_near_writer(policy: Policy, topology: Topology) -> Iterator[Mask]:
    """Mask the writer's node, then the nodes of its rack."""
    writer: str | Location | None = policy.parameters["writer"]
    if isinstance(writer, Location):
        yield np.asarray([place == writer for place in topology.locations], bool)
    elif writer in topology.index:
        node, racks = topology.index[writer], topology.domain_of(LEAF)
        yield np.arange(topology.size) == node
        yield racks == racks[node]


def _explain_full_racks(need: ReplicaRequest, left: Mask, topology: Topology) -> Reason:
    racks = topology.domain_of(LEAF)
    seen = topology.domain_names(LEAF, np.unique(racks[left]).tolist())
    message = (
        f"no node can take replica {need.slot} of {need.stream}/{need.shard}: the racks of all "
        f"{int(left.sum())} candidates are full or their upgrade domains used"
    )
    return Reason(Code.NO_CANDIDATE, message, 1, 0, LEAF.level, seen)


def _upgrade_domain_rule(policy: Policy, topology: Topology) -> "UpgradeDomains":
    tag: str | None = policy.parameters["tag"]
    if tag is None:
        carried = {key for n in topology.index.values() for key, _ in topology.attributes[n].tags}
        spelled = (key for key in _UPGRADE_DOMAIN_TAGS if key in carried)
        tag = next(spelled, _UPGRADE_DOMAIN_TAGS[0])
    return UpgradeDomains(Scope(tag=tag), policy.parameters["factor"], policy.strength)


def _to_indexes(nodes: Sequence[int]) -> NDArray[np.int64]:
    return np.asarray(nodes, np.int64)


@dataclass(frozen=True, slots=True)
class UpgradeDomains(ScopedRule):
    """The replicas of a shard stand in `factor` upgrade domains, or each in one of its own."""

    per: Scope
    factor: int = _FACTOR
    strength: Strength = Strength.PREFERRED

    def __str__(self) -> str:
        return f"{self.factor} upgrade domains of {self.per}"

    def unused(self, topology: Topology, replicas: Sequence[int]) -> Mask:
        """Mask the nodes of domains without a replica; all nodes where enough domains have one."""
        domains = self._domains(topology)
        used = np.unique(domains[_to_indexes(replicas)])
        if len(used) >= self.factor:
            return np.ones(topology.size, bool)
        return ~np.isin(domains, used)

    def penalty(self, standing: RuleContext) -> Penalties:
        """Return one for a used domain while the replicas use fewer domains than the factor."""
        return (~self.unused(standing.topology, standing.replicas)).astype(np.int64)

    def violations(self, standing: RuleContext) -> list[RuleFinding]:
        """List one finding without a domain if too few domains are used."""
        domains = self._domains(standing.topology)
        have = len(np.unique(domains[_to_indexes(standing.replicas)]))
        need = min(self.factor, len(standing.replicas))
        return [RuleFinding(None, have, need)] if have < need else []

    def may_violate(self, shards: NDArray[np.int64], standing: RuleContext) -> Mask:
        """Mask the shards, a row of nodes each, that break the rule."""
        used = first_occurrences(self._domains(standing.topology)[shards]).sum(axis=1)
        doubtful: Mask = used < min(self.factor, shards.shape[1])
        return doubtful

    def _domains(self, topology: Topology) -> NDArray[np.int64]:
        """Find the upgrade domain of each node; one of its own if it has no label."""
        domains = topology.domain_of(self.per).astype(np.int64)
        alone = -1 - np.arange(topology.size)
        return np.where(domains == NO_DOMAIN, alone, domains)
