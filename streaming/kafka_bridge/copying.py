"""Measures how much of a plan's copies is done, in bytes and partitions, and estimates the rest."""

from collections.abc import Mapping
from dataclasses import dataclass

from streaming.kafka_bridge.admin_client import DescribedLogs, PartitionId
from streaming.kafka_bridge.waves import Standing, Wave

Sizes = Mapping[PartitionId, int]
"""The bytes of one replica, by partition."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a direction is: `wave` of `waves`, from 1; partitions of this wave; bytes of all."""

    wave: int
    waves: int
    partitions_done: int
    partitions: int
    bytes_done: int
    bytes_total: int


def copied_bytes(wave: Wave, sizes: Sizes) -> int:
    """Return the bytes that a wave copies."""
    return sum(len(change.added) * sizes.get(key, 0) for key, change in wave.items())


def arrived_bytes(
    wave: Wave, standing: Standing, sizes: Sizes, logs: Mapping[int, DescribedLogs]
) -> int:
    """Return the bytes of a wave that have arrived: all of what is done, and what the log
    directories of the targets hold of what runs."""
    arrived = sum(len(wave[key].added) * sizes.get(key, 0) for key in standing.done)
    for key in standing.running:
        for broker in wave[key].added:
            held = logs[broker].sizes.get(key, 0) if broker in logs else 0
            arrived += min(held, sizes.get(key, 0))
    return arrived


def seconds_left(first: Progress, now: Progress, elapsed_seconds: float) -> float | None:
    """Estimate the time that is left from the bytes that arrived since the first measure.

    None until some have, and when nothing is left.
    """
    arrived = now.bytes_done - first.bytes_done
    if arrived <= 0 or elapsed_seconds <= 0 or now.bytes_done >= now.bytes_total:
        return None
    return (now.bytes_total - now.bytes_done) * elapsed_seconds / arrived
