"""`python -m tests.simulation`: many seeds of simulated histories, or how fast faults are found."""

import argparse
import sys

from tests.simulation.mutations import MUTATIONS, mutated
from tests.simulation.run import report, report_mutations


def main() -> int:
    """0 if all went well, 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--show", type=int, default=1, help="failures to shrink and to print")
    parser.add_argument("--mutate", choices=MUTATIONS, help="play with this fault in the planner")
    parser.add_argument("--mutations", action="store_true", help="how fast each fault is found")
    given = parser.parse_args()
    if given.mutations:
        return 0 if report_mutations([given.mutate] if given.mutate else MUTATIONS) else 1
    with mutated(given.mutate):
        return 0 if report(given.first, given.seeds, given.jobs, given.show) else 1


if __name__ == "__main__":
    sys.exit(main())
