"""Content-seeded choice: every tie is broken by a hash of what is decided, never by chance.

A retried batch, a replay and a rebuild must recompute the same bytes (guarantee G1), so neither
Python's `hash` (salted per process) nor a generator is used. One keyed BLAKE2b digest per decision
seeds a vectorised splitmix64 over the per-node digests; both are the same on every machine.
"""

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

# Constants of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), a bijective mixer of 64 bits.
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def digest64(*parts: str | int) -> int:
    """A 64-bit hash of the parts; equal parts give equal hashes on every machine."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def stable_id(*parts: str | int) -> str:
    """A 128-bit identifier of the parts as 32 hexadecimal characters."""
    text = "\x1f".join(map(str, parts))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def scores(seed: int, node_digests: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One pseudo-random score per node for the decision `seed`; the lowest is chosen."""
    with np.errstate(over="ignore"):
        mixed = (node_digests ^ np.uint64(seed)) + _GAMMA
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    return mixed ^ (mixed >> np.uint64(31))
