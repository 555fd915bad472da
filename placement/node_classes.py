"""Nodes by class: those in one place with equal tags, which rules that count domains hold equal.

A fleet of ten thousand nodes has a few hundred classes. Asked about these, a rule answers for all
nodes, by the same code and in a time that the number of nodes does not matter for.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.assignments import distinct
from placement.topology import LEAF, Scope, Topology


@dataclass(frozen=True, slots=True, eq=False)
class NodeClasses:
    """`of` is the class of each node, `of_node` the same as a list; `sample` one node of each
    class, `sampled` the fleet of these; those of class c are `members[begin[c] : begin[c + 1]]`."""

    of: NDArray[np.int64]
    sample: NDArray[np.int64]
    members: NDArray[np.int64]
    begin: NDArray[np.int64]
    of_node: list[int]
    sampled: Topology

    @property
    def count(self) -> int:
        """Number of classes."""
        return len(self.sample)

    def nodes(self, its_class: int) -> NDArray[np.int64]:
        """The nodes of a class."""
        return self.members[self.begin[its_class] : self.begin[its_class + 1]]

    def counts(self, kinds: NDArray[np.int64], most: int) -> NDArray[np.int64]:
        """How many nodes of each class are of each kind up to `most`, one row per class."""
        size = most + 1
        found = np.bincount(self.of * size + kinds, minlength=self.count * size)
        return found.reshape(self.count, size)

    def topology(self, usable: NDArray[np.bool_]) -> Topology:
        """The fleet as if each class were a node, which is eligible if one of its nodes is
        `usable`."""
        return self.sampled.with_eligible(np.bincount(self.of[usable], minlength=self.count) > 0)


def node_classes(topology: Topology, tags: frozenset[str]) -> NodeClasses:
    """The classes by whole path and by the values of these tags; kept while no node's attributes
    change."""
    key = ("classes", tags)
    known: NodeClasses | None = topology.derived.get(key)
    if known is None:
        scopes = [LEAF, *(Scope(tag=tag) for tag in sorted(tags))]
        columns = [topology.domain_of(scope).astype(np.int64) for scope in scopes]
        sample, of = distinct(np.stack(columns, axis=1))
        begin = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=len(sample)))])
        members, sampled = np.argsort(of, kind="stable"), topology.sampled(sample)
        known = NodeClasses(of, sample, members, begin, of.tolist(), sampled)
        topology.derived[key] = known
    return known
