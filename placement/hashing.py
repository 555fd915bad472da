"""Breaks ties by hashes of what is decided, never by chance.

A retried batch, a replay and a rebuild must recompute the same bytes: neither Python's `hash`
(salted for each process) nor a random generator is used. One BLAKE2b digest for a decision seeds a
vectorised splitmix64 over the digests of the nodes; both are the same on every machine.
"""

from collections.abc import Callable, Iterable, Sequence
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

_ID_BYTES = 16

# A multiplier found by search for good mixing of 32 bits (Mueller, "hash32", 2012).
_MIX_31 = 73244475
_MASK_31 = 0x7FFFFFFF


def digest64(*parts: str | int) -> int:
    """Hash the parts to 64 bits; equal parts give equal hashes on every machine."""
    return hash64("\x1f".join(map(str, parts)))


def hash64(text: str) -> int:
    """Hash a text to 64 bits.

    `digest64` of several parts is `hash64` of the parts joined by 0x1f.
    """
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def digests64(parts: tuple[str | int, ...], last: Iterable[str | int]) -> NDArray[np.uint64]:
    """Compute `digest64` of the parts and each of the last parts."""
    begun = "".join(f"{part}\x1f" for part in parts)
    made = (blake2b(f"{begun}{part}".encode(), digest_size=8).digest() for part in last)
    return np.frombuffer(b"".join(made), ">u8").astype(np.uint64)


def stable_id(*parts: str | int) -> str:
    """Make a 128-bit identifier of the parts, as 32 hexadecimal digits."""
    return blake2b("\x1f".join(map(str, parts)).encode(), digest_size=_ID_BYTES).hexdigest()


def begin_stable_id(begun: str) -> Callable[[str], str]:
    """Return `stable_id` for parts that, joined by 0x1f, begin so: of what follows."""
    shared = blake2b(begun.encode(), digest_size=_ID_BYTES)

    def finish(rest: str) -> str:
        hashed = shared.copy()
        hashed.update(rest.encode())
        return hashed.hexdigest()

    return finish


def mix31(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Mix each number into 31 bits, in arithmetic below 63 bits, as the compiled kernels do."""
    once = (values * _MIX_31) & _MASK_31
    return ((once ^ (once >> 15)) * _MIX_31) & _MASK_31


def scores31(seed: int, digests: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Compute `scores`, cut to the 31 bits that the kernels take."""
    return (scores(seed, digests) >> np.uint64(33)).astype(np.int64)


def scores(seed: int, node_digests: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Compute one pseudo-random score for each node and the decision `seed`; the lowest wins."""
    return mix(node_digests ^ np.uint64(seed))


def lowest(
    seed: int, node_digests: NDArray[np.uint64], nodes: Sequence[int] | NDArray[np.int64]
) -> int:
    """Return the index in `nodes` of the one with the lowest of `scores`."""
    if len(nodes) >= _MANY:
        return int(scores(seed, node_digests[np.asarray(nodes)]).argmin())
    digest_of = node_digests.item
    found = [_mix_one(digest_of(node) ^ seed) for node in nodes]
    return found.index(min(found))


def mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply one step of splitmix64: a change of any bit of a number changes about half of all its
    bits."""
    mixed = numbers + _GAMMA
    mixed = (mixed ^ (mixed >> _BITS_30)) * _MIX_1
    mixed = (mixed ^ (mixed >> _BITS_27)) * _MIX_2
    return mixed ^ (mixed >> _BITS_31)


def _mix_one(number: int) -> int:
    """Apply `mix` to one number."""
    mixed = (number + _ONE_GAMMA) & _MASK_64
    mixed = ((mixed ^ (mixed >> 30)) * _ONE_MIX_1) & _MASK_64
    mixed = ((mixed ^ (mixed >> 27)) * _ONE_MIX_2) & _MASK_64
    return mixed ^ (mixed >> 31)
