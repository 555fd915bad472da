"""`python -m tests.simulation`: many seeds of simulated histories, or how fast faults are found."""

import argparse
import sys

from tests.simulation.run import report


def main() -> int:
    """0 if all went well, 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--show", type=int, default=1, help="failures to shrink and to print")
    given = parser.parse_args()
    return 0 if report(given.first, given.seeds, given.jobs, given.show) else 1


if __name__ == "__main__":
    sys.exit(main())
