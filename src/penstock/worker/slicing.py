"""How many rows a step takes at once, so that it lasts about 20 ms.

Rows may suddenly become larger: a text of 10 MB, or a list of 200,000 elements to explode. So a slice is limited in
bytes as well, to twice what its rows had on average: one large row then ends a slice, and cannot come with many others.

The cost per row is an average over the last few slices, weighted by their size, so that one pause of the process does
not count for much and a function that became slower does at once. A function may also cost a fixed time per call,
whatever it is given; handing it single rows would be ruin. That is assumed only on evidence: a slice of at most half
the rows took nearly as long, or the second slice, of more rows, no longer than the first. No call that was
quicker can leave the assumption standing, and now and then a smaller slice asks again.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.job_graph import OperatorSpec

TARGET_MS = 20.0
"""A barrier waits for one slice at every hop."""

FIRST_ROWS = 32
"""Nothing is known of the operators yet. If one of them multiplies rows, the first slice has one row, which may become
200,000. Elsewhere the rows of a small file should stay together: functions with state see which rows come at once."""

_SECOND_ROWS = 2

MAX_ROWS = 262_144
BY_VALUE_ROWS = 1_024
"""The most rows of a slice for an operator that ``grows_by_value``: a row may suddenly give 100,000 times as much."""

GROWTH = 4
"""At most this factor from one slice to the next: an estimate from few rows is a guess."""

LEAST_BYTES = 64 << 10
"""Slices are not cut for being larger than usual while they are smaller than this: a call costs more than these bytes.
"""

_SPREAD = 2
"""A slice may have this many times the bytes that its rows have on average."""

PROBE_EVERY = 32
"""After so many slices of a call with a fixed cost, one with fewer rows: 3 % for noticing that it has become cheap."""

_DECAY = 0.5
_NEARLY = 0.75


def sizer_for(operators: Sequence[OperatorSpec], max_output_bytes: int) -> SliceSizer:
    """Return the sizer of a chain of these operators."""
    max_rows = BY_VALUE_ROWS if any(spec.grows_by_value for spec in operators) else MAX_ROWS
    return SliceSizer(max_output_bytes, any(spec.multiplies for spec in operators), max_rows)


class SliceSizer:
    """Owned by the subtask's thread.

    Args:
        max_output_bytes: no slice is meant to produce more than this; may be changed at any time.
        multiplies: an operator makes several rows of one.
        max_rows: no slice has more.
    """

    def __init__(self, max_output_bytes: int, multiplies: bool = False, max_rows: int = MAX_ROWS) -> None:
        self.max_output_bytes = max_output_bytes
        self._max_rows = max_rows
        self._limit = 1 if multiplies else FIRST_ROWS
        self._weight = self._rows = self._ms = self._bytes = 0.0
        self._fixed_ms = 0.0
        self._last = (0, 0, 0.0)
        self._until_probe = PROBE_EVERY

    @property
    def rows(self) -> int:
        """The most rows the next slice should have, at least 1."""
        return self._limit

    @property
    def bytes(self) -> int:
        """The most bytes the next slice should have; a single row may have more."""
        per_row = self._bytes / self._rows if self._rows else 0.0
        return max(LEAST_BYTES, int(_SPREAD * self._limit * per_row))

    def rows_within(self, ms: float) -> int:
        """The most rows of a slice that is to be over in ``ms`` milliseconds, at least 1. A call with a fixed cost
        takes it in any case."""
        if ms >= TARGET_MS or self._fixed_ms * 2 > TARGET_MS:
            return self.rows
        return max(1, int(self.rows * ms / TARGET_MS))

    def observe(self, rows: int, elapsed_ms: float, output_bytes: int, input_bytes: int = 0) -> None:
        """A slice of ``rows`` rows with ``input_bytes`` took ``elapsed_ms`` and produced ``output_bytes``."""
        self._weight = self._weight * _DECAY + 1
        self._rows = self._rows * _DECAY + rows
        self._ms = self._ms * _DECAY + elapsed_ms
        self._bytes = self._bytes * _DECAY + input_bytes
        self._judge_fixed(rows, input_bytes, elapsed_ms)
        per_row_ms = (self._ms - self._fixed_ms * self._weight) / self._rows
        # A fixed cost beyond the target is paid anyway: rows may then cost as much again.
        room_ms = max(TARGET_MS - self._fixed_ms, self._fixed_ms)
        wanted = room_ms / per_row_ms if per_row_ms * self._max_rows > room_ms else float(self._max_rows)
        if output_bytes > 0:
            wanted = min(wanted, rows * self.max_output_bytes / output_bytes)
        if wanted > self._limit and rows < self._limit:
            return  # there were no more rows: nothing is known about larger slices
        least = _SECOND_ROWS if self._weight == 1 else 1
        self._limit = int(max(least, min(wanted, self._limit * GROWTH)))
        self._probe()

    def _judge_fixed(self, rows: int, input_bytes: int, elapsed_ms: float) -> None:
        last_rows, last_bytes, last_ms = self._last
        self._last = rows, input_bytes, elapsed_ms
        is_half = rows * 2 <= last_rows and input_bytes * 2 <= last_bytes
        fewer = is_half and elapsed_ms > _NEARLY * last_ms
        second = self._weight == 1 + _DECAY and rows > last_rows and last_ms > _NEARLY * elapsed_ms
        if elapsed_ms > TARGET_MS and (fewer or second):
            self._fixed_ms = elapsed_ms
        self._fixed_ms = min(self._fixed_ms, elapsed_ms)

    def _probe(self) -> None:
        if self._fixed_ms * 2 <= TARGET_MS:
            return
        self._until_probe -= 1
        if self._until_probe == 0:
            self._until_probe = PROBE_EVERY
            self._limit = max(1, self._limit // (GROWTH * GROWTH))
