"""Removal of rows whose time to live is over, a key group at a time: they are invisible, but take memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.operators.stateful.handle import Store

_EVERY_MS = 200
"""Interval between two key groups of every such variable: 128 of them in one subtask take 26 s."""
_AT_ONCE = 8192


class TtlSweeper:
    """Sweeper of one subtask.

    ``stores``: of the variables that have a time to live; ``groups``: first and last key group.

    Attributes:
        wake_at_ms: time of the next call of ``run``; None: no call is needed.
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
        """Sweep the next key group, if it is time. Must not be called while a slice is processed."""
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
