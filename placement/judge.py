"""A whole stream against its rules: which shards break which.

Placement is checked with it before it is answered, adoption after; diagnosis asks shard by shard.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY
from placement.model import StreamSpec
from placement.policy import Policy
from placement.rules import STREAM_RULES, Finding, Rule, Standing, Strength
from placement.topology import Topology

# Shards from which a look at all of them as arrays costs less than one at each.
_SIFTED_FROM = 64


def judged(
    rules: Sequence[Rule],
    strength: Strength,
    shards: Sequence[Sequence[int]],
    spec: StreamSpec,
    policy: Policy,
    topology: Topology,
    load: NDArray[np.int64] | None = None,
) -> Iterator[tuple[Rule, list[int], Finding]]:
    """Each rule of this strength that some shard breaks, with those shards and the first finding.

    A rule of the stream is judged against the stream's other replicas; a rule of a shard once for
    every distinct list of nodes, because the shards of a colocated stream share one.
    """
    held = [[node for node in nodes if node != EMPTY] for nodes in shards]
    for rule in rules:
        if rule.strength is not strength:
            continue
        wide = isinstance(rule, STREAM_RULES)
        everything = [node for nodes in held for node in nodes] if wide else []
        known: dict[tuple[int, ...], list[Finding]] = {}
        broken: list[int] = []
        first: Finding | None = None
        begin = 0
        doubtful = _doubtful(
            rule, shards, Standing(topology, spec.replication_factor, (), nodes=policy.nodes)
        )
        for shard, nodes in enumerate(held):
            if not doubtful[shard]:
                continue
            key, end = tuple(nodes), begin + len(nodes)
            if wide or key not in known:
                others = everything[:begin] + everything[end:]
                standing = Standing(
                    topology,
                    policy.copies(spec.replication_factor),
                    nodes,
                    others,
                    policy.nodes,
                    spec.shards,
                    [slot for slot, node in enumerate(shards[shard]) if node != EMPTY],
                    load=load,
                )
                known[key] = rule.violations(standing)
            if known[key]:
                broken.append(shard)
                first = first or known[key][0]
            begin = end
        if first:
            yield rule, broken, first


def _doubtful(rule: Rule, shards: Sequence[Sequence[int]], standing: Standing) -> Sequence[bool]:
    """Which shards the rule has to be asked about one by one."""
    sift = getattr(rule, "doubtful", None)
    whole = len({len(nodes) for nodes in shards}) == 1 and all(EMPTY not in n for n in shards)
    if sift is None or len(shards) < _SIFTED_FROM or not whole or not shards[0]:
        return [True] * len(shards)
    mask: list[bool] = sift(np.asarray(shards, np.int64), standing).tolist()
    return mask
