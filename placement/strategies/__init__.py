"""Placement strategies, one module per placement system, registered by name."""

from collections.abc import Mapping
from dataclasses import replace

from placement.allocator import Strategy
from placement.model import Code, Reason
from placement.policy import Policy
from placement.strategies.affinity import AffinityStrategy
from placement.strategies.awareness import AwarenessStrategy
from placement.strategies.client_tags import ClientTagsStrategy
from placement.strategies.copysets import CopysetsStrategy
from placement.strategies.cost import CostStrategy
from placement.strategies.hdfs import HdfsStrategy
from placement.strategies.location_majority import LocationMajorityStrategy
from placement.strategies.multi_level import MultiLevelStrategy
from placement.strategies.network_topology import NetworkTopologyStrategy
from placement.strategies.ring import RingStrategy
from placement.strategies.simple import SimpleStrategy
from placement.strategies.spread import SpreadStrategy
from placement.strategies.striped import StripedStrategy
from placement.topology import Topology

_ALL: tuple[Strategy, ...] = (
    AffinityStrategy(),
    AwarenessStrategy(),
    ClientTagsStrategy(),
    CopysetsStrategy(),
    CostStrategy(),
    HdfsStrategy(),
    LocationMajorityStrategy(),
    MultiLevelStrategy(),
    NetworkTopologyStrategy(),
    RingStrategy(),
    SimpleStrategy(),
    SpreadStrategy(),
    StripedStrategy(),
)

_BY_NAME: dict[str, Strategy] = {
    name: strategy for strategy in _ALL for name in (strategy.name, *strategy.aliases)
}

STRATEGIES: Mapping[str, Strategy] = _BY_NAME
"""Every strategy by its name and by each of its aliases."""


def register(strategy: Strategy) -> Reason | None:
    """Make one more strategy known, or say which name is taken; again the same is no change."""
    names = (strategy.name, *strategy.aliases)
    for name in names:
        known = _BY_NAME.get(name, strategy)
        if type(known) is not type(strategy):
            message = f"strategy '{name}' of {type(strategy).__qualname__} is known already: "
            return Reason(Code.POLICY_AMBIGUOUS, message + type(known).__qualname__)
    _BY_NAME.update(dict.fromkeys(names, strategy))
    return None


def deferred(name: str, policy: Policy, topology: Topology) -> tuple[Strategy, Policy] | Reason:
    """Another strategy with the policy as that one understands it: rules and filters stay, its
    parameters and what becomes of its own rules are its defaults. For placers that defer to
    another."""
    strategy = STRATEGIES.get(name)
    if strategy is None:
        return Reason(Code.STRATEGY_UNKNOWN, f"unknown strategy '{name}'")
    parameters = strategy.compile({}, topology)
    if isinstance(parameters, Reason):
        return parameters
    return strategy, replace(
        policy,
        strategy=strategy.name,
        parameters=parameters,
        on_infeasible=parameters.get("on_infeasible", strategy.on_infeasible),
    )
