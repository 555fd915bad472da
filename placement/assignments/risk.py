"""Computes the risk of a placement when nodes fail together: copysets, scatter width, probability
of loss.

A copyset is a set of nodes that holds all copies of some shard; data is lost when every node of a
copyset fails at once. Definitions and formula: Cidon et al., "Copysets: Reducing the Frequency of
Data Loss in Cloud Storage" (USENIX ATC 2013).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from math import exp, expm1, fsum, log, log1p

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ScatterWidth:
    """Of the nodes that hold something: with how many others each shares a shard."""

    min: int = 0
    mean: float = 0.0
    max: int = 0


@dataclass(frozen=True, slots=True)
class Risk:
    """Risk of loss when `failed` nodes, drawn at random, fail at once."""

    failed: int
    copysets: int
    scatter_width: ScatterWidth
    loss_probability: float


def risk(shards: Iterable[Sequence[int]], nodes: int, failed: int) -> Risk:
    """Compute the risk of a placement over `nodes` nodes.

    A shard is the list of the nodes that hold its copies; lists may differ in length, their order
    and repeated nodes do not matter. A shard that has no copy left is lost already: the probability
    is then 1.
    """
    copysets = distinct_copysets(shards)
    counts = {size: len(sets) for size, sets in copysets.items()}
    return Risk(
        failed=min(failed, nodes),
        copysets=sum(counts.values()),
        scatter_width=scatter_width(copysets),
        loss_probability=loss_probability(nodes, failed, counts),
    )


def distinct_copysets(shards: Iterable[Sequence[int]]) -> dict[int, NDArray[np.int64]]:
    """Find the distinct sets by their size, one per row, nodes ascending."""
    by_size: dict[int, list[list[int]]] = {}
    for nodes in shards:
        members = sorted(set(nodes))
        by_size.setdefault(len(members), []).append(members)
    found = sorted(by_size.items())
    return {
        size: np.unique(np.asarray(sets, np.int64).reshape(len(sets), size), axis=0)
        for size, sets in found
    }


def partners(copysets: Mapping[int, NDArray[np.int64]]) -> tuple[NDArray[np.int64], ...]:
    """List the nodes that hold something, ascending, and the scatter width of each."""
    held = [sets.ravel() for size, sets in copysets.items() if size]
    members = np.unique(np.concatenate(held)) if held else np.zeros(0, np.int64)
    base = int(members.max(initial=0)) + 1
    pairs = [
        sets[:, one] * base + sets[:, other]
        for size, sets in copysets.items()
        for one in range(size)
        for other in range(size)
        if one != other
    ]
    if not pairs:
        return members, np.zeros(len(members), np.int64)
    shared = np.unique(np.concatenate(pairs)) // base
    return members, np.bincount(np.searchsorted(members, shared), minlength=len(members))


def scatter_width(copysets: Mapping[int, NDArray[np.int64]]) -> ScatterWidth:
    """Compute least, mean and greatest scatter width; nodes that hold nothing have none."""
    _, widths = partners(copysets)
    if not len(widths):
        return ScatterWidth()
    return ScatterWidth(int(widths.min()), float(widths.mean()), int(widths.max()))


def loss_probability(nodes: int, failed: int, copysets: Mapping[int, int]) -> float:
    """Compute the probability that F of N nodes, failing together, take a whole shard.

    It is 1 - prod over R of (1 - C(F, R) / C(N, R)) ** copysets[R]; `copysets` counts distinct sets
    by their size R. Computed in logarithms, so that neither large binomials nor tiny probabilities
    are lost.
    """
    failed = min(failed, nodes)
    survival: list[float] = []
    for size, count in sorted(copysets.items()):
        if not count or size > failed:
            continue
        # C(F, R) / C(N, R), factor by factor: its logarithm stays exact to the last digits.
        lost = fsum(log(failed - taken) - log(nodes - taken) for taken in range(size))
        if lost >= 0:
            return 1.0
        survival.append(count * log1p(-exp(lost)))
    return -expm1(fsum(survival)) if survival else 0.0


def parse_failures(text: str, nodes: int) -> int | None:
    """Parse how many of `nodes` nodes fail: a number, or a percentage, which rounds down.

    None where it is neither, or less than nothing or more than all of them by percentage.
    """
    written = text.strip()
    try:
        number = Decimal(written.removesuffix("%").strip())
    except InvalidOperation:
        return None
    if not number.is_finite() or number < 0:
        return None
    if written.endswith("%"):
        return int(number * nodes / 100) if number <= 100 else None
    return int(min(number, Decimal(nodes))) if number == number.to_integral_value() else None
