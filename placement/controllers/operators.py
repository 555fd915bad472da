"""Carries out operators' requests: answers each, and ends those that have a time.

Answers carry the request's id; the command waits for them. The progress of a drain is kept with its
order (`nodes.orders`).
"""

from dataclasses import replace

from placement.controllers.holds import HoldController
from placement.controllers.loads import LoadController
from placement.controllers.moves import MoveController
from placement.controllers.node_registry import NodeRegistry
from placement.controllers.nodes import NodeController
from placement.controllers.preview import Preview, preview
from placement.controllers.rebalance import RebalanceController
from placement.diagnosis import DRAIN_RULE, is_stuck
from placement.model import (
    Action,
    AdministrativeState,
    Answer,
    AnswerOutcome,
    Code,
    MoveState,
    NodeChanged,
    OperatorAsked,
    Reason,
)
from placement.nodes import AdministrativeOrders, Order, Relocations
from placement.state import ClusterState

# People look at progress; a drain of a zone has a hundred thousand shards to count.
PROGRESS_MS = 5_000
# Actions that are done at once and have no impact to report.
_DONE = {
    Action.FORGET: "node {} is forgotten",
    Action.RELEASE: "the hold-down of node {} has ended",
    Action.CONFIRM_LOAD: "the reported load of {} counts",
    Action.HANDOVER: "a standby of cell {} decides from the next commit on",
}
# Of a long list the first are named.
_NAMED_MAX = 10


class OperatorController:
    """Carries out what operators ask for."""

    def __init__(
        self,
        state: ClusterState,
        orders: AdministrativeOrders,
        registry: NodeRegistry,
        nodes: NodeController,
        relocations: Relocations,
        moves: MoveController,
        holds: HoldController,
        rebalancing: RebalanceController,
        loads: LoadController,
    ) -> None:
        self._state, self._orders = state, orders
        self._registry, self._nodes, self._relocations = registry, nodes, relocations
        self._moves, self._holds = moves, holds
        self._rebalancing, self._loads = rebalancing, loads

    def preview(self, asked: OperatorAsked) -> Preview:
        """Preview the impact of a request, and what forbids it."""
        return preview(
            self._state,
            self._orders,
            self._holds,
            self._rebalancing,
            self._relocations,
            self._loads,
            asked,
        )

    def apply_request(self, event: OperatorAsked) -> None:
        """Carry out an operator's request and answer it, or answer why it is refused."""
        seen = self.preview(event)
        refused = seen.refusal_for(event.expected_hash) or self._carry_out(event, seen)
        answer = Answer(
            event.request_id,
            event.action,
            event.target,
            AnswerOutcome.ACCEPTED if refused is None else AnswerOutcome.REFUSED,
            self._state.now,
            refused or Reason(Code.REQUEST_ACCEPTED, _describe_acceptance(event, seen)),
            len(seen.nodes),
            len(seen.shards),
            seen.hash or None,
        )
        self._state.publisher.answer(answer)

    def _carry_out(self, event: OperatorAsked, seen: Preview) -> Reason | None:
        match event.action:
            case Action.DRAIN | Action.MAINTENANCE | Action.CORDON:
                self._begin_order(event, seen)
            case Action.UNDRAIN | Action.UNCORDON:
                self._end_order(event.target)
            case Action.OVERRIDE_HOLD:
                self._holds.override(event.target)
            case Action.CANCEL_MOVE:
                self._moves.cancel(event.target)
            case Action.REBALANCE:
                self._rebalancing.want(f"request {event.request_id}")
            case Action.APPROVE_RELOCATION:
                return self._approve(event, seen)
            case Action.FORGET:
                self._forget(event.target)
            case Action.RELEASE:
                self._nodes.release(event.target)
            case Action.CONFIRM_LOAD:
                self._loads.confirm(event.target)
        return None

    def _forget(self, node_id: str) -> None:
        """Forget a node, and the order that names it; an order of its domain goes on."""
        if node_id in self._orders.by_target:
            self._orders.end(node_id)
        self._registry.forget(node_id)

    def _approve(self, event: OperatorAsked, seen: Preview) -> Reason | None:
        relocations, ids = self._relocations, self._state.topology.ids
        if not event.target.startswith("/"):
            return relocations.approve(event.target, event.expected_hash or "")
        relocations.approve_all([ids[node] for node in seen.nodes])
        return None

    def _begin_order(self, event: OperatorAsked, seen: Preview) -> None:
        """Record an order and put its nodes into the state that the order demands."""
        known = self._orders.by_target.get(event.target)
        until = None if event.ttl_ms is None else self._state.now + event.ttl_ms
        if known is None:
            self._orders.keep(
                Order(event.action, event.target, event.request_id, self._state.now, until)
            )
        else:
            self._orders.keep(replace(known, request_id=event.request_id, until=until))
        for node in seen.nodes:
            self._apply_orders(node)

    def _end_order(self, target: str) -> None:
        """End an order; replicas that it was moving stay where they are up."""
        nodes = self._orders.nodes(target) or []
        action, eligible = self._orders.end(target).action, self._state.topology.eligible
        for node in nodes:
            self._apply_orders(node)
            if action is Action.DRAIN and eligible[node]:
                self._call_off(node)
        # The order kept replicas away for so long, as if the nodes had not been there.
        if action is not Action.MAINTENANCE and eligible[nodes].any():
            self._rebalancing.want_on_join(f"the {action} of {target} was ended")

    def _apply_orders(self, node: int) -> None:
        """Put the node into the state that its orders demand."""
        topology = self._state.topology
        view = self._state.nodes[topology.ids[node]]
        order = self._orders.strongest_order(view.node_id, topology.locations[node])
        ordered = AdministrativeState.NONE if order is None else order.state
        if ordered is view.administrative:
            return
        self._nodes.apply_change(
            NodeChanged(
                self._state.now,
                view.node_id,
                view.incarnation,
                view.sequence,
                view.liveness,
                administrative=ordered,
            )
        )

    def _call_off(self, node: int) -> None:
        for opened in self._state.ledger.moves_of_node(node):
            if opened.removed == node and opened.move.reason.code is Code.NODE_DRAINING:
                message = f"the drain of node {opened.move.remove} was ended"
                why = Reason(Code.REQUEST_CANCELLED, message)
                self._moves.end(opened, MoveState.CANCELLED, why)

    def expire(self) -> bool:
        """End the orders whose time is over; returns whether there were any."""
        now = self._state.now
        expired = [
            o for o in self._orders.by_target.values() if o.until is not None and o.until <= now
        ]
        for order in sorted(expired, key=lambda each: each.target):
            self._end_order(order.target)
            reason = Reason(
                Code.REQUEST_ENDED, f"the time of {order.action} of {order.target} is over"
            )
            self._answer(order, AnswerOutcome.ENDED, reason)
        return bool(expired)

    def progress(self) -> None:
        """Report the progress of drains from time to time, and when one is complete."""
        for order in sorted(self._orders.by_target.values(), key=lambda each: each.target):
            if order.action is not Action.DRAIN:
                continue
            due = not order.told_at or self._state.now - order.told_at >= PROGRESS_MS
            left, moving = self._count_left(order)
            done = not left and not moving
            if not due and done is order.done:
                continue
            after = self._with_counts(order, left, moving, done)
            if replace(after, told_at=order.told_at) == order:
                continue
            self._orders.keep(after)
            if done and not order.done:
                reason = Reason(Code.REQUEST_DONE, f"no replica is left on {order.target}")
                self._answer(order, AnswerOutcome.DONE, reason)

    def _count_left(self, order: Order) -> tuple[int, int]:
        """Count the replicas on the order's nodes, and those on their way from there."""
        nodes = self._orders.nodes(order.target) or []
        load, leaving = (
            self._state.table.load(self._state.topology.size),
            self._state.ledger.leaving,
        )
        return sum(int(load[node]) for node in nodes), sum(leaving[node] for node in nodes)

    def _with_counts(self, order: Order, left: int, moving: int, done: bool) -> Order:
        """Return the order with what is left, on its way and blocked, and with the time of this
        report."""
        state, blocked = self._state, []
        for node in self._orders.nodes(order.target) or []:
            for shard in state.streams.sorted_by_key({*state.table.shards_on(node)}):
                blocked += [
                    {
                        "shard": f"{v.stream}/{v.shard}",
                        "code": v.reason.code,
                        "node": v.domain,
                        "message": v.reason.message,
                    }
                    for v in state.publisher.violations.get(shard, ())
                    if v.rule == DRAIN_RULE and v.domain == state.topology.ids[node] and is_stuck(v)
                ]
        return replace(
            order,
            told_at=state.now,
            remaining=left,
            in_flight=moving,
            blocked_total=len(blocked),
            blocked=blocked[:_NAMED_MAX],
            done=done,
        )

    def _answer(self, order: Order, outcome: AnswerOutcome, reason: Reason) -> None:
        """Answer an accepted request with its consequence."""
        now = self._state.now
        answer = Answer(order.request_id, order.action, order.target, outcome, now, reason)
        self._state.publisher.answer(answer)


def _describe_acceptance(event: OperatorAsked, seen: Preview) -> str:
    """Describe the consequence of an accepted request."""
    done = _DONE.get(event.action)
    if done is not None:
        return done.format(event.target)
    impact = f": {seen}" if seen.nodes else ""
    return f"{event.action} of {event.target} accepted{impact}"
