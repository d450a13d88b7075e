"""Random numbers by name: a stream for each purpose and entity, and keyed single draws.

Streams are named, never numbered: ``Streams(7).of("arrivals/tenant-a")`` is the same generator whatever other
streams exist, so adding a tenant or changing a policy changes no other draw (common random numbers).
"""

from __future__ import annotations

import hashlib

import numpy as np

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _words(name: str) -> tuple[int, ...]:
    digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
    return tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))


class Streams:
    """The streams of one replication of one experiment.

    `seed` >= 0 is the root, `replication` >= 0 selects the replication: replication k alone equals replication
    k of n. Each name gives an independent PCG64DXSM through SeedSequence's `spawn_key`.
    """

    def __init__(self, seed: int, replication: int = 0) -> None:
        if seed < 0 or replication < 0:
            raise ValueError(f"seed and replication must be >= 0, found {seed} and {replication}")
        self.seed = seed
        self.replication = replication

    def of(self, name: str) -> np.random.Generator:
        """A fresh generator at the start of the stream `name`."""
        key = (self.replication, *_words(name))
        return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(self.seed, spawn_key=key)))


def mix(*parts: int) -> int:
    """A 64-bit hash of whole numbers (splitmix64 finaliser, Steele, Lea, Flood 2014, folded over the parts)."""
    state = 0
    for part in parts:
        state = (state + (part & _MASK) + _GOLDEN) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def keyed_uniform(*parts: int) -> float:
    """A uniform in [0, 1) that depends on the key alone: the same run, task and attempt draw the same luck
    under every policy, in whatever order things happen."""
    return (mix(*parts) >> 11) * 2.0**-53
