"""Parquet files in the calendar of Spark 2, whose dates and times before 1582 are others.

Later releases can write them, too. The metadata of a file says so, as in Spark's ``DataSourceUtils``. A file whose
metadata say nothing is in the Gregorian calendar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.julian import julian_to_gregorian_days

_VERSION, _ZONE = b"org.apache.spark.version", b"org.apache.spark.timeZone"
_LEGACY_TIMES, _LEGACY_INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
_FIRST_VERSION, _FIRST_INT96_VERSION = b"3.0.0", b"3.1.0"
_UTC = (b"UTC", b"Etc/UTC", b"GMT", b"Z")
_MICROS_PER_DAY = 86_400_000_000
_LAST_SWITCH = -2_208_988_800_000_000
"""1900-01-01: before that, zones had other offsets in the older calendar as well."""


@dataclass(frozen=True)
class FileCalendar:
    """Args: ``times``, ``int96``: whether dates and timestamps, or INT96 timestamps, are in the older calendar."""

    times: bool
    int96: bool
    zone: bytes

    def gregorian(self, leaf: pa.Array) -> pa.Array:
        """Dates and timestamps with a zone. Raises TypeError: a time is not known."""
        if not self.times:
            return leaf
        if pa.types.is_timestamp(leaf.type) and leaf.type.tz is not None:
            return self._instants(leaf)
        return gregorian_dates(leaf)

    def gregorian_int96(self, leaf: pa.Array) -> pa.Array:
        """Timestamps. Raises TypeError: a time is not known."""
        return self._instants(leaf) if self.int96 else leaf

    def _instants(self, leaf: pa.Array) -> pa.Array:
        micros = leaf.cast(pa.timestamp("us", leaf.type.tz)).cast(pa.int64())
        values = pc.fill_null(micros, 0).to_numpy(zero_copy_only=False)
        if values.min(initial=0) >= _LAST_SWITCH:
            return leaf
        if self.zone not in _UTC:
            zone = self.zone.decode(errors="replace") or "an unknown zone"
            raise TypeError(f"it has times before 1900 in the calendar of Spark 2 and the zone {zone}; write it anew")
        days = values // _MICROS_PER_DAY
        moved = julian_to_gregorian_days(days.astype(np.int32)).astype(np.int64) - days
        mask = np.asarray(pc.is_null(micros)) if micros.null_count else None
        return pa.array(values + moved * _MICROS_PER_DAY, mask=mask).cast(pa.timestamp("us", leaf.type.tz))


def gregorian_dates(array: pa.Array) -> pa.Array:
    """Dates of the older calendar; other arrays as they are."""
    if not pa.types.is_date32(array.type):
        return array
    days = pc.fill_null(array.cast(pa.int32()), 0).to_numpy(zero_copy_only=False)
    rebased = julian_to_gregorian_days(days)
    if rebased is days:
        return array
    return pa.array(rebased, pa.int32(), mask=np.asarray(pc.is_null(array))).cast(array.type)


def file_calendar(metadata: Mapping[bytes, bytes] | None) -> FileCalendar:
    """By the key-value metadata of a file."""
    said = metadata or {}
    version = said.get(_VERSION)
    return FileCalendar(
        version is not None and (version < _FIRST_VERSION or _LEGACY_TIMES in said),
        version is not None and (version < _FIRST_INT96_VERSION or _LEGACY_INT96 in said),
        said.get(_ZONE, b""),
    )
