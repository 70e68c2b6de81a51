"""Edge values of what is read by a rule: times by pattern, fields of a calendar."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from tests.support.functions.expression_relations import INSTANTS

WRITTEN_TIMES = [
    None, "", "2024-01-02", "2024-1-2", "2024-02-30", "2023-02-29", "1970-01-01 00:00:00", "2024-01-02 03:04:05",
    "2024-01-02 3:4:5", "2024-01-02 23:59:60", "2024-01-02 24:00:00", "20240102", "20240102030405",
    "2024010203040599", "120240102", "+120240102", "+20240102", "-20240102", "-0044-03-15", "0000-01-01",
    "0001-01-01", "+12345-06-07", "12345-06-07", "-12345-06-07", "999999999-01-01", "+999999999-01-01",
    "+300000-01-01 00:00:00", "+294247-01-10 04:00:54", "-290308-12-21 19:59:06", "24-01-02", "99-12-31",
    "1/2/2024", "01/02/2024", "12/31/2024 11:59 PM", "12/31/2024 11:59 pm", "12/31/2024 12:00 AM",
    "12/31/2024 13:00 PM", "0:30 AM", "12:30 am", "13:05", "13:05 AM", "1 PM", "pm", "PM", "Am", "Jan 2 2024",
    "JAN 2 2024", "january 2 2024", "May 2 2024", "ſep 2 2024", "Sept 2 2024", "2 KANUARY", "2024-060", "2024-366",
    "2023-366", "2024060", "366", "2024 AD", "44 BC", "44 Before Christ", "0 AD", "-3 AD", "2024 anno domini",
    "2024-01-02T03:04:05Z", "2024-01-02T03:04:05z", "2024-01-02t03:04:05+01", "2024-01-02T03:04:05+01:00",
    "2024-01-02T03:04:05+0100", "2024-01-02T03:04:05-18:00", "2024-01-02T03:04:05+18:01",
    "2024-01-02T03:04:05+01:02:03", "2024-01-02T03:04:05+24:00", "2024-01-02T03:04:05+01:60",
    "2024-01-02T03:04:05-00:00", "2024-01-02T03:04:05+00", "2024-01-02T03:04:05+0000", "+01:00", "+0130", "Z",
    "+18:01", "2024-01-02 03:04:05.1", "2024-01-02 03:04:05.123456", "2024-01-02 03:04:05.1234567",
    "2024-01-02 03:04:05.123456789", "2024-01-02 03:04:05.", "20240102030405123", "20240102 030405.9",
    "2024-03-10 02:30:00", "2024-11-03 01:30:00", "2011-12-30 12:00:00", "1969-12-31 23:59:59.999999", "-1-1-1",
    "1-1-1", "2024-13-01", "2024-00-10", "2024-01-00", "02-29", "12-31", "31", "5", "0005", "00000000000000000005",
    "9223372036854775808", "99999999999999999999", "1 1", " 2024-01-02", "2024-01-02 ", "2024", "-2024", "+2024",
    "02024", "10000", "+10000", "2024年01月02日", "K 3", "2024-01", "2024-1", "2024-01 ", "12 12", "0 0", "15 PM",
    "24:30", "0:30", "24", "1:2:3", "1:2:61", "11:59:59 pm", "05", "5.5", "15:0 AM", "٢٠٢٤-01-02", "２０２４-01-02",
    "2024-001-02", "BC 2024-01-02", "BC 0044-01-02", "BC -0044-01-02", "02-29 BC", "2024-01-02[x]", "a2024-01-02b",
]  # fmt: skip


def written_times() -> pa.Table:
    """Column ``s``: texts that are of one of the patterns, or nearly."""
    return pa.table({"id": pa.array(range(len(WRITTEN_TIMES)), pa.int32()), "s": pa.array(WRITTEN_TIMES, pa.string())})


YEARS = [None, 2024, 2023, 1970, 0, -1, 1, 9999, 294247, -290308, 5881580, 999999999, 1000000000, -2147483648]
MONTHS = [1, 2, 12, 0, 13, None, 3, -1]
DAYS = [1, 29, 28, 31, 30, 0, 32, None, 10]
SECONDS = [
    "0",
    "59.999999",
    "60",
    "60.000001",
    "61",
    "-0.000001",
    "54.775807",
    "54.775808",
    None,
    "1.5",
    "9999999999.5",
]
ZONES = ["UTC", "America/New_York", "Europe/Paris", None, "+05:30", "PST", "Pacific/Apia", "Nowhere/Land", "GMT+2", ""]
WEEKDAYS = ["MO", "tue", "Wednesday", "th", "FRI", "sat", "SU", None, "", "mond", " mo", "\u017funday", "MOON"]
FAR_DAYS = [19782, 0, -1, None, 11016, 2147483647, -2147483648, -719162, 7, 2932896, 60]
UNITS = ["week", "MON", "year", "hour", "dd", "nonsense", None, "Quarter", "MILLISECOND", "minute", ""]


def calendar_fields() -> pa.Table:
    """Columns ``y``, ``mo``, ``d``, ``h``, ``mi``, ``sec``, ``zone``, ``day``, ``unit``, ``ts``, ``ntz``, ``dt`` and
    ``dec``, each list with another period."""
    n = 260
    instants = [INSTANTS[:-2][i % (len(INSTANTS) - 2)] for i in range(n)]
    seconds = [None if v is None else Decimal(v) for v in SECONDS]

    def cycle(values: list[object], step: int, data_type: pa.DataType) -> pa.Array:
        return pa.array([values[(i // step) % len(values)] for i in range(n)], data_type)

    return pa.table(
        {
            "id": pa.array(range(n), pa.int32()),
            "y": cycle(YEARS, 1, pa.int32()),
            "mo": cycle(MONTHS[:3] * 4 + MONTHS, 1, pa.int32()),
            "d": cycle(DAYS[:3] * 3 + DAYS, 2, pa.int32()),
            "h": cycle([0, 23, 4, 12, 0, 24, None, -1, 3], 5, pa.int32()),
            "mi": cycle([0, 59, 30, 0, 60, 1, None, -1], 7, pa.int32()),
            "sec": cycle(seconds, 1, pa.decimal128(16, 6)),
            "zone": cycle(ZONES, 1, pa.string()),
            "day": cycle(WEEKDAYS, 1, pa.string()),
            "unit": cycle(UNITS, 1, pa.string()),
            "ts": pa.array(instants, pa.timestamp("us", tz="UTC")),
            "ntz": pa.array(instants[::-1], pa.timestamp("us")),
            "dt": cycle(FAR_DAYS, 1, pa.int32()).cast(pa.date32()),
            "dec": pa.array([None if s is None else s.scaleb(-2).quantize(Decimal("1e-8")) * (1 - i % 3)
                             for i, s in enumerate((seconds * n)[:n])], pa.decimal128(20, 8)),
        }
    )  # fmt: skip
