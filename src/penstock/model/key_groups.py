"""Owners of key groups. Frozen: a change would break every stored snapshot.

A row's key group is computed in ``state/hashing.py``.
"""

from __future__ import annotations

MAX_KEY_GROUPS = 1 << 15
"""No query has more: a key group is an int16."""


def owner(key_group: int, parallelism: int, max_parallelism: int) -> int:
    """Return the subtask that owns a key group (the contiguous-range rule of Flink's KeyGroupRangeAssignment)."""
    return key_group * parallelism // max_parallelism


def owned_range(index: int, parallelism: int, max_parallelism: int) -> tuple[int, int]:
    """Key groups ``[first, last]``, both inclusive, of subtask ``index``."""
    first = (index * max_parallelism + parallelism - 1) // parallelism
    last = ((index + 1) * max_parallelism - 1) // parallelism
    return first, last
