"""How many rows a step takes at once, so that it lasts about 20 ms.

The cost of a call is modelled as fixed + per row, both learned from what was measured, recent calls counting more.
Without the fixed part, a function that takes a second whatever it is given would be handed single rows.
"""

from __future__ import annotations

TARGET_MS = 20.0
"""A barrier waits for one slice at every hop."""

FIRST_ROWS = 32
"""Small, because nothing is known of the operators yet: a millisecond per row is not unusual."""

MAX_ROWS = 65_536
GROWTH = 4
"""At most this factor from one slice to the next: an estimate from few rows is a guess."""

_DECAY = 0.8
_LEARNABLE_SPREAD = 0.02


class SliceSizer:
    """Owned by the subtask's thread.

    Args:
        max_output_bytes: no slice is meant to produce more than this.
    """

    def __init__(self, max_output_bytes: int) -> None:
        self._max_output_bytes = max_output_bytes
        self._limit = FIRST_ROWS
        self._fixed_ms = 0.0
        self._weight = self._rows = self._ms = self._rows_rows = self._rows_ms = 0.0

    @property
    def rows(self) -> int:
        """The most rows the next slice should have, at least 1."""
        return self._limit

    def observe(self, rows: int, elapsed_ms: float, output_bytes: int) -> None:
        """A slice of ``rows`` rows took ``elapsed_ms`` and produced ``output_bytes``."""
        self._learn(rows, max(0.0, elapsed_ms))
        fixed, per_row = self._model()
        # A fixed part larger than the target is paid anyway: rows may then cost as much again.
        room_ms = max(TARGET_MS - fixed, fixed)
        wanted = room_ms / per_row if per_row > 0 else float(MAX_ROWS)
        if output_bytes > 0:
            wanted = min(wanted, rows * self._max_output_bytes / output_bytes)
        if wanted > self._limit and rows < self._limit:
            return  # there were no more rows: nothing is known about larger slices
        self._limit = int(max(1, min(wanted, self._limit * GROWTH, MAX_ROWS)))

    def _learn(self, rows: int, elapsed_ms: float) -> None:
        self._weight = self._weight * _DECAY + 1
        self._rows = self._rows * _DECAY + rows
        self._ms = self._ms * _DECAY + elapsed_ms
        self._rows_rows = self._rows_rows * _DECAY + rows * rows
        self._rows_ms = self._rows_ms * _DECAY + rows * elapsed_ms

    def _model(self) -> tuple[float, float]:
        """(fixed ms, ms per row) by weighted least squares; the fixed part is kept while sizes do not vary enough."""
        spread = self._weight * self._rows_rows - self._rows * self._rows
        if spread > _LEARNABLE_SPREAD * self._rows * self._rows:
            slope = (self._weight * self._rows_ms - self._rows * self._ms) / spread
            slope = min(max(slope, 0.0), self._ms / self._rows)
            self._fixed_ms = (self._ms - slope * self._rows) / self._weight
        per_row = max(0.0, self._ms - self._fixed_ms * self._weight) / self._rows
        return self._fixed_ms, per_row
