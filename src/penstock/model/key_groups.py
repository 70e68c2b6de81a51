"""Assignment of key groups to subtasks. It must never change, or stored snapshots could not be restored.

``state/hashing.py`` computes the key group of a row.
"""

from __future__ import annotations

MAX_KEY_GROUPS = 1 << 15
"""Upper limit of every query: a key group is stored as an int16."""


def owner(key_group: int, parallelism: int, max_parallelism: int) -> int:
    """Return the index of the subtask that owns a key group.

    This is the contiguous-range rule of Flink's ``KeyGroupRangeAssignment``.
    """
    return key_group * parallelism // max_parallelism


def owned_range(index: int, parallelism: int, max_parallelism: int) -> tuple[int, int]:
    """Return the first and the last key group (both inclusive) of subtask ``index``."""
    first = (index * max_parallelism + parallelism - 1) // parallelism
    last = ((index + 1) * max_parallelism - 1) // parallelism
    return first, last
