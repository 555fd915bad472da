"""How many examples, seeds and cases tests draw: all, or with EXAMPLES=few a share of them.

`make core` plays a share, as the inner loop has to end within a minute; `make test` plays all.
EXAMPLES=random draws as many as usual, but others with each run (see `tests/conftest.py`).
"""

import os
from typing import Any

from hypothesis import settings

FEW = os.environ.get("EXAMPLES") == "few"
# With an eighth the pure core takes less than a minute on two processors.
SHARE = 8
# Fewer than this say little.
LEAST = 4


def share(count: int) -> int:
    """How many of `count` are drawn."""
    return min(count, max(count // SHARE, LEAST)) if FEW else count


def seeds(count: int, first: int = 0) -> range:
    """The seeds of a test that draws for itself: `count` of them where all are drawn."""
    return range(first, first + share(count))


def examples(count: int, **more: Any) -> settings:
    """Settings of a property that takes `count` examples where all are drawn."""
    return settings(max_examples=share(count), **more)
