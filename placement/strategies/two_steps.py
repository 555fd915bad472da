"""Kudu's two steps, a location and then a server in it: what `location_majority` goes by.

They are here twice, because users' rules may ask for the next best and then the next: as keys for
one replica, and for a whole stream without such rules as kernels. A test holds the two against
each other.
"""

import numpy as np
from numpy.typing import NDArray

from placement.allocator import Key, Nodes, ReplicaRequest, StreamDraft, View, domain_tree, kernels
from placement.assignments import EMPTY
from placement.hashing import digest64, digests64, mix31, scores31
from placement.policy import Policy
from placement.topology import LEAF, NO_DOMAIN, Topology

# Groups of the location step: below its limit, or at its limit; each time behind them the location
# that a replica is to leave although its node is well (Kudu's REPLACE mark).
_MAIN, _LEFT, _OVERFLOW, _LEFT_OVERFLOW = range(4)

# Servers looked at for one replica: those drawn, and as a rule none that holds another.
_LOOKED_AT = 3


class Steps:
    """The location step and the server step: as keys, and for whole streams at once."""

    def __init__(self, policy: Policy, view: View, stream: str) -> None:
        topology = view.topology
        self._view = view
        self._stream = stream
        self._aware = bool(policy.parameters["range_aware"])
        self._usable = topology.eligible & policy.nodes.mask(topology)
        self._locations = topology.domain_of(LEAF)
        self._size = int(self._locations.max(initial=0)) + 1
        self._tree = domain_tree(topology, self._usable)
        leaves, of = self._tree.leaves, self._locations[self._tree.leaves]
        # In whole millionths, so that a sum does not depend on the order of nodes.
        weight = np.bincount(of, np.rint(topology.weight[leaves] * 1e6), self._size) / 1e6
        self._weight = np.where(weight > 0, weight, 1.0)  # without servers nothing goes there
        self._servers = np.bincount(of, minlength=self._size)
        # Domains that no node stands in any more are still known to the topology.
        known = _location_digests(topology)[: self._size]
        self._ties = scores31(digest64(stream, "locations"), known)
        self._place = np.zeros(topology.size, np.int64)
        fresh = np.diff(of, prepend=NO_DOMAIN) != 0
        ordinal = np.arange(len(of))
        self._place[leaves] = ordinal - np.maximum.accumulate(np.where(fresh, ordinal, 0))

    def keys(
        self,
        need: ReplicaRequest,
        wishes: list[Key],
        scoped: NDArray[np.int64],
        loads: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    ) -> list[Key]:
        """Rank the candidates for the next replica.

        By group, the user's preferences and load of the location, then the server by `scoped` load
        or, range-aware, by all `loads` in turn.
        """
        view, of = self._view, self._locations
        alive = [n for n in need.kept if n != need.replaces and not view.topology.is_dead(n)]
        held = np.bincount(of[np.asarray(alive, np.int64)], minlength=self._size)
        live = np.bincount(of[self._usable], view.load[self._usable], self._size)
        total = live.astype(np.int64) + held
        load, group = total / self._weight, self._groups(need, held)
        place = mix31(self._ties + total)
        weight = view.topology.weight
        first = mix31(self._seeds(np.array([need.shard])) + need.slot)

        def late(found: Nodes, lot: NDArray[np.int64]) -> NDArray[np.int64]:
            """Count how far each server comes behind the one drawn."""
            return (self._place[found] - lot) % np.maximum(self._servers, 1)[of[found]]

        def beaten(found: Nodes) -> NDArray[np.generic]:
            """All but two drawn by lot, and of these the more loaded."""
            order = late(found, first)
            drawn = [int(order.argmin())]
            order = late(found, mix31(first))
            order[drawn] = self._servers.max()
            drawn.append(int(order.argmin()))
            values = np.full(len(found), np.inf)
            values[drawn] = (scoped / weight)[found[drawn]]
            return values

        server: list[Key] = [beaten]
        if self._aware:
            server = [(counts / weight).__getitem__ for counts in loads]
        location: list[Key] = [
            lambda found: group[of[found]],
            *wishes,
            lambda found: load[of[found]],
            lambda found: place[of[found]],
        ]
        return [*location, *server, lambda found: late(found, first)]

    def place(self, draft: StreamDraft, scoped: NDArray[np.int64]) -> bool:
        """Do both steps for all shards of an empty stream, as `keys` would rank them.

        False if that takes more: range-aware, or a server can be full.
        """
        tree, spec, topology = self._tree, draft.spec, self._view.topology
        if (self._view.room()[tree.leaves] < spec.shards).any():
            return False
        if self._aware or (self._view.room()[tree.leaves] < spec.shards).any():
            return False
        factor, wanted = spec.replication_factor, spec.shards * spec.replication_factor
        first, end, above = tree.elements[:3]
        at = above[tree.domains :] - above[tree.domains]
        here = np.arange(above[tree.domains], tree.domains)
        domains = np.zeros(len(here), np.int64)
        domains[at] = self._locations[tree.leaves]
        *_, locations = kernels.run(
            kernels.choose_locations,
            (len(here) + wanted) * len(here).bit_length(),
            end[here] - first[here],
            np.bincount(at, self._view.load[tree.leaves]).astype(np.int64),
            self._weight[domains],
            self._ties[domains],
            self._cap(factor),
            factor,
            np.full(wanted, EMPTY, np.int64),
        )
        if (locations == EMPTY).any():
            return False
        *_, servers = kernels.run(
            kernels.draw_servers,
            wanted * _LOOKED_AT,
            np.append(first[here], len(first)) - tree.domains,
            scoped[tree.leaves],
            topology.weight[tree.leaves],
            self._seeds(np.arange(spec.shards)),
            locations,
            factor,
            np.full(wanted, EMPTY, np.int64),
        )
        draft.enter(draft.with_leaders(tree.leaves[servers]))
        return True

    def _seeds(self, shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """A hash of each shard for its lots."""
        return scores31(digest64(self._stream, "lots"), shards.astype(np.uint64))

    def _cap(self, factor: int) -> int:
        """Replicas of a shard from which on a location is put aside."""
        live = int((self._servers > 0).sum())
        most = factor // 2 if live == 2 else (factor + 1) // 2 - 1
        return max(most, 1) if live > 1 else factor

    def _groups(self, need: ReplicaRequest, held: NDArray[np.int64]) -> NDArray[np.int64]:
        """The group of each location."""
        over = held >= self._cap(need.replication_factor)
        groups = np.where(over, _OVERFLOW, _MAIN)
        if need.replaces != EMPTY and self._view.topology.eligible[need.replaces]:
            groups[self._locations[need.replaces]] += 1
        return groups


def _location_digests(topology: Topology) -> NDArray[np.uint64]:
    """A hash of every domain's path."""
    return topology.derive(
        "digests of locations", lambda: digests64(("location",), map(str, topology.domains))
    )
