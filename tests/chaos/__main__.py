"""`python -m tests.chaos --kills 50 --seed 1`: kill -9 under load, and a table of what it did.

With `--standby` a pair of reconcilers runs; the active one is also paused and asked to hand over.
With `--cluster` they run on a standalone Spark cluster of two workers. What is done there besides:
an executor is killed, frozen (SIGSTOP), or loses its Python; a worker is killed with its executors,
alone, or both at once.
"""

import argparse
import socket
import sys
import tempfile
from pathlib import Path

from tests.chaos.story import Outcome, Story, play


def main() -> int:
    """0 if nothing was lost, doubled or otherwise wrong, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=50, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of their order and moments")
    parser.add_argument("--standby", action="store_true", help="a pair instead of one")
    parser.add_argument("--cluster", action="store_true", help="with executors elsewhere")
    parser.add_argument("--parts", nargs="+", help="only these")
    given = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="placer-chaos-", ignore_cleanup_errors=True) as scratch:
        story = Story(given.kills, given.seed, given.standby, given.cluster, given.parts)
        outcome = play(Path(scratch), port, story, print_now)
    report(outcome, given.seed)
    return 1 if outcome.lost or outcome.doubled or outcome.faults else 0


def print_now(line: str) -> None:
    print(line, flush=True)


def report(outcome: Outcome, seed: int) -> None:
    """The table: kills and recovery by part, and what is wrong in all."""
    everything = [took for each in outcome.recoveries.values() for took in each]
    rows = [*sorted(outcome.recoveries.items()), ("all", everything)]
    print(f"\nseed {seed}      kills  recovery p50   p99    (kill to the first new decision, s)")
    for part, times in rows:
        print(f"{part:12} {len(times):5} {quantile(times, 0.5):13.1f} {quantile(times, 0.99):5.1f}")
    print(f"requests {outcome.asked}, lost {len(outcome.lost)}, doubled {len(outcome.doubled)}")
    print(outcome.replayed)
    for fault in (*outcome.lost, *outcome.doubled, *outcome.faults):
        print(f"WRONG: {fault}")


def quantile(values: list[float], share: float) -> float:
    """The smallest value that at least this share does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


if __name__ == "__main__":
    sys.exit(main())
