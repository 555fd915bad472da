"""The slots of a shard whose replication factor changes.

Who goes when it falls is repair's answer, copy by copy (`Wants`); where new copies go when it rises
is the strategy's. What is here is only that copies with a role of their own, which stand in the
last slots, go on standing there.
"""

from collections.abc import Sequence

from placement.assignments import EMPTY


def resized(nodes: Sequence[int], before: int, after: int, aside: int) -> list[int]:
    """The nodes by slot for `after` copies, where `before` were asked for: with EMPTY in front of
    the `aside` copies kept in a role of their own where the shard had them all."""
    if after <= before or not aside or len(nodes) < before:
        return list(nodes)
    plain = before - aside
    return [*nodes[:plain], *[EMPTY] * (after - before), *nodes[plain:]]
