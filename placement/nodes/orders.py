"""Operators' orders that stand until they are ended: drains, maintenance and cordons.

An order is for a node or for a whole domain, nodes that join it later included. It is remembered
(`request` in `state.v1`, by its target) with the progress of its drain, so that a restart forgets
neither.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from placement.model import Action, AdministrativeState, Location, Reason, parse_location
from placement.state import ClusterState

KIND = "request"

# The strongest first: a node that is to be emptied is emptied, whatever else is said of it.
_STATES = {
    Action.DRAIN: AdministrativeState.DRAINING,
    Action.MAINTENANCE: AdministrativeState.MAINTENANCE,
    Action.CORDON: AdministrativeState.CORDONED,
}


@dataclass(frozen=True, slots=True)
class Order:
    """Order in force for a target.

    Times are ms; `until` None: until it is ended.

    Of a drain: replicas that are still there (`remaining`), that are on their way (`in_flight`) and
    that cannot leave (`blocked_total`, the first of them in `blocked` with reasons), as of
    `told_at`; `done` when nothing is left.
    """

    action: Action
    target: str
    request_id: str
    at: int
    until: int | None = None
    told_at: int = 0
    remaining: int = 0
    in_flight: int = 0
    blocked_total: int = 0
    blocked: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False

    @property
    def state(self) -> AdministrativeState:
        """The administrative state that the order gives its nodes."""
        return _STATES[self.action]


class AdministrativeOrders:
    """The orders by target, and the nodes under each."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.by_target: dict[str, Order] = {}

    def resume(self) -> None:
        """Load the orders that a restored state remembers."""
        for target, body in self._state.memory.of_kind(KIND).items():
            self.by_target[target] = Order(**{**body, "action": Action(body["action"])})

    def keep(self, order: Order) -> None:
        """Store an order or its progress."""
        self.by_target[order.target] = order
        self._state.memory.remember(KIND, order.target, asdict(order))

    def end(self, target: str) -> Order:
        """End the order of a target, and return it."""
        self._state.memory.remember(KIND, target, None)
        return self.by_target.pop(target)

    def strongest_order(self, node_id: str, location: Location) -> Order | None:
        """Find the strongest order in force for a node at a location."""
        reaching = [each for each in self.by_target.values() if _reaches(each, node_id, location)]
        ranks = list(_STATES)
        return min(reaching, key=lambda each: (ranks.index(each.action), each.target), default=None)

    def state_at(self, node_id: str, location: str) -> AdministrativeState:
        """Return the administrative state of a node once it is at a location.

        A pending location that the node only claims does not count. An order for the domain that
        the node leaves ends for it; an order for the node itself stays.
        """
        known = self._state.nodes.get(node_id)
        ordered = known.administrative if known else AdministrativeState.NONE
        if not self.by_target:
            return ordered
        order = self._order_at(node_id, location)
        if order is not None:
            return order.state
        left = known is not None and self._order_at(node_id, known.attributes.location) is not None
        return AdministrativeState.NONE if left else ordered

    def nodes(self, target: str) -> list[int] | None:
        """List the nodes of a target, by index, those that have left excepted.

        None if there is neither such a node nor such a domain.
        """
        topology, known = self._state.topology, self._state.nodes
        if not target.startswith("/"):
            return [topology.index[target]] if target in known else None
        domain = parse_location(target)
        if isinstance(domain, Reason):
            return None
        found = [topology.index[each] for each in known]
        found = [node for node in found if topology.locations[node].is_within(domain)]
        rank = topology.order()
        return sorted(found, key=lambda node: int(rank[node])) or None

    def _order_at(self, node_id: str, text: str) -> Order | None:
        location = parse_location(text)
        return None if isinstance(location, Reason) else self.strongest_order(node_id, location)


def _reaches(order: Order, node_id: str, location: Location) -> bool:
    if not order.target.startswith("/"):
        return order.target == node_id
    domain = parse_location(order.target)
    return not isinstance(domain, Reason) and location.is_within(domain)
