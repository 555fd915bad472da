"""Assignments at rest, as columns: what a rebuild of a large state mostly reads.

An assignment is at rest when no move is under way on it and its replicas have no roles. A million
of them, one Python object each, would take most of a rebuild; so they come in chunks of columns,
become arrays at once, and enter the table in one step.
"""

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from placement.assigned import hash_shards
from placement.model import Settled
from placement.state import State

if TYPE_CHECKING:
    from numpy.typing import NDArray


class SettledColumns:
    """Gathers chunks as arrays, and puts them into a state whose nodes and streams are there."""

    def __init__(self, nodes: Mapping[str, int]) -> None:
        """`nodes`: index of each node."""
        self._nodes = nodes
        self._streams: dict[str, int] = {}
        self._names: list[str] = []
        self._chunks: list[tuple[NDArray[np.int64], ...]] = []

    def add(self, chunk: Settled) -> None:
        """Take a chunk. Raises KeyError for a node that is not known."""
        known, streams = self._nodes, self._streams
        for name in dict.fromkeys(chunk.streams):
            if name not in streams:
                streams[name] = len(streams)
                self._names.append(name)
        columns = (
            map(streams.__getitem__, chunk.streams),
            chunk.shards,
            chunk.epochs,
            map(len, chunk.replicas),
            map(known.__getitem__, chain.from_iterable(chunk.replicas)),
        )
        self._chunks.append(tuple(np.fromiter(column, np.int64) for column in columns))

    def longest(self) -> dict[str, int]:
        """By stream the length of its longest list."""
        lengths = np.zeros(len(self._names), np.int64)
        for streams, _, _, counts, _ in self._chunks:
            np.maximum.at(lengths, streams, counts)
        return dict(zip(self._names, lengths.tolist(), strict=True))

    def fill(self, state: State) -> None:
        """Put all of it into the table. Raises KeyError or IndexError when a stream or one of its
        shards does not exist."""
        if not self._names:
            return
        columns = [np.concatenate(parts) for parts in zip(*self._chunks, strict=True)]
        streams, numbers, epochs, counts, nodes = columns
        self._chunks.clear()
        shards = np.empty(len(streams), np.int64)
        order = np.argsort(streams, kind="stable")
        ends = np.cumsum(np.bincount(streams, minlength=len(self._names)))
        for index, mine in enumerate(np.split(order, ends[:-1])):
            own = np.asarray(state.streams[self._names[index]].shards, np.int64)
            shards[mine] = own[numbers[mine]]
        state.table.fill(shards, counts, nodes)
        state.table.epoch[shards] = epochs
        hash_shards(state, shards, counts, nodes, np.uint64(0))
