"""The partition that Java's, and our, producers put a key on: murmur2."""

from __future__ import annotations

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Partition of a key."""
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(key: bytes) -> int:
    found = (SEED ^ len(key)) & MASK
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * MULTIPLIER & MASK
        word = (word ^ (word >> 24)) * MULTIPLIER & MASK
        found = (found * MULTIPLIER & MASK) ^ word
    if rest := key[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * MULTIPLIER & MASK
    found = (found ^ (found >> 13)) * MULTIPLIER & MASK
    return found ^ (found >> 15)
