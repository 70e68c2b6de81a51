"""Casts of dates, timestamps and binaries to strings."""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import DataError
from penstock.functions.casts.text_times import date_texts, wall_time_texts
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.fast_path import with_exact_rows
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import Vector, from_vector, map_dictionary, null_outside, to_vector
from penstock.functions.core.zones import Zone
from penstock.functions.times.fast_formatting import write_dates, write_wall_times
from penstock.functions.times.temporal import check_local_range, zone_of_type


class DateText(Strict):
    """Cast of a date to string."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return all_date_texts(arrays[0], rows)


class TimestampText(Strict):
    """Cast of a timestamp to string, in the session's time zone."""

    def __init__(self, child: Expression, zone: Zone, nullable: bool = True) -> None:
        super().__init__((child,), pa.string(), nullable)
        self.zone = zone_of_type(child, zone)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return all_wall_time_texts(self.zone.to_local(check_local_range(self.zone, to_vector(arrays[0]), rows)), rows)


def all_date_texts(dates: pa.Array, rows: Mask | None) -> pa.Array:
    """Return the texts of dates in the format of a cast."""
    return with_exact_rows(write_dates(to_vector(dates), rows), _date_texts, [dates], rows)


def all_wall_time_texts(local: Vector, rows: Mask | None) -> pa.Array:
    """Return the texts of wall times in the format of a cast."""
    return with_exact_rows(
        write_wall_times(local, rows), _wall_time_texts, [from_vector(local, pa.int64(), rows)], rows
    )


def _date_texts(arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
    return map_dictionary(date_texts, arrays[0].view(pa.int32()), rows)


def _wall_time_texts(arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
    return map_dictionary(wall_time_texts, arrays[0], rows)


SHOWN_BYTES = 32


class BinaryToText(Strict):
    """``cast(binary as string)``.

    Spark accepts any bytes as a string. Its functions treat a string that is not UTF-8 in a way that Penstock does not
    support. Therefore such a value raises DataError, which ends the query.
    """

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        values = null_outside(arrays[0], rows)
        try:
            return values.cast(self.data_type)
        except pa.ArrowInvalid:
            bad = next(value for value in values.to_pylist() if not _is_text(value))
        hex_digits = bad[:SHOWN_BYTES].hex() + ("..." if len(bad) > SHOWN_BYTES else "")
        raise DataError(
            f"cast to string: the binary value x'{hex_digits}' of {len(bad)} bytes is not UTF-8; decode such values in "
            "mapInArrow or a udf, or filter them out before the cast"
        )


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False
