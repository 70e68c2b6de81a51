"""Slices: the rows that a step pushes through the chain at once, so that it lasts about 20 ms.

``gather`` takes a slice from the gate, ``Slices`` pushes it through the chain and measures it, and ``SliceSizer``
decides from that how large the next one is.

Rows may suddenly become larger: a text of 10 MB, or a list of 200,000 elements to explode. So a slice is limited in
bytes as well, to twice what its rows had on average: one large row then ends a slice, and cannot come with many others.

The cost per row is an average over the last few slices, weighted by their size, so that one pause of the process does
not count for much and a function that became slower does at once. A function may also cost a fixed time per call,
whatever it is given; handing it single rows would be ruin. That is assumed only on evidence: a slice of at most half
the rows took nearly as long, or the second slice, of more rows, no longer than the first. No call that was
quicker can leave the assumption standing, and now and then a smaller slice asks again.
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

UNLIMITED = 1 << 62
"""Bytes of a slice that may be of any size."""

JOINED_FOR_S = 10.0
"""Rows may join a pending slice for this long. Then it ends even if more input is there."""

_DECAY = 0.5
_NEARLY = 0.75


Control = WatermarkRose | BarrierReached | ChannelEnded
"""Elements that are no rows. They act after the rows in front of them are processed."""


def gather(
    gate: InputGate, max_rows: int, now_ms: float, max_bytes: int = UNLIMITED
) -> tuple[dict[int, list[RowRange]], Control | None]:
    """Return at most ``max_rows`` rows by edge, in the order of each channel, and the control that follows them all.

    Rows of several buffers are taken where one buffer is not enough, because operators have a cost per call. No further
    buffer is begun once the rows have ``max_bytes``.

    A watermark is true of whatever follows it, so it may always come later: the last one that rises among the rows
    comes after them. Barriers and ends do not pass it.
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
    """The newest rows that a subtask took in.

    Attributes:
        rows: number of rows; 0 once their cost was observed.
        bytes: bytes of these rows.
        first, last: positions of its first and its last input.
        sent_before_bytes: what the subtask had put into its outputs before.
        external_before_ms: how long other processes had worked for the subtask before.
        began_s: when it began.
        here_ms: how long this thread has worked on it.
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
        sizer: decides how large slices are.
        outputs: the subtask's; they limit what one slice may produce.
        clock: seconds on a monotonic clock.
    """

    def __init__(self, chain: Chain, sizer: SliceSizer, outputs: Outputs, clock: Callable[[], float]) -> None:
        self._chain = chain
        self._sizer = sizer
        self._outputs = outputs
        self._clock = clock
        self._slice = _Slice(0, 0, "", "", 0, 0.0, clock())

    def limits(self, ends_s: float) -> tuple[int, int]:
        """Return the most rows and bytes of the next slice, which should be over at ``ends_s``."""
        if ends_s == math.inf:  # as nearly always: no clock is read for it
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
        """Push a slice through the chain, or into the pending one.

        Args:
            number: the input of the vertex that it came by.
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
        """Push on what came back of the pending slice. Return False if nothing did."""
        with self.worked_on():
            came = self._chain.collect()
        if came:
            self._observe()
        return came

    @contextmanager
    def worked_on(self) -> Iterator[None]:
        """Measure work on the newest slice. What a user function raises gets the slice's position."""
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
        """Tell the sizer how long the slice took, here and elsewhere, once all of its rows went through. Before the
        first slice there is none: another process has only become ready."""
        slice_ = self._slice
        if self._chain.has_pending_rows or not slice_.rows:
            return
        elapsed_ms = slice_.here_ms + self._chain.external_ms() - slice_.external_before_ms
        self._sizer.max_output_bytes = self._outputs.step_bytes
        added_bytes = self._outputs.added_bytes - slice_.sent_before_bytes
        self._sizer.observe(slice_.rows, elapsed_ms, added_bytes, slice_.bytes)
        slice_.rows = 0
