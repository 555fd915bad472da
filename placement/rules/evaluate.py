"""Judges many shards by rules: which shards break which.

`find_breaches` judges one stream that is placed or adopted; `broken_rows` judges rows of shards by
one rule for diagnosis. Shards that are plainly healthy are passed over, equal ones are asked once.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY, exceeds_factor, find_distinct
from placement.rules.rule import (
    Rule,
    RuleContext,
    RuleFinding,
    Strength,
)


def broken_rows(
    rule: Rule,
    nodes: NDArray[np.int64],
    slots: NDArray[np.int64],
    shards: NDArray[np.int64],
    everywhere: RuleContext,
) -> dict[int, list[RuleFinding]]:
    """Find the rows that break the rule, with their findings.

    - `nodes`, `slots`: a row for each shard.
    - `shards`: by row, the number of shards of its stream.
    - `everywhere`: the rest of the rule's context.
    """
    doubted = rule.may_violate(nodes, everywhere)
    doubted = doubted | exceeds_factor(slots, everywhere.replication_factor)
    suspects = np.flatnonzero(doubted)
    if not len(suspects):
        return {}
    held, at = nodes[suspects], slots[suspects]
    if rule.counts_domains and rule.scope is not None:
        alike = np.sort(everywhere.topology.domain_of(rule.scope)[held], axis=1).astype(np.int64)
    else:
        alike = np.concatenate([held, at, shards[suspects, None]], axis=1)
    first, same = find_distinct(alike)
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


# Shards from which a look at all of them as arrays costs less than one at each.
_SIFTED_FROM = 64


def find_breaches(
    rules: Sequence[Rule],
    strength: Strength,
    shards: Sequence[Sequence[int]],
    everywhere: RuleContext,
) -> Iterator[tuple[Rule, list[int], RuleFinding]]:
    """Yield each rule of this strength that some shard breaks.

    With the numbers of those shards and the first finding. `everywhere` is the rest of the rules'
    context. A rule of the stream is evaluated with the stream's other replicas; a rule of a shard
    once for every distinct list of nodes, because the shards of a colocated stream share one.
    """
    asked = [rule for rule in rules if rule.strength is strength]
    rows = _stack_complete(shards) if asked else None
    for rule in asked:
        found = _find_broken(rule, shards, rows, everywhere)
        if found:
            yield rule, list(found), next(iter(found.values()))


def _find_broken(
    rule: Rule,
    shards: Sequence[Sequence[int]],
    rows: NDArray[np.int64] | None,
    everywhere: RuleContext,
) -> dict[int, RuleFinding]:
    """Find the shards that break one rule, with the first finding of each."""
    wide = rule.spans_stream
    everything = [node for nodes in shards for node in nodes if node != EMPTY] if wide else []
    if wide and rule.is_kept_throughout(replace(everywhere, replicas=everything)):
        return {}
    suspects: Iterable[int] = range(len(shards))
    whole = rows is not None and rows.shape[1] <= everywhere.replication_factor
    if rows is not None and whole and not wide:
        suspects = np.flatnonzero(rule.may_violate(rows, everywhere)).tolist()
    known: dict[tuple[int, ...], list[RuleFinding]] = {}
    broken: dict[int, RuleFinding] = {}
    begin = 0
    for shard in suspects:
        held = [node for node in shards[shard] if node != EMPTY]
        key, end = tuple(held), begin + len(held)
        if wide or key not in known:
            known[key] = rule.violations(
                replace(
                    everywhere,
                    replicas=held,
                    stream_nodes=everything[:begin] + everything[end:],
                    slots=[slot for slot, node in enumerate(shards[shard]) if node != EMPTY],
                )
            )
        if known[key]:
            broken[shard] = known[key][0]
        begin = end
    return broken


def _stack_complete(shards: Sequence[Sequence[int]]) -> NDArray[np.int64] | None:
    """Stack many complete shards as rows; None if they are few or of unequal lengths."""
    if len(shards) < _SIFTED_FROM or not shards[0]:
        return None
    size = len(shards[0])
    flat = np.fromiter(chain.from_iterable(shards), np.int64)
    if len(flat) != size * len(shards) or (flat == EMPTY).any() or set(map(len, shards)) != {size}:
        return None
    return flat.reshape(-1, size)
