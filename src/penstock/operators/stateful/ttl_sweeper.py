"""Removal of expired rows, one key group at a time. Expired rows are invisible but take memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.operators.stateful.handle import Store

_EVERY_MS = 200
"""Milliseconds between the sweeps of two key groups. A subtask with 128 key groups takes 26 s for all of them."""
_AT_ONCE = 8192


class TtlSweeper:
    """Sweeper of one subtask.

    Args:
        stores: stores of the variables with a time to live.
        groups: first and last key group of the subtask.

    Attributes:
        wake_at_ms: wall-clock time of the next call of ``run``, in milliseconds since 1970; None if all tables are
            empty.
    """

    def __init__(self, stores: Sequence[Store], groups: tuple[int, int]) -> None:
        self._stores = stores
        self._first, self._last = groups
        self._next = self._first
        self._at_ms = 0.0

    @property
    def wake_at_ms(self) -> float | None:
        return self._at_ms if any(len(store.table) for store in self._stores) else None

    def run(self, now_ms: int) -> None:
        """Sweep the next key group if ``wake_at_ms`` has passed. Must not be called within a unit of keys."""
        if now_ms < self._at_ms:
            return
        self._at_ms = now_ms + _EVERY_MS
        for store in self._stores:
            table = store.table
            removed: list[list[pa.Array]] = []
            for rows in table.scan(_AT_ONCE, self._next, self._next):
                expires, known = rows.values[-1].read()
                over = np.flatnonzero(known[rows.rows] & (expires[rows.rows] <= now_ms))
                if len(over):
                    removed.append([key.take(pa.array(over)) for key in rows.keys])
            for keys in removed:
                table.remove(keys, len(keys[0]))
        self._next = self._next + 1 if self._next < self._last else self._first
