"""Rows of shards against one rule: what is plainly well is passed over, equal ones are asked once.

`judged` has the words for one stream that is placed; diagnosis asks `broken_rows` for many at once.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from placement.assignments import distinct, out_of_place
from placement.rules import CountsDomains, Finding, Rule, Standing


def broken_rows(
    rule: Rule,
    nodes: NDArray[np.int64],
    slots: NDArray[np.int64],
    shards: NDArray[np.int64],
    everywhere: Standing,
) -> dict[int, list[Finding]]:
    """The rows that break the rule, with what is found in each. `nodes` and `slots` have a row for
    each shard, `shards` says how many its stream has; `everywhere` is the rest of what the rule is
    asked about."""
    sift = getattr(rule, "doubtful", None)
    doubted = np.ones(len(nodes), bool)
    if sift is not None:
        doubted = sift(nodes, everywhere) | out_of_place(slots, everywhere.replication_factor)
    suspects = np.flatnonzero(doubted)
    if not len(suspects):
        return {}
    held, at = nodes[suspects], slots[suspects]
    if isinstance(rule, CountsDomains):
        alike = np.sort(everywhere.topology.domain_of(rule.per)[held], axis=1).astype(np.int64)
    else:
        alike = np.concatenate([held, at, shards[suspects, None]], axis=1)
    first, same = distinct(alike)
    found = [
        rule.violations(
            replace(
                everywhere,
                replicas=held[row].tolist(),
                slots=at[row].tolist(),
                shards=int(shards[suspects[row]]),
            )
        )
        for row in first.tolist()
    ]
    pairs = zip(suspects.tolist(), same.tolist(), strict=True)
    return {row: found[which] for row, which in pairs if found[which]}
