"""Begins holds, keeps their replicas from being replaced, and ends them.

A hold is remembered (`hold` in `state.v1`, by the domain or `fleet`), so that a restart does not
end it. It holds the nodes in its reach that have gone since a window before it began, and those
that follow: their replicas are neither copied elsewhere nor removed; leaders are still promoted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.controllers.moves import MoveController
from placement.model import (
    UNLOCATED,
    AdministrativeState,
    AlertKind,
    Code,
    Liveness,
    Reason,
    parse_location,
)
from placement.nodes import HoldTrigger, lost_domains, lost_share
from placement.repair import RepairPlanner
from placement.state import ClusterState
from placement.wording import format_count

KIND = "hold"
# What the hold is called that is about nodes here and there.
FLEET = "fleet"

_AWAY = (Liveness.SUSPECT, Liveness.DEAD)
_WORD = "suspect or dead"


@dataclass(frozen=True, slots=True)
class ActiveHold:
    """Holds what is known of a hold under way. Times are ms.

    - `since`: nodes that went from then on are in it.
    - `most`: the most nodes that were away at once; `away`: how many are away now.
    - `returned_at`: when a node came back last, or when the hold began.
    """

    domain: str | None
    since: int
    most: int
    away: int
    returned_at: int
    overridden: bool = False

    @property
    def name(self) -> str:
        """Return the name under which the hold is remembered and overridden."""
        return self.domain or FLEET


class HoldController:
    """Watches how many nodes go at once."""

    def __init__(self, state: ClusterState, repair: RepairPlanner, moves: MoveController) -> None:
        self._state, self._repair, self._moves = state, repair, moves
        self._held: dict[str, ActiveHold] = {}
        self._away: dict[int, int] = {}
        self._kept: set[int] = set()
        self._changed = False

    def resume(self) -> None:
        """Continue the holds that a restored state remembers."""
        state = self._state
        for name, body in state.memory.of_kind(KIND).items():
            self._held[name] = ActiveHold(**body)
        for name in state.nodes:
            self.observe(state.topology.index[name])
        self._kept = self._held_nodes()
        for node in self._kept:
            state.topology.set_held(node, True)
        self._changed = False

    def active_names(self) -> list[str]:
        """List the holds that are under way and not overridden."""
        return sorted(name for name, held in self._held.items() if not held.overridden)

    def nodes(self, name: str) -> list[int] | None:
        """List the nodes that a hold keeps, by index; None where there is none of that name."""
        if name not in self.active_names():
            return None
        rank = self._state.topology.order()
        return sorted(self._nodes_away(self._held[name]), key=lambda node: int(rank[node]))

    def override(self, name: str) -> None:
        """Allow repair to replace the replicas of a hold.

        The hold stays overridden until the nodes that went are away for longer than the window.
        """
        held = self._held[name]
        self._keep(name, replace(held, overridden=True))
        nodes = format_count(held.away, "node")
        message = f"the hold of {name} is overridden: the replicas of {nodes} are replaced"
        detail = {"state": "overridden", "domain": held.domain, "nodes": held.away}
        self._state.publisher.alert(AlertKind.HOLD, name, Reason(Code.HOLD_ENDED, message), detail)

    def observe(self, node: int) -> None:
        """Note that a node's condition or location has changed.

        Nodes in maintenance are away on purpose: they trigger no hold.
        """
        topology = self._state.topology
        away = topology.liveness[node] in _AWAY
        self._changed = True
        if away and topology.administrative[node] is not AdministrativeState.MAINTENANCE:
            self._away[node] = self._state.nodes[topology.ids[node]].since
        else:
            self._away.pop(node, None)

    def update(self) -> bool:
        """Begin and end holds as the nodes say; returns whether one has begun."""
        if not (self._changed or self._held):
            return False
        self._changed = False
        window = self._state.configuration.hold_window_ms
        for name in sorted(self._held):
            self._update_hold(self._held[name], window)
        recent = {n for n, since in self._away.items() if since > self._state.now - window}
        found = self._find_triggers(recent) if recent or self._held else {}
        for name in sorted(name for name, held in self._held.items() if held.overridden):
            if name not in found:
                self._keep(name, None)
        begun = [hold for name, hold in found.items() if self._is_new(name)]
        for hold in begun:
            self._begin_hold(hold, self._state.now - window)
        self._apply()
        return bool(begun)

    def _find_triggers(self, recent: set[int]) -> dict[str, HoldTrigger]:
        """Find the holds that would begin if none were known, by name."""
        topology = self._state.topology
        gone = self._mask(recent)
        there = ~topology.dead & ~self._mask(self._away)
        there |= self._mask(n for n in recent if topology.liveness[n] is not Liveness.UNREGISTERED)
        share = lost_share(there, gone, _WORD)
        found = {} if share is None else {FLEET: share}
        levels = self._state.configuration.hold_levels
        for hold in lost_domains(topology, there, gone, _WORD, levels):
            assert hold.domain is not None
            found[hold.domain] = hold
        return found

    def _mask(self, nodes: Iterable[int]) -> NDArray[np.bool_]:
        mask = np.zeros(self._state.topology.size, bool)
        mask[[*nodes]] = True
        return mask

    def _is_new(self, name: str) -> bool:
        """Return whether no hold under way covers this one: of the fleet, or of a domain around."""
        if name == FLEET:
            return FLEET not in self._held
        around = (held for held in self._held if held == name or name.startswith(f"{held}/"))
        return FLEET not in self._held and not any(around)

    def _begin_hold(self, hold: HoldTrigger, since: int) -> None:
        """Begin a hold, unless one that has just begun covers it."""
        held = ActiveHold(hold.domain, since, hold.nodes, hold.nodes, self._state.now)
        if not self._is_new(held.name):
            return
        self._keep(held.name, held)
        detail = {"state": "begun", "domain": hold.domain, "nodes": hold.nodes}
        until = "they return or the hold is overridden"
        message = f"{hold.reason}: their replicas are not replaced until {until}"
        self._state.publisher.alert(
            AlertKind.HOLD, held.name, Reason(Code.REPAIR_HELD, message), detail
        )

    def _update_hold(self, held: ActiveHold, window: int) -> None:
        """Count who is away, and end the hold when it is over.

        It is over when all are back, or when most are and no other has followed within the window:
        nodes that are still away then have failed.
        """
        if held.overridden:
            return
        now, away = self._state.now, len(self._nodes_away(held))
        returned = now if away < held.away else held.returned_at
        after = replace(held, away=away, most=max(held.most, away), returned_at=returned)
        over = not away or (2 * away < after.most and now - returned >= window)
        self._keep(held.name, None if over else after)
        if over:
            rest = "; the replicas of the others are replaced" if away else ""
            message = f"{after.most - away} of {after.most} nodes are no longer {_WORD}{rest}"
            detail = {"state": "ended", "domain": held.domain, "nodes": away}
            self._state.publisher.alert(
                AlertKind.HOLD, held.name, Reason(Code.HOLD_ENDED, message), detail
            )

    def _keep(self, name: str, held: ActiveHold | None) -> None:
        """Remember the hold, or forget it with `held` None."""
        body: Mapping[str, Any] | None = None
        if held is None:
            del self._held[name]
        else:
            self._held[name] = held
            body = asdict(held)
        self._state.memory.remember(KIND, name, body)

    def _nodes_away(self, held: ActiveHold) -> set[int]:
        """Find the nodes that are away and in the hold."""
        domain = UNLOCATED if held.domain is None else parse_location(held.domain)
        assert not isinstance(domain, Reason)
        places = self._state.topology.locations
        return {
            node
            for node, since in self._away.items()
            if since >= held.since and places[node].is_within(domain)
        }

    def _held_nodes(self) -> set[int]:
        """Find the nodes that a hold reaches, and that no overridden one does."""
        reached: dict[bool, set[int]] = {True: set(), False: set()}
        for held in self._held.values():
            reached[held.overridden] |= self._nodes_away(held)
        return reached[False] - reached[True]

    def _apply(self) -> None:
        """Inform topology and repair which nodes keep their replicas under a hold."""
        before, self._kept = self._kept, self._held_nodes()
        rank = self._state.topology.order()
        for node in sorted(before ^ self._kept, key=lambda node: int(rank[node])):
            self._state.topology.set_held(node, node in self._kept)
            self._repair.enqueue(self._state.table.shards_on(node))
            self._moves.review(node)
