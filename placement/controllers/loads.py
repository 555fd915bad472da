"""Carries out reports of loads, and watches which nodes hold more of a resource than fits.

Reports are smoothed and filtered before they get here (`loads` in the settings). A word on a shard
that the node does not hold changes nothing and is counted. A figure that is many times the one
before is held back by the filter: here it is remembered, so that an operator can confirm it.
"""

from dataclasses import replace

import numpy as np

from placement.controllers.retry_gate import RetryGate
from placement.diagnosis import OVER_CAPACITY_RULE, Demand, over_capacity
from placement.model import AlertKind, Code, LoadsReported, Reason, ReportedLoad, SuspectedLoad
from placement.state import ClusterState

# What is remembered in `state.v1`: rules of nodes that hold more than fits, as was alerted; and
# figures that are held back, by shard and resource.
FULL, SUSPECTED = "over_capacity", "load_suspected"


class LoadController:
    """Records loads, and alerts operators to nodes that hold more than fits."""

    def __init__(self, state: ClusterState, retry_gate: RetryGate) -> None:
        self._state, self._retry_gate = state, retry_gate
        self._borne = state.borne()

    def begin(self) -> None:
        """Note what nodes bear before the events of a batch."""
        self._borne = self._state.borne()

    def note_freed_nodes(self) -> None:
        """Let streams and repairs be tried again that nodes may have room for since `begin`."""
        now, before = self._state.borne(), self._borne
        if now is None or before is None:
            return
        known = before.shape[1]
        for node in np.flatnonzero((now[:, :known] < before).any(axis=0)).tolist():
            self._retry_gate.note_change(node, moved=False)

    def apply_reports(self, event: LoadsReported) -> Reason | None:
        """Record the loads that a node reports of its shards, or return why none of them counts."""
        state = self._state
        node = state.topology.index.get(event.node_id)
        if node is None:
            message = f"loads were reported by '{event.node_id}': there is no such node"
            return Reason(Code.NODE_UNKNOWN, message)
        ignored = state.loads.report(node, event.loads)
        if ignored:
            state.publisher.count("load_ignored", ignored)
        for each in event.loads:
            for resource, _ in each.amounts:
                self._forget_suspicion(_name(each.stream, each.shard, resource), event.node_id)
        for suspected in event.suspected:
            self._suspect(event.node_id, suspected)
        return None

    def find_missed(self, event: LoadsReported) -> LoadsReported | None:
        """Keep of an event that is repeated the loads that are not known yet; None if all are."""
        node = self._state.topology.index.get(event.node_id)
        if node is None:
            return None
        missed = tuple(each for each in event.loads if self._state.loads.lacks(node, each))
        return replace(event, loads=missed) if missed else None

    def _suspect(self, node_id: str, each: SuspectedLoad) -> None:
        """Remember a figure that is held back, and alert operators to it."""
        shard = f"{each.stream}/{each.shard}"
        body = {"node": node_id, "amount": each.amount, "before": each.before}
        name = _name(each.stream, each.shard, each.resource)
        self._state.memory.remember(SUSPECTED, name, body)
        message = (
            f"{node_id} reports {each.amount} {each.resource} of {shard}, {each.before} before;"
            f" it is held back until further reports agree, or an operator confirms it"
        )
        found = Reason(Code.LOAD_SUSPECTED, message, each.before, each.amount)
        self._state.publisher.alert(AlertKind.LOAD_SUSPECTED, shard, found)

    def _forget_suspicion(self, name: str, node_id: str) -> None:
        known = self._state.memory.get((SUSPECTED, name))
        if known is not None and known.body["node"] == node_id:
            self._state.memory.remember(SUSPECTED, name, None)

    def confirm(self, target: str) -> None:
        """Record the figures of a shard, `stream/number`, that were held back."""
        stream, _, number = target.rpartition("/")
        for name, body in self._suspected(target).items():
            resource = name.rpartition(" ")[2]
            node = self._state.topology.index.get(str(body["node"]))
            amounts = ((resource, int(str(body["amount"]))),)
            if node is not None:
                self._state.loads.report(node, [ReportedLoad(stream, int(number), amounts)])
            self._state.memory.remember(SUSPECTED, name, None)

    def why_not_suspected(self, target: str) -> Reason | None:
        """Return why there is no figure of a shard, `stream/number`, to be confirmed, or None."""
        if self._suspected(target):
            return None
        return Reason(Code.NOTHING_TO_DO, f"no report of the load of {target} is held back")

    def _suspected(self, target: str) -> dict[str, dict[str, object]]:
        known = self._state.memory.of_kind(SUSPECTED)
        return {name: dict(known[name]) for name in known if name.rpartition(" ")[0] == target}

    def watch(self) -> None:
        """Alert operators to nodes that have come to hold more than fits, once for each.

        Figures of shards that are gone are no longer held back.
        """
        state = self._state
        loads = state.node_loads()
        if loads is None:
            return
        for name in state.memory.of_kind(SUSPECTED):
            stream = state.streams.get(name.rpartition(" ")[0].rpartition("/")[0])
            if stream is None or not stream.shards:
                state.memory.remember(SUSPECTED, name, None)
        ids, known = state.topology.ids, state.memory.of_kind(FULL)
        over = {_overload_name(ids[each.node], each.resource.name) for each in loads.overloads()}
        for name in sorted(known.keys() - over):
            state.memory.remember(FULL, name, None)
        if over <= known.keys():
            return
        for violation in over_capacity(state.topology, loads, _demands(state)):
            name = f"{violation.domain} {violation.rule}"
            if name not in known:
                state.memory.remember(FULL, name, {"since": state.now})
                state.publisher.alert(
                    AlertKind.OVER_CAPACITY, str(violation.domain), violation.reason
                )


def _overload_name(node_id: str, resource: str) -> str:
    """Name a node's overload in the memory: the node, and the rule that is broken."""
    return f"{node_id} {OVER_CAPACITY_RULE} {resource}"


def _demands(state: ClusterState) -> list[Demand]:
    """List what the shards of all placed streams need."""
    columns, found = state.table.loads, []
    assert columns is not None, "resources are counted"
    for stream in state.streams.values():
        if stream.policy is not None and stream.shards:
            shards = np.asarray(stream.shards, np.int64)
            rows, amounts = state.table.padded_rows(shards), columns.of_shards(shards)
            found.append(Demand(stream.policy, stream.copies, rows, amounts))
    return found


def _name(stream: str, shard: int, resource: str) -> str:
    """Name a figure in the memory; names of resources contain no space."""
    return f"{stream}/{shard} {resource}"
