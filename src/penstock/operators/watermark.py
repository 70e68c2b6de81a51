"""Watermark: passes rows on and generates the event-time watermark that ``df.withWatermark`` asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.graph.model import OperatorSpec
from penstock.operators.base import Operator, OperatorState, RestoredState
from penstock.protocol.elements import END_OF_TIME_US

_MICROS_PER_MILLI = 1_000


@dataclass(frozen=True, kw_only=True)
class WatermarkSpec(OperatorSpec):
    """``column``: position of the event time, a timestamp or a window struct (its ``end`` counts, as in Spark);
    ``delay_us``: how far the watermark stays behind the largest event time."""

    operator_id: str
    name: str
    output_schema: pa.Schema
    column: int
    delay_us: int

    def create(self) -> Operator:
        return WatermarkOperator(self)


class WatermarkOperator(Operator):
    """The watermark is the largest event time, floored to milliseconds as ``EventTimeWatermarkExec`` does, less the
    delay. It only rises, starts unset and is kept in the snapshot. Null event times are passed on and ignored."""

    def __init__(self, spec: WatermarkSpec) -> None:
        self._spec = spec
        self._watermark_us: int | None = None

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        times = batch.column(self._spec.column)
        if pa.types.is_struct(times.type):
            times = times.flatten()[1]
        largest = pc.max(times.view(pa.int64())).as_py()
        if largest is not None:
            self.advance_generated(largest // _MICROS_PER_MILLI * _MICROS_PER_MILLI - self._spec.delay_us)
        yield batch

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """What comes in counts for nothing, but for the end of event time."""
        if watermark_us == END_OF_TIME_US:
            self.advance_generated(watermark_us)
        return iter(())

    def emitted_watermark(self) -> int | None:
        return self._watermark_us

    def advance_generated(self, watermark_us: int) -> None:
        if self._watermark_us is None or watermark_us > self._watermark_us:
            self._watermark_us = watermark_us

    def snapshot(self) -> OperatorState:
        return OperatorState(scalars={"watermark_us": self._watermark_us})

    def restore(self, state: RestoredState) -> None:
        stored = state.scalars.get("watermark_us")
        assert stored is None or isinstance(stored, int)
        self._watermark_us = stored
