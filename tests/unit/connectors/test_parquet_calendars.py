"""The calendar that the metadata of a Parquet file declare, and its effect on dates and times."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from penstock.connectors.files.parquet.calendars import FileCalendar, file_calendar

VERSION, ZONE = b"org.apache.spark.version", b"org.apache.spark.timeZone"
TIMES, INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
JULIAN = pa.array([dt.date(1500, 3, 10), None, dt.date(2020, 1, 1)])
"""The first is a day of the calendar of Spark 2 that is read as one of the Gregorian."""
GREGORIAN = [dt.date(1500, 3, 1), None, dt.date(2020, 1, 1)]


@pytest.mark.parametrize(
    ("metadata", "times", "int96"),
    [
        (None, False, False),
        ({}, False, False),
        ({TIMES: b"", INT96: b""}, False, False),  # no Spark has written it
        ({VERSION: b"2.4.8"}, True, True),
        ({VERSION: b"3.0.0"}, False, True),
        ({VERSION: b"3.0.3", TIMES: b""}, True, True),
        ({VERSION: b"3.1.0"}, False, False),
        ({VERSION: b"4.0.0", TIMES: b""}, True, False),
        ({VERSION: b"4.0.0", INT96: b""}, False, True),
    ],
)
def test_the_calendar_is_told_by_version_and_marks(
    metadata: dict[bytes, bytes] | None, times: bool, int96: bool
) -> None:
    calendar = file_calendar(metadata)
    assert (calendar.times, calendar.int96) == (times, int96)


def test_the_zone_is_that_of_the_metadata() -> None:
    assert file_calendar({ZONE: b"UTC"}).zone == b"UTC"


def midnights(days: pa.Array, zone: str | None) -> pa.Array:
    return days.cast(pa.timestamp("us", zone))


def test_dates_and_instants_are_moved_and_nulls_stay() -> None:
    calendar = FileCalendar(times=True, int96=True, zone=b"UTC")
    assert calendar.gregorian(JULIAN).to_pylist() == GREGORIAN
    instants = midnights(JULIAN, "UTC")
    moved = midnights(pa.array(GREGORIAN), "UTC")
    assert calendar.gregorian(instants).equals(moved)
    assert calendar.gregorian_int96(instants).equals(moved)


def test_local_times_and_other_columns_are_in_no_calendar() -> None:
    calendar = FileCalendar(times=True, int96=True, zone=b"UTC")
    for column in (midnights(JULIAN, None), pa.array([1, None])):
        assert calendar.gregorian(column) is column


def test_what_is_in_the_gregorian_calendar_stays() -> None:
    calendar = FileCalendar(times=False, int96=False, zone=b"UTC")
    for column in (JULIAN, midnights(JULIAN, "UTC")):
        assert calendar.gregorian(column) is column
        assert calendar.gregorian_int96(column) is column


def test_times_of_another_zone_are_refused_where_it_matters() -> None:
    calendar = FileCalendar(times=True, int96=True, zone=b"Europe/Paris")
    with pytest.raises(TypeError, match=r"calendar of Spark 2 and the zone Europe/Paris"):
        calendar.gregorian(midnights(JULIAN, "UTC"))
    late = midnights(JULIAN.slice(1), "UTC")
    assert calendar.gregorian(late).equals(late)
    with pytest.raises(TypeError, match="an unknown zone"):
        FileCalendar(times=True, int96=True, zone=b"").gregorian_int96(midnights(JULIAN, "UTC"))
