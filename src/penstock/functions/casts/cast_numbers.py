"""Casts between booleans, integers and floats, and between numbers and instants."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.functions.casts.text_times import wall_time_texts
from penstock.functions.core import failures
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import Vector, first, from_vector, select, storage_type, to_vector
from penstock.functions.numbers.arithmetic import EvalMode
from penstock.functions.times.calendar import MICROS_PER_SECOND

_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


def jvm_truncate(values: Vector, target: np.dtype[np.signedinteger]) -> Vector:
    """Cast doubles to ``int`` or ``long`` as Java does: toward zero, saturating, NaN to zero."""
    low, high = np.iinfo(target).min, np.iinfo(target).max
    # float(2**63 - 1) is 2**63: values at or above it saturate, and smaller values are cast exactly.
    saturated = np.where(values >= float(high), high, low)
    inside = (values > float(low)) & (values < float(high))
    with np.errstate(invalid="ignore"):
        truncated = np.where(inside, values, 0.0).astype(target)
    return np.where(np.isnan(values), 0, np.where(inside, truncated, saturated)).astype(target)


class NumericCast(Strict):
    """Cast between booleans, integers and floats."""

    def __init__(self, child: Expression, data_type: pa.DataType, mode: EvalMode, nullable: bool = True) -> None:
        super().__init__((child,), data_type, nullable)
        self.mode = mode

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        source = arrays[0].type
        values = to_vector(arrays[0])
        if pa.types.is_boolean(self.data_type):
            return from_vector(values != 0, self.data_type, rows)
        target = np.dtype(storage_type(self.data_type))
        if values.dtype.kind == "f" and target.kind == "i":
            wide = values.astype(np.float64)
            out = jvm_truncate(wide, np.dtype(np.int64 if target == np.int64 else np.int32)).astype(target)
            info = np.iinfo(target)
            lost = ~((np.floor(wide) <= float(info.max)) & (np.ceil(wide) >= float(info.min)))
        else:
            with np.errstate(over="ignore"):
                out = values.astype(target)
            lost = out != values if target.kind == "i" and values.dtype.kind == "i" else np.zeros(len(out), np.bool_)
        lost = select(rows, lost)
        if self.mode is EvalMode.LEGACY or not lost.any():
            return from_vector(out, self.data_type, rows)
        if self.mode is EvalMode.ANSI:
            raise failures.cast_overflow(values[first(lost)], source, self.data_type)
        return from_vector(out, self.data_type, select(rows, ~lost))


class TimestampToNumber(Strict):
    """Timestamp to seconds since 1970.

    Integers are rounded down. A value out of range raises in ANSI mode and is null otherwise. Floats keep the fraction.
    """

    def __init__(self, child: Expression, data_type: pa.DataType, mode: EvalMode) -> None:
        super().__init__((child,), data_type)
        self.mode = mode

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        micros = to_vector(arrays[0])
        if pa.types.is_floating(self.data_type):
            seconds = micros.astype(np.float64) / MICROS_PER_SECOND
            return from_vector(seconds.astype(storage_type(self.data_type)), self.data_type, rows)
        whole = micros // MICROS_PER_SECOND
        out = whole.astype(storage_type(self.data_type))
        lost = select(rows, out != whole)
        if not lost.any():
            return from_vector(out, self.data_type, rows)
        if self.mode is EvalMode.ANSI:
            raise failures.cast_overflow(
                wall_time_texts(pa.array(micros[first(lost)][None]))[0], arrays[0].type, self.data_type
            )
        return from_vector(out, self.data_type, select(rows, ~lost))


def saturating_micros(values: Vector, micros_per_unit: int) -> Vector:
    """Convert to microseconds like ``TimeUnit.toMicros``, saturating at the ends of ``long``."""
    limit = _LONG_MAX // micros_per_unit
    wide = values.astype(np.int64)
    inside = np.clip(wide, -limit, limit) * micros_per_unit
    return np.where(wide > limit, _LONG_MAX, np.where(wide < -limit, _LONG_MIN, inside))


class NumberToTimestamp(Strict):
    """Number of seconds since 1970 to an instant.

    NaN and infinities raise in ANSI mode and are null otherwise. Integers out of range saturate. Floats out of range
    raise in ANSI mode, saturate in legacy mode and are null in try mode.
    """

    def __init__(self, child: Expression, data_type: pa.DataType, mode: EvalMode) -> None:
        super().__init__((child,), data_type)
        self.mode = mode

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        values = to_vector(arrays[0])
        if values.dtype.kind == "i":
            return from_vector(saturating_micros(values, MICROS_PER_SECOND), self.data_type, rows)
        with np.errstate(all="ignore"):
            wide = values.astype(np.float64) * MICROS_PER_SECOND
            micros = jvm_truncate(wide, np.dtype(np.int64))
        lost = select(rows, ~np.isfinite(values))
        if self.mode is EvalMode.LEGACY:
            return from_vector(micros, self.data_type, select(rows, ~lost) if lost.any() else rows)
        beyond = select(rows, ~((np.floor(wide) <= float(_LONG_MAX)) & (np.ceil(wide) >= float(_LONG_MIN))))
        if self.mode is EvalMode.ANSI and lost.any():
            raise failures.malformed(values[first(lost)], arrays[0].type, self.data_type)
        if self.mode is EvalMode.ANSI and beyond.any():
            raise failures.cast_overflow(wide[first(beyond)], pa.float64(), pa.int64())
        return from_vector(micros, self.data_type, select(rows, ~(lost | beyond)))
