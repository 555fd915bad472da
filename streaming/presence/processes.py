"""Lists the processes of a cell for people: who is active, who stands by, and how far they are."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import TopicPartition

from schemas.inputs import ACTIVE
from schemas.topics import NODES, full_name
from streaming.brokers import (
    CONNECT_TIMEOUT_SECONDS,
    find_offset,
    make_reader,
    read_watermarks,
)
from streaming.presence.tick_log import PARTITION, read_tick
from streaming.presence.ticks import TickSeen

# Ticks come every second or more often.
SEEN_WITHIN_MS = 5_000
# Of a partition with 20,000 heartbeats a second the newest seconds are enough.
_RECORDS_MAX = 200_000


@dataclass(frozen=True, slots=True)
class ProcessSeen:
    """Describes a process. `seconds_ago`: since its last tick, by this machine's clock or the log's
    own time, see `read_processes`; `proven`: the last commit whose state a standby has."""

    instance: str
    role: str
    seconds_ago: float
    proven: int | None = None


def read_processes(
    bootstrap: str,
    prefix: str,
    options: Mapping[str, str],
    writer_epoch: int,
    at_ms: int,
    watch_seconds: float = 0.0,
) -> list[ProcessSeen]:
    """List the processes that have written a tick within SEEN_WITHIN_MS, the active one first.

    `writer_epoch`: of the last commit; an earlier writer that goes on ticking is none. `at_ms`: now
    by this machine's clock; where it is behind the brokers' the log's own time counts.
    `watch_seconds`: how long ticks are waited for where none is so new, as with a clock that is
    ahead. Raises BrokerUnreachable.
    """
    at = (bootstrap, full_name(NODES, prefix), options)
    ticks, newest_ms = _read_ticks(*at, at_ms - SEEN_WITHIN_MS, watch_seconds)
    now = max(at_ms, newest_ms) if newest_ms >= at_ms - SEEN_WITHIN_MS else newest_ms
    recent = (tick for tick in ticks if now - tick.at <= SEEN_WITHIN_MS)
    seen = {tick.instance: tick for tick in recent if tick.instance}
    found = [
        ProcessSeen(name, tick.role, max(now - tick.at, 0) / 1000, tick.proven)
        for name, tick in sorted(seen.items())
        if tick.role != ACTIVE or tick.writer_epoch >= writer_epoch
    ]
    return sorted(found, key=lambda each: each.role != ACTIVE)


def _read_ticks(
    bootstrap: str, topic: str, options: Mapping[str, str], since_ms: int, watch_seconds: float
) -> tuple[list[TickSeen], int]:
    """Read the ticks since a time, or, where there are none, those of the next seconds; and when
    the newest record of any kind was appended."""
    reader = make_reader(bootstrap, options)
    try:
        _, end = read_watermarks(reader, topic, PARTITION)
        position = max(find_offset(reader, topic, PARTITION, since_ms), end - _RECORDS_MAX)
        reader.assign([TopicPartition(topic, PARTITION, position)])
        ticks: list[TickSeen] = []
        newest_ms, is_watching = 0, False
        deadline = time.monotonic() + CONNECT_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            if position >= end and not is_watching:
                if ticks:
                    break
                is_watching, deadline = True, time.monotonic() + watch_seconds
            for message in reader.consume(10_000, timeout=0.1):
                offset = message.offset()
                assert offset is not None
                position = offset + (message.error() is None)
                if message.error() is None:
                    newest_ms = max(newest_ms, message.timestamp()[1])
                    tick = read_tick(message)
                    ticks += [] if tick is None else [tick]
        return ticks, newest_ms
    finally:
        reader.close()
