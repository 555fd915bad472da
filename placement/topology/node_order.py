"""The natural order of node ids, kept while nodes come and go: the only order of nodes there is."""

from bisect import bisect_left, insort

import numpy as np
from numpy.typing import NDArray

from placement.model import natural_key


class NodeOrder:
    """Ids in order, each with its node's index; every index has one."""

    def __init__(self) -> None:
        self._ids: list[tuple[tuple[tuple[int, int, str], ...], int]] = []
        self._ranks: NDArray[np.int64] | None = None

    def insert(self, node: int, node_id: str, before: str | None = None) -> None:
        """Insert a node at the index, in place of the one called `before`."""
        if before is not None:
            del self._ids[bisect_left(self._ids, (natural_key(before), node))]
        insort(self._ids, (natural_key(node_id), node))
        self._ranks = None

    def copy(self) -> "NodeOrder":
        """Copy the order; neither sees what the other does from then on."""
        made = NodeOrder()
        made._ids, made._ranks = [*self._ids], self._ranks
        return made

    def ranks(self) -> NDArray[np.int64]:
        """Compute the rank of each node by its index."""
        if self._ranks is None:
            self._ranks = np.empty(len(self._ids), np.int64)
            self._ranks[[node for _, node in self._ids]] = np.arange(len(self._ids))
        return self._ranks
