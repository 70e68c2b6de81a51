"""Watermark: passes rows and generates the event-time watermark of ``df.withWatermark``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.elements import END_OF_TIME_US
from penstock.model.job_graph import OperatorSpec
from penstock.model.plain import Plain
from penstock.operators.base import Operator, OperatorState, RestoredState

_MICROS_PER_MILLI = 1_000
_WATERMARK, _REACHED, _HELD = "watermark_us", "reached_us", "held"


def watermark_scalars(watermark_us: int) -> dict[str, Plain]:
    """Return the snapshot's scalars of a watermark operator whose watermark has reached this value."""
    return {_WATERMARK: watermark_us, _REACHED: watermark_us, _HELD: False}


@dataclass(frozen=True, kw_only=True)
class WatermarkSpec(OperatorSpec):
    """Specification of a watermark.

    Attributes:
        column: position of the event time: a timestamp or a window struct (its ``end`` counts, as in Spark).
        delay_us: difference between the largest event time and the watermark, in microseconds.
    """

    operator_id: str
    name: str
    output_schema: pa.Schema
    column: int
    delay_us: int
    parameters: Mapping[str, str] = field(default_factory=dict)

    def create(self) -> Operator:
        return WatermarkOperator(self)


class WatermarkOperator(Operator):
    """Generator of a watermark: the largest event time minus the delay.

    Event times are rounded down to milliseconds, as in ``EventTimeWatermarkExec``. The watermark starts unset, never
    falls, and is part of the snapshot. Rows with a null event time are passed on and ignored.

    After a restore at another parallelism, a subtask starts from the lowest watermark of its predecessors (unset if
    that of any predecessor was). A split may have moved to another reader; its remaining rows must not be late because
    that reader was ahead.
    """

    def __init__(self, spec: WatermarkSpec) -> None:
        self._spec = spec
        self._watermark_us: int | None = None
        self._reached_us: int | None = None
        self._held = False

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        times = batch.column(self._spec.column)
        if pa.types.is_struct(times.type):
            times = times.flatten()[1]
        largest = pc.max(times.view(pa.int64())).as_py()
        if largest is not None:
            self.advance_generated(largest // _MICROS_PER_MILLI * _MICROS_PER_MILLI - self._spec.delay_us)
        yield batch

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Ignore received watermarks except the end of event time."""
        if watermark_us == END_OF_TIME_US:
            self.advance_generated(watermark_us)
        return iter(())

    def emitted_watermark(self) -> int | None:
        return self._watermark_us

    def reached_watermark(self) -> int | None:
        return self._reached_us

    def hold_watermark(self, held: bool) -> None:
        self._held = held

    def advance_generated(self, watermark_us: int) -> None:
        if not self._held and (self._watermark_us is None or watermark_us > self._watermark_us):
            self._watermark_us = watermark_us
        if self._reached_us is None or watermark_us > self._reached_us:
            self._reached_us = watermark_us

    def snapshot(self) -> OperatorState:
        return OperatorState(scalars={_WATERMARK: self._watermark_us, _REACHED: self._reached_us, _HELD: self._held})

    def restore(self, state: RestoredState) -> None:
        emitted = [_moment(part.scalars.get(_WATERMARK)) for part in state.parts]
        reached = [_moment(part.scalars.get(_REACHED, part.scalars.get(_WATERMARK))) for part in state.parts]
        known = [moment for moment in emitted if moment is not None]
        self._watermark_us = min(known) if known and len(known) == len(emitted) else None
        self._reached_us = max((moment for moment in reached if moment is not None), default=None)
        self._held = any(part.scalars.get(_HELD, False) for part in state.parts)


def _moment(stored: Plain) -> int | None:
    assert stored is None or isinstance(stored, int)
    return stored
