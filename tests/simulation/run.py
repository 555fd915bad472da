"""Many seeds, on several processes: which fail, and how fast they go."""

import multiprocessing
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.simulation.history import Failure, History
from tests.simulation.mutations import SEEDS_MAX, seeds_to_catch
from tests.simulation.shrink import as_case, shrink

# Seeds that a process plays before it says so.
CHUNK = 20
TELL_SECONDS = 5
# A failure on one line; its story comes at the end.
FAILURE_WIDTH = 300
TOLD_WIDTH = 90


@dataclass(frozen=True, slots=True)
class Played:
    """Results of some seeds.

    Copies made where a fleet settled, and the fewest possible; failures as (seed, message).
    """

    seeds: int
    batches: int
    copies: int
    fewest: int
    failures: tuple[tuple[int, str], ...]


def play(seeds: Iterable[int]) -> Played:
    """Play histories one after the other."""
    count, batches, copies, fewest, failures = 0, 0, 0, 0, []
    for seed in seeds:
        count += 1
        try:
            history = History(seed).play()
            batches += len(history.blocks)
            movement = history.story.log.movement
            movement.end()
            copies += movement.copies
            fewest += movement.fewest
        except Failure as failure:
            failures.append((seed, str(failure)))
            batches += len(failure.blocks)
    return Played(count, batches, copies, fewest, tuple(failures))


def play_many(first: int, count: int, jobs: int) -> Iterator[Played]:
    """Play `count` seeds from `first` on in `jobs` processes; yields as they are done."""
    starts = range(first, first + count, CHUNK)
    chunks = [range(start, min(start + CHUNK, first + count)) for start in starts]
    if jobs == 1:
        yield from map(play, chunks)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap_unordered(play, chunks)


def report(first: int, count: int, jobs: int, show: int) -> bool:
    """Play, tell of the progress, and print failing seeds; whether all went well. The first `show`
    failures are shrunk and printed as text cases."""
    started, told_at, seeds, batches, failed = time.monotonic(), 0.0, 0, 0, []
    copies = fewest = 0
    for played in play_many(first, count, jobs):
        seeds += played.seeds
        batches += played.batches
        copies += played.copies
        fewest += played.fewest
        for seed, what in played.failures:
            print(what.splitlines()[0][:FAILURE_WIDTH])
            failed.append(seed)
        elapsed = time.monotonic() - started
        if seeds == count or elapsed - told_at > TELL_SECONDS:
            told_at, rate = elapsed, seeds / elapsed
            print(f"{seeds} of {count} seeds, {len(failed)} failures, {rate:.1f} seeds/s")
    print(f"{batches} commands, {jobs} processes, {elapsed:.0f} s")
    print(f"{copies} copies where fleets settled, {fewest} at least were needed")
    for seed in sorted(failed)[:show]:
        try:
            History(seed).play()
        except Failure as failure:
            print(f"\n{as_case(shrink(failure), f'Seed {seed}, shrunk.')}")
    return not failed


def report_mutations(names: Iterable[str]) -> bool:
    """Put every fault into the planner, one after the other, and count the seeds to find it.

    Returns whether all are found.
    """
    caught_all = True
    for name in names:
        caught = seeds_to_catch(name)
        caught_all &= caught is not None
        count, what = caught or (SEEDS_MAX, "NOT FOUND")
        told = what.splitlines()[0][:TOLD_WIDTH]
        print(f"{name:36} {count:4} seeds  {told}", flush=True)
    return caught_all
