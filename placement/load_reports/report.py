"""A report of loads in columns, and the bands by which changes are told from noise.

One report may name a thousand shards, and a thousand nodes send one every half a minute: nothing
here or behind it takes time in Python for each shard.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placement.model import Amounts, LoadsReported

Integers = NDArray[np.int64]

# Stands for an amount that a report does not name.
UNSAID = -1
# After so many half-lives a last report has lost all weight, and the shard is taken for gone.
EXPIRY_HALF_LIVES = 10
# A word that the planner ignored, as the node did not hold the shard yet, is said again by then.
REPEAT_HALF_LIVES = 10
# Of one event: with names as long as they may be it stays below the limit of a record, a megabyte.
FIGURES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class LoadBands:
    """From where on a change of a smoothed load is passed on, or not believed.

    `relative` is a share of what was passed on last, `share` one of the node's capacity. A report
    more than `suspicion_factor` times what is known counts after `agreeing` like it in a row.
    """

    half_life_ms: int = 120_000
    relative: float = 0.20
    share: float = 0.01
    suspicion_factor: float = 100.0
    agreeing: int = 3

    @property
    def expiry_ms(self) -> int:
        """Return for how long a shard is kept that its node reports no more."""
        return EXPIRY_HALF_LIVES * self.half_life_ms

    @property
    def repeat_ms(self) -> int:
        """Return the time in which each word on a shard that is still reported is said again."""
        return REPEAT_HALF_LIVES * self.half_life_ms


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a node says of some of its shards, each at most once.

    `streams` are the names that occur, with the `uids` that go with them; `codes` and `shards` say
    of which shard each column of `amounts` is, a row to a resource. `at`: append time in ms.
    """

    at: int
    node_id: str
    incarnation: str
    sequence: int
    streams: Sequence[str]
    uids: Sequence[str | None]
    codes: Integers
    shards: Integers
    resources: Sequence[str]
    amounts: Integers
    capacities: Amounts = ()

    @classmethod
    def of(
        cls,
        at: int,
        life: tuple[str, str, int],
        shards: Iterable[tuple[str, int, str | None, Mapping[str, int]]],
        capacities: Amounts = (),
    ) -> "LoadReport":
        """Make a report of entries: stream, shard, uid, amounts; `life`: node, incarnation,
        sequence."""
        entries = [*shards]
        uids: dict[str, str | None] = {}
        for stream, _, uid, _ in entries:
            uids[stream] = uids.get(stream) or uid
        codes = {stream: code for code, stream in enumerate(uids)}
        names = sorted({name for each in entries for name in each[3]})
        amounts = [[each[3].get(name, UNSAID) for each in entries] for name in names]
        return cls(
            at,
            *life,
            [*uids],
            [*uids.values()],
            np.array([codes[each[0]] for each in entries], np.int64),
            np.array([each[1] for each in entries], np.int64),
            names,
            np.array(amounts, np.int64).reshape(len(names), len(entries)),
            capacities,
        )


def split_event(event: LoadsReported) -> Iterator[LoadsReported]:
    """Cut an event into parts that fit into records, each with some of the shards."""
    figures = max((len(each.amounts) for each in event.loads), default=1)
    many = max(FIGURES_MAX // max(figures, 1), 1)
    for first in range(0, max(len(event.loads), 1), many):
        suspected = event.suspected if first == 0 else ()
        yield replace(event, loads=event.loads[first : first + many], suspected=suspected)
