"""Looks at a cluster until two brokers in a row show the same, for what is written down once.

A broker that lags behind the controller shows an earlier cluster: right after topics were created
or a broker has died. Brokers are therefore asked in turn. The live bridge waits for the same reason
until all looks of a while agree (`memory.SETTLE_MS`); it may be wrong for a look, an imported file
would stay wrong.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol, TypeVar

from streaming.errors import BrokerUnreachable, StreamingError
from streaming.kafka_bridge.admin_client import ClusterAdmin
from streaming.kafka_bridge.observer import Observer
from streaming.kafka_bridge.snapshot import Broker, Partition, Snapshot, Topic

# A broker that lags applies the controller's records within moments, if nothing is wrong with it.
PAUSE_SECONDS = 1.0
# What is said of a difference that stays.
_NAMED_MAX = 5

_Thing = TypeVar("_Thing", Broker, Topic)


class LooksDiffer(StreamingError):
    """No two looks in a row agreed; the message names what differed last."""

    exit_code = 3


class TurningAdmin(ClusterAdmin, Protocol):
    """An admin whose questions are answered by a broker that is chosen."""

    def turn_to(self, broker: int | None) -> None:
        """Connect anew, and ask this broker; None: any of them."""


def look_until_settled(
    admin: TurningAdmin,
    timeout_seconds: float,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> Snapshot:
    """Look until two brokers in a row agree on brokers, topics, replicas and leaders.

    Each look is whole and on a new connection; where one broker is live it answers both. Raises
    LooksDiffer after `timeout_seconds`, and as `ClusterAdmin` where the first look fails, or the
    last one.
    """
    until = clock() + timeout_seconds
    before, answered, asked = _look(admin, None), None, None
    failure: StreamingError = LooksDiffer("there was no time for a second look")
    while True:
        wait(PAUSE_SECONDS)
        asked = _next(before.live(), asked)
        try:
            now = _look(admin, asked)
        except BrokerUnreachable as error:
            # One that dies is asked until it is fenced.
            failure = error
        else:
            found = [*find_differences(before, now)]
            # Nobody knows who has answered the first look.
            if not found and (answered not in (None, asked) or len(now.live()) < 2):
                return now
            before, answered = now, asked
            failure = _describe(found, timeout_seconds) if found else failure
        if clock() >= until:
            raise failure


def find_differences(one: Snapshot, other: Snapshot) -> Iterator[str]:
    """Yield a sentence for each broker and topic of which two looks show different things.

    Replicas in sync come and go, and sizes grow: they count as the same.
    """
    yield from _compare("broker", one.brokers, other.brokers, _compare_brokers)
    yield from _compare("topic", one.topics, other.topics, _compare_topics)


def _next(live: Collection[int], last: int | None) -> int | None:
    """Return the broker whose turn it is after the last one, in the order of their ids."""
    later = [each for each in live if last is None or each > last]
    return min(later or live, default=None)


def _look(admin: TurningAdmin, broker: int | None) -> Snapshot:
    admin.turn_to(broker)
    return Observer(admin).look(int(time.time() * 1000), throttles=False)


def _describe(found: list[str], timeout_seconds: float) -> LooksDiffer:
    more = len(found) - _NAMED_MAX
    shown = [*found[:_NAMED_MAX], *([f"and {more} more"] if more > 0 else [])]
    return LooksDiffer(
        f"looks at the cluster did not agree for {timeout_seconds:g} s, because it changes or a "
        f"broker lags: {'; '.join(shown)}. Try again when it is at rest"
    )


def _compare(
    what: str,
    one: Mapping[int, _Thing] | Mapping[str, _Thing],
    other: Mapping[int, _Thing] | Mapping[str, _Thing],
    compare: Callable[[_Thing, _Thing], str],
) -> Iterator[str]:
    left = {str(key): each for key, each in one.items()}
    right = {str(key): each for key, each in other.items()}
    for key in sorted(left.keys() | right.keys()):
        a, b = left.get(key), right.get(key)
        if a is None or b is None:
            yield f"{what} {key} is in one of two looks only"
        elif why := compare(a, b):
            yield f"{what} {key} {why}"


def _compare_brokers(one: Broker, other: Broker) -> str:
    if one.fenced != other.fenced:
        return "is fenced in one of two looks"
    return "" if one == other else "has two addresses or racks"


def _compare_topics(one: Topic, other: Topic) -> str:
    if one.uid != other.uid:
        return "was made anew between two looks"
    counts = len(one.partitions), len(other.partitions)
    if counts[0] != counts[1]:
        return f"has {counts[0]} partitions in one look and {counts[1]} in the next"
    if (one.min_in_sync, one.policy) != (other.min_in_sync, other.policy):
        return "has another configuration in the next look"
    pairs = zip(one.partitions, other.partitions, strict=True)
    moved = [str(a.number) for a, b in pairs if _place(a) != _place(b)]
    if not moved:
        return ""
    named = ", ".join([*moved[:_NAMED_MAX], *(["…"] if len(moved) > _NAMED_MAX else [])])
    return f"has other replicas or leaders of partition {named} in the next look"


def _place(partition: Partition) -> tuple[object, ...]:
    reassigned = partition.adding, partition.removing
    return partition.listed, partition.leader, *reassigned
