"""Conversion of values to texts for CSV and JSON files and for names of partition directories, as in Spark.

Each function takes an array and returns an array of strings, with null for null.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.casts.fast_digits import all_double_texts
from penstock.functions.casts.java_digits import float_text
from penstock.functions.casts.to_text import all_date_texts, all_wall_time_texts
from penstock.functions.core.vectors import (
    Vector,
    map_distinct,
    to_vector,
    valid_rows,
)
from penstock.functions.core.zones import Zone
from penstock.functions.numbers.decimals import decimal_text
from penstock.functions.times.calendar import MICROS_PER_SECOND

_MICROS_PER_MILLI = 1_000
_MICROS_PER_YEAR_10000 = 253_402_300_800_000_000


def cast_texts(values: pa.Array, zone: Zone, ansi: bool) -> pa.Array:
    """Convert values as ``CAST(value AS STRING)`` does in the session's time zone."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        local = zone.to_local(to_vector(values)) if kind.tz else to_vector(values)
        return all_wall_time_texts(local, valid_rows(values))
    if pa.types.is_decimal(kind):
        return map_distinct(partial(decimal_text, ansi), [values], pa.string(), None)
    return plain_texts(values)


def file_texts(values: pa.Array, zone: Zone) -> pa.Array:
    """Convert values for CSV and JSON files in the default formats: timestamps in ISO 8601, cut to milliseconds."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        return _iso_timestamps(values, zone if kind.tz else None)
    if pa.types.is_decimal(kind):
        return map_distinct(str, [values], pa.string(), None)
    return plain_texts(values)


def plain_texts(values: pa.Array) -> pa.Array:
    """Convert booleans, numbers, strings and dates."""
    kind = values.type
    if pa.types.is_date(kind):
        return all_date_texts(values, valid_rows(values))
    if pa.types.is_float64(kind):
        return all_double_texts(values)
    if pa.types.is_float32(kind):
        return map_distinct(float_text, [values], pa.string(), None)
    return values.cast(pa.string())


def _iso_timestamps(values: pa.Array, zone: Zone | None) -> pa.Array:
    micros = to_vector(values)
    valid = valid_rows(values)
    if valid is not None:
        micros = np.where(valid, micros, 0)
    local = micros if zone is None else zone.to_local(micros)
    texts = pa.array(np.datetime_as_string((local // _MICROS_PER_MILLI).view("datetime64[ms]"), unit="ms"), pa.string())
    if zone is not None:
        texts = pc.binary_join_element_wise(texts, _offset_texts(local - micros), "")
    beyond = local >= _MICROS_PER_YEAR_10000
    if beyond.any():
        texts = pc.if_else(pa.array(beyond), pc.binary_join_element_wise("+", texts, ""), texts)
    return texts if valid is None else pc.if_else(pa.array(valid), texts, pa.scalar(None, pa.string()))


def _offset_texts(offsets: Vector) -> pa.Array:
    distinct, codes = np.unique(offsets, return_inverse=True)
    return pa.array([_offset_text(int(offset)) for offset in distinct], pa.string()).take(pa.array(codes))


def _offset_text(micros: int) -> str:
    """Format an offset as Java's pattern ``XXX``, with the seconds that a few old offsets have."""
    seconds = abs(micros) // MICROS_PER_SECOND
    if seconds == 0:
        return "Z"
    text = f"{'-' if micros < 0 else '+'}{seconds // 3600:02}:{seconds // 60 % 60:02}"
    return f"{text}:{seconds % 60:02}" if seconds % 60 else text
