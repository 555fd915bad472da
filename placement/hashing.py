"""Content-seeded choice: every tie is broken by a hash of what is decided, never by chance.

A retried batch, a replay and a rebuild must recompute the same bytes, so neither
Python's `hash` (salted per process) nor a generator is used. One keyed BLAKE2b digest per decision
seeds a vectorised splitmix64 over the per-node digests; both are the same on every machine.
"""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

# Constants of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), a bijective mixer of 64 bits.
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_BITS_27, _BITS_30, _BITS_31 = np.uint64(27), np.uint64(30), np.uint64(31)
_ONE_GAMMA, _ONE_MIX_1, _ONE_MIX_2 = int(_GAMMA), int(_MIX_1), int(_MIX_2)
_MASK_64 = (1 << 64) - 1
# From so many numbers on numpy takes less time for all than Python does one by one.
_MANY = 12

# A multiplier found by search for good mixing of 32 bits (Mueller, "hash32", 2012).
_MIX_31 = 73244475
_MASK_31 = 0x7FFFFFFF


def digest64(*parts: str | int) -> int:
    """A 64-bit hash of the parts; equal parts give equal hashes on every machine."""
    return hash64("\x1f".join(map(str, parts)))


def hash64(text: str) -> int:
    """A 64-bit hash of a text: `digest64` of parts that stand in it with 0x1f between them."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def digests64(parts: tuple[str | int, ...], last: Iterable[str | int]) -> NDArray[np.uint64]:
    """`digest64` of the parts and each of the last ones."""
    begun = "".join(f"{part}\x1f" for part in parts)
    made = (blake2b(f"{begun}{part}".encode(), digest_size=8).digest() for part in last)
    return np.frombuffer(b"".join(made), ">u8").astype(np.uint64)


def stable_id(*parts: str | int) -> str:
    """A 128-bit identifier of the parts as 32 hexadecimal characters."""
    text = "\x1f".join(map(str, parts))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def mix31(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """31 bits of each number, mixed as the kernels do it in arithmetic below 63 bits."""
    once = (values * _MIX_31) & _MASK_31
    return ((once ^ (once >> 15)) * _MIX_31) & _MASK_31


def scores31(seed: int, digests: NDArray[np.uint64]) -> NDArray[np.int64]:
    """`scores` in the 31 bits that the kernels take."""
    return (scores(seed, digests) >> np.uint64(33)).astype(np.int64)


def scores(seed: int, node_digests: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One pseudo-random score per node for the decision `seed`; the lowest is chosen."""
    return mix(node_digests ^ np.uint64(seed))


def lowest(seed: int, node_digests: NDArray[np.uint64]) -> int:
    """The place of the lowest of `scores`."""
    if len(node_digests) >= _MANY:
        return int(scores(seed, node_digests).argmin())
    found = [_mix_one(digest ^ seed) for digest in node_digests.tolist()]
    return found.index(min(found))


def mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One step of splitmix64 on each number: a change of any bit changes half of all bits."""
    mixed = numbers + _GAMMA
    mixed = (mixed ^ (mixed >> _BITS_30)) * _MIX_1
    mixed = (mixed ^ (mixed >> _BITS_27)) * _MIX_2
    return mixed ^ (mixed >> _BITS_31)


def _mix_one(number: int) -> int:
    """`mix` of one number."""
    mixed = (number + _ONE_GAMMA) & _MASK_64
    mixed = ((mixed ^ (mixed >> 30)) * _ONE_MIX_1) & _MASK_64
    mixed = ((mixed ^ (mixed >> 27)) * _ONE_MIX_2) & _MASK_64
    return mixed ^ (mixed >> 31)
