"""Slices: the rows that a step pushes through the chain at once, sized so that the step lasts about 20 ms.

``gather`` takes a slice from the gate, ``Slices`` pushes it through the chain and measures it, and ``SliceSizer``
computes the size of the next one from the measurement.

Rows may suddenly become larger: a text of 10 MB, or a list of 200,000 elements to explode. So a slice is also limited
in bytes, to twice the average size of its rows. One large row then ends a slice, and cannot share it with many others.

The cost per row is an average over the last few slices, weighted by their size. So one pause of the process has little
effect, and a function that became slower takes effect at once. A function may also cost a fixed time per call,
independent of the number of rows; single-row slices would then be very slow. A fixed cost is assumed only on evidence:
a slice of at most half the rows took nearly as long, or the second slice, of more rows, took no longer than the first.
Any faster call refutes the assumption, and from time to time a smaller slice tests it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import FunctionError
from penstock.model.job_graph import OperatorSpec
from penstock.protocol.gate import BarrierReached, ChannelEnded, InputGate, WatermarkRose
from penstock.protocol.input import RowRange
from penstock.protocol.output import Outputs
from penstock.worker.chain import Chain
from penstock.worker.payloads import measure

TARGET_MS = 20.0
"""Target duration of a slice in milliseconds. A barrier waits for one slice at every hop."""

FIRST_ROWS = 32
"""Number of rows of the first slice, when nothing is known about the operators.

If an operator multiplies rows, the first slice has one row instead, which may become 200,000. In other chains the rows
of a small file should stay together, because functions with state see the boundaries of slices.
"""

_SECOND_ROWS = 2

MAX_ROWS = 262_144
BY_VALUE_ROWS = 1_024
"""Maximum number of rows of a slice for an operator that ``grows_by_value``.

A row may suddenly produce 100,000 times as much.
"""

GROWTH = 4
"""Maximum growth factor from one slice to the next, because an estimate from few rows is unreliable."""

LEAST_BYTES = 64 << 10
"""Size in bytes up to which a slice is not cut for being larger than usual: a call costs more than these bytes."""

_SPREAD = 2
"""Maximum ratio of a slice's bytes to the average bytes of as many rows."""

PROBE_EVERY = 32
"""Number of slices of a call with a fixed cost after which a smaller slice is tried.

It costs 3 % and detects that the call has become cheap.
"""

UNLIMITED = 1 << 62
"""Byte limit of a slice of any size."""

JOINED_FOR_S = 10.0
"""Time in seconds for which rows may join a pending slice. Then the slice ends even if there is more input."""

_DECAY = 0.5
_NEARLY = 0.75


Control = WatermarkRose | BarrierReached | ChannelEnded
"""Elements that are not rows. They take effect after the rows in front of them are processed."""


def gather(
    gate: InputGate, max_rows: int, now_ms: float, max_bytes: int = UNLIMITED
) -> tuple[dict[int, list[RowRange]], Control | None]:
    """Return at most ``max_rows`` rows by edge, in the order of each channel, and the control element after them.

    Rows of several buffers are taken if one buffer is not enough, because operators have a cost per call. No further
    buffer is begun once the rows have ``max_bytes``.

    A watermark also holds for all rows that follow it, so it may always come later. The last one that rises among the
    rows is returned after them. Barriers and ends do not overtake it.
    """
    ranges: dict[int, list[RowRange]] = {}
    risen: WatermarkRose | None = None
    left, full = max_rows, gate.taken_bytes + max_bytes
    while left > 0 and gate.taken_bytes < full:
        consumed = gate.poll(left, now_ms, watermark_due=risen is not None)
        match consumed:
            case RowRange():
                ranges.setdefault(consumed.channel.edge, []).append(consumed)
                left -= consumed.rows
            case WatermarkRose():
                risen = consumed
            case _:
                return ranges, risen or consumed
    return ranges, risen


def sizer_for(operators: Sequence[OperatorSpec], max_output_bytes: int) -> SliceSizer:
    """Return the sizer of a chain of these operators."""
    max_rows = BY_VALUE_ROWS if any(spec.grows_by_value for spec in operators) else MAX_ROWS
    return SliceSizer(max_output_bytes, any(spec.multiplies for spec in operators), max_rows)


class SliceSizer:
    """Computes the size of slices. Owned by the subtask's thread.

    Args:
        max_output_bytes: maximum bytes that a slice should produce; may be changed at any time.
        multiplies: True if an operator makes several rows of one.
        max_rows: maximum rows of a slice.
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
        """Maximum rows of the next slice, at least 1."""
        return self._limit

    @property
    def bytes(self) -> int:
        """Maximum bytes of the next slice. A single row may be larger."""
        per_row = self._bytes / self._rows if self._rows else 0.0
        return max(LEAST_BYTES, int(_SPREAD * self._limit * per_row))

    def rows_within(self, ms: float) -> int:
        """Return the maximum rows, at least 1, of a slice that must end within ``ms`` milliseconds.

        If a call has a large fixed cost, return ``rows``, because fewer rows would not make it faster.
        """
        if ms >= TARGET_MS or self._fixed_ms * 2 > TARGET_MS:
            return self.rows
        return max(1, int(self.rows * ms / TARGET_MS))

    def observe(self, rows: int, elapsed_ms: float, output_bytes: int, input_bytes: int = 0) -> None:
        """Record that a slice of ``rows`` rows took ``elapsed_ms``. The bytes are those of its input and its output."""
        self._weight = self._weight * _DECAY + 1
        self._rows = self._rows * _DECAY + rows
        self._ms = self._ms * _DECAY + elapsed_ms
        self._bytes = self._bytes * _DECAY + input_bytes
        self._judge_fixed(rows, input_bytes, elapsed_ms)
        per_row_ms = (self._ms - self._fixed_ms * self._weight) / self._rows
        # A fixed cost above the target cannot be avoided. The rows may then cost as much again.
        room_ms = max(TARGET_MS - self._fixed_ms, self._fixed_ms)
        rows_that_fit = room_ms / per_row_ms if per_row_ms * self._max_rows > room_ms else float(self._max_rows)
        if output_bytes > 0:
            rows_that_fit = min(rows_that_fit, rows * self.max_output_bytes / output_bytes)
        if rows_that_fit > self._limit and rows < self._limit:
            return  # there were no more rows: nothing is known about larger slices
        least = _SECOND_ROWS if self._weight == 1 else 1
        self._limit = int(max(least, min(rows_that_fit, self._limit * GROWTH)))
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


@dataclass
class _Slice:
    """The newest rows that a subtask accepted.

    Attributes:
        rows: number of rows; 0 once their cost was observed.
        bytes: bytes of these rows.
        first, last: positions of its first and its last input.
        sent_before_bytes: bytes that the subtask had added to its outputs before.
        external_before_ms: time for which other processes had worked for the subtask before.
        began_s: start time.
        here_ms: time for which this thread has worked on it.
    """

    rows: int
    bytes: int
    first: str
    last: str
    sent_before_bytes: int
    external_before_ms: float
    began_s: float
    here_ms: float = 0.0

    @property
    def position(self) -> str:
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


class Slices:
    """Pushes slices through a chain, one at a time, and measures them. Owned by the subtask's thread.

    A slice is *pending* while operators have rows of it in another process.

    Args:
        chain: the operators.
        sizer: computes the size of slices.
        outputs: the subtask's outputs; they limit the output of one slice.
        clock: seconds on a monotonic clock.
    """

    def __init__(self, chain: Chain, sizer: SliceSizer, outputs: Outputs, clock: Callable[[], float]) -> None:
        self._chain = chain
        self._sizer = sizer
        self._outputs = outputs
        self._clock = clock
        self._slice = _Slice(0, 0, "", "", 0, 0.0, clock())

    def limits(self, ends_s: float) -> tuple[int, int]:
        """Return the maximum rows and bytes of the next slice, which should end at ``ends_s``."""
        if ends_s == math.inf:  # the usual case: avoids reading the clock
            return self._sizer.rows, self._sizer.bytes
        return self._sizer.rows_within((ends_s - self._clock()) * 1000), self._sizer.bytes

    def take_from(self, gate: InputGate, ends_s: float) -> tuple[dict[int, list[RowRange]], Control | None]:
        """Take the next slice from the gate; see ``gather``."""
        rows, max_bytes = (MAX_ROWS, UNLIMITED) if self._chain.works_in_pieces else self.limits(ends_s)
        return gather(gate, rows, self._clock() * 1000, max_bytes)

    @property
    def may_grow(self) -> bool:
        """True if rows may still join the pending slice."""
        return self._clock() - self._slice.began_s < JOINED_FOR_S

    def process(self, batch: pa.RecordBatch, number: int, first: str, last: str) -> None:
        """Push a slice through the chain, or add it to the pending one.

        Args:
            number: index of the vertex's input that delivered it.
            first, last: positions of its first and its last row, for errors.
        """
        size = measure(batch)
        if self._chain.has_pending_rows and self._slice.rows:
            self._slice.rows += batch.num_rows
            self._slice.bytes += size
            self._slice.last = last
        else:
            before, external_ms = self._outputs.added_bytes, self._chain.external_ms()
            self._slice = _Slice(batch.num_rows, size, first, last, before, external_ms, self._clock())
        with self.worked_on():
            self._chain.process(batch, number)
        self._observe()

    def collect(self) -> bool:
        """Push on the results that came back for the pending slice. Return False if there were none."""
        with self.worked_on():
            came = self._chain.collect()
        if came:
            self._observe()
        return came

    @contextmanager
    def worked_on(self) -> Iterator[None]:
        """Measure work on the newest slice, and add the slice's position to errors of user functions."""
        began_s = self._clock()
        try:
            yield
        except FunctionError as error:
            if error.position:
                raise
            position = self._slice.position
            raise FunctionError(error.operator, error.message, error.user_traceback, position) from error
        self._slice.here_ms += (self._clock() - began_s) * 1000

    def _observe(self) -> None:
        """Report the duration of the slice to the sizer once all of its rows went through.

        It includes the time of other processes. There may be no slice before the first input: another process has then
        only become ready.
        """
        slice_ = self._slice
        if self._chain.has_pending_rows or not slice_.rows:
            return
        elapsed_ms = slice_.here_ms + self._chain.external_ms() - slice_.external_before_ms
        self._sizer.max_output_bytes = self._outputs.step_bytes
        added_bytes = self._outputs.added_bytes - slice_.sent_before_bytes
        self._sizer.observe(slice_.rows, elapsed_ms, added_bytes, slice_.bytes)
        slice_.rows = 0
