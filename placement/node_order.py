"""The order of nodes: by `natural_key` of their ids, as ranks by index."""

from bisect import bisect_left, insort

import numpy as np
from numpy.typing import NDArray

from placement.model import natural_key


class NodeOrder:
    """Ids in order, each with its node's index; every index has one."""

    def __init__(self) -> None:
        self._ids: list[tuple[tuple[tuple[int, int, str], ...], int]] = []
        self._ranks: NDArray[np.int64] | None = None

    def put(self, node: int, node_id: str, before: str | None = None) -> None:
        """The index is the node's, no longer that of the one called `before`."""
        if before is not None:
            del self._ids[bisect_left(self._ids, (natural_key(before), node))]
        insort(self._ids, (natural_key(node_id), node))
        self._ranks = None

    def ranks(self) -> NDArray[np.int64]:
        """Rank of each node by its index."""
        if self._ranks is None:
            self._ranks = np.empty(len(self._ids), np.int64)
            self._ranks[[node for _, node in self._ids]] = np.arange(len(self._ids))
        return self._ranks
