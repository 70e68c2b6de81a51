"""Conversion from the calendar of Spark 2 in Parquet files. It has other dates and times before 1582.

Later releases of Spark can also write this calendar. As in Spark's ``DataSourceUtils``, the metadata of a file
determine its calendar. Without such metadata it is the Gregorian calendar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.files.parquet.julian import julian_to_gregorian_days

_VERSION, _ZONE = b"org.apache.spark.version", b"org.apache.spark.timeZone"
_LEGACY_TIMES, _LEGACY_INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
_FIRST_VERSION, _FIRST_INT96_VERSION = b"3.0.0", b"3.1.0"
_UTC = (b"UTC", b"Etc/UTC", b"GMT", b"Z")
_MICROS_PER_DAY = 86_400_000_000
_LAST_SWITCH = -2_208_988_800_000_000
"""1900-01-01. For earlier times, the time zone offsets of the two calendars may also differ."""


@dataclass(frozen=True)
class FileCalendar:
    """Calendar of one file.

    Args:
        times: True if dates and timestamps are in the older calendar.
        int96: True if INT96 timestamps are in the older calendar.
        zone: time zone of the writer; empty if it is unknown.
    """

    times: bool
    int96: bool
    zone: bytes

    def gregorian(self, leaf: pa.Array) -> pa.Array:
        """Convert dates and timestamps with a zone. Raise TypeError for a time that cannot be converted."""
        if not self.times:
            return leaf
        if pa.types.is_timestamp(leaf.type) and leaf.type.tz is not None:
            return self._instants(leaf)
        return gregorian_dates(leaf)

    def gregorian_int96(self, leaf: pa.Array) -> pa.Array:
        """Convert INT96 timestamps. Raise TypeError for a time that cannot be converted."""
        return self._instants(leaf) if self.int96 else leaf

    def _instants(self, leaf: pa.Array) -> pa.Array:
        micros = leaf.cast(pa.timestamp("us", leaf.type.tz)).cast(pa.int64())
        values = pc.fill_null(micros, 0).to_numpy(zero_copy_only=False)
        if values.min(initial=0) >= _LAST_SWITCH:
            return leaf
        if self.zone not in _UTC:
            zone = self.zone.decode(errors="replace") or "an unknown zone"
            raise TypeError(f"it has times before 1900 in the calendar of Spark 2 and the zone {zone}; write it again")
        days = values // _MICROS_PER_DAY
        moved = julian_to_gregorian_days(days.astype(np.int32)).astype(np.int64) - days
        mask = np.asarray(pc.is_null(micros)) if micros.null_count else None
        return pa.array(values + moved * _MICROS_PER_DAY, mask=mask).cast(pa.timestamp("us", leaf.type.tz))


def gregorian_dates(array: pa.Array) -> pa.Array:
    """Convert dates of the older calendar; return other arrays unchanged."""
    if not pa.types.is_date32(array.type):
        return array
    days = pc.fill_null(array.cast(pa.int32()), 0).to_numpy(zero_copy_only=False)
    rebased = julian_to_gregorian_days(days)
    if rebased is days:
        return array
    return pa.array(rebased, pa.int32(), mask=np.asarray(pc.is_null(array))).cast(array.type)


def file_calendar(metadata: Mapping[bytes, bytes] | None) -> FileCalendar:
    """Return the calendar of a file from its key-value metadata."""
    said = metadata or {}
    version = said.get(_VERSION)
    return FileCalendar(
        version is not None and (version < _FIRST_VERSION or _LEGACY_TIMES in said),
        version is not None and (version < _FIRST_INT96_VERSION or _LEGACY_INT96 in said),
        said.get(_ZONE, b""),
    )
