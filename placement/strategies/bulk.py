"""`spread` for many shards at once, over arrays: the order of `choose` for streams whose policy has
no rules of its own, which `placement.kernels` walks down the tree of domains."""

import numpy as np
from numpy.typing import NDArray

from placement import kernels
from placement.choice import digest64, scores
from placement.domain_tree import domain_tree
from placement.model import StreamSpec
from placement.policy import Policy
from placement.strategies.base import View, candidates
from placement.strategies.leaders import elect

# Shards from which one walk over the tree costs less than asking for every replica.
BULK_FROM = 128

# Shards up to which leaders are also chosen exactly; beyond, the search finds no end and those of
# the walk are within a few of their share.
_ELECTED_UP_TO = 500


def spread_in_bulk(spec: StreamSpec, policy: Policy, view: View) -> list[list[int]] | None:
    """Nodes of every slot of every shard, leader first, counted in `view`; None where some slot
    finds no node."""
    topology = view.topology
    tree = domain_tree(topology)
    left = np.where(candidates(policy, view), view.room(), 0)
    # In whole millionths, so that a sum does not depend on the order of nodes.
    weight = np.maximum(tree.sums(np.rint(topology.weight * 1e6)) / 1e6, np.finfo(float).tiny)
    hashes = scores(digest64(spec.stream, "bulk"), np.arange(spec.shards, dtype=np.uint64))
    out = np.full(spec.shards * spec.replication_factor, -1, np.int64)
    *_, out = kernels.run(
        kernels.spread_shards,
        len(out) * tree.looked_at,
        tree.elements,
        np.stack([weight, tree.sums(view.load), tree.sums(view.leaders)]),
        tree.sums(left).astype(np.int64),
        np.where(tree.sums(left > 0) > 0, 0, kernels.NEVER),
        (hashes >> np.uint64(33)).astype(np.int64),
        spec.replication_factor,
        out,
    )
    if (out < 0).any():
        return None
    placed: NDArray[np.int64] = tree.leaves[out - tree.domains]
    view.add_all(placed)
    shards = placed.reshape(spec.shards, spec.replication_factor)
    nodes: list[list[int]] = _led(shards, view).tolist()
    return nodes


def _led(shards: NDArray[np.int64], view: View) -> NDArray[np.int64]:
    """The shards with their leaders in front: those of the walk, or, for fewer shards, those of
    the exact search where they are more even."""
    walked = view.fork()
    walked.leaders = walked.leaders + np.bincount(shards[:, 0], minlength=len(view.leaders))
    elected = view.fork()
    if len(shards) <= _ELECTED_UP_TO:
        leaders = np.array(elect(shards.tolist(), elected))
        if _unevenness(elected) < _unevenness(walked):
            position = np.argmax(shards == leaders[:, None], axis=1)
            rows = np.arange(len(shards))
            shards[rows, position] = shards[:, 0]
            shards[:, 0] = leaders
            walked = elected
    view.leaders = walked.leaders
    return shards


def _unevenness(view: View) -> float:
    """Between the node that leads most for its weight and the one that leads least."""
    leads = (view.leaders / view.topology.weight)[view.topology.eligible]
    return float(leads.max() - leads.min())
