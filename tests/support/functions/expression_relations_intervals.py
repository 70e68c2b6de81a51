"""Edge values of calendar intervals: as texts, and as the numbers that ``make_interval`` takes."""

# ruff: noqa: E501 - tables of texts
from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa

# fmt: off
TEXTS = [
    None, "", " ", "interval", "interval ", "interval 1 day", "Interval\t-1 DAYS", "interval1 day", "intervals 1 day", "1", "1 ",
    "5 seconds", "5 second", "5 secondss", "5seconds", "5\tseconds\n", "5\x1cseconds", "5\x01seconds", "\x005 seconds\x1f", "5 seconds ago",
    "0 seconds", "-7 seconds", "- 7 seconds", "+7 seconds", "+ 7 seconds", "--7 seconds", "-  seconds", "- seconds", "+-7 seconds",
    "1.5 seconds", ".5 seconds", "-.5 seconds", "- .25 seconds", "-. seconds", ". seconds", "+. seconds", "1. seconds", "1.  seconds",
    "1.123456789 seconds", "1.1234567891 seconds", "0.000000999 seconds", "-0.000001999 seconds", "1.5 days", "1. minutes", "1.0 milliseconds",
    "1 year 2 months", "1 month -1 day", "1 week 3 days 4 hours 5 minutes 6 seconds 7 milliseconds 8 microseconds", "2 weeks", "1 day1 hour",
    "1 month1 day", "1 months1 day", "1 day 1", "1 day 1 ", "1 day hour", "1 fortnight", "1 nanosecond", "1 y", "3 minute", "3 minutes 3 minutes",
    "178956970 years", "178956971 years", "2147483647 months 1 month", "2147483648 days", "-2147483648 days", "1 year -2147483648 months",
    "306783378 weeks", "306783379 weeks", "9223372036854775807 microseconds", "9223372036854775808 microseconds",
    "-9223372036854775808 microseconds", "9223372036854775807 microseconds 1 microsecond", "2562047788 hours", "2562047789 hours",
    "9223372036854775807 microseconds -1 second 1 second", "9223372036854.775807 seconds", "9223372036854.775808 seconds",
    "99999999999999999999 seconds", "00000000000000000000000000007 seconds", "1 we\u212a", "\uff11 day", "1 day\u00a0", "\u00a01 day", "1 DAY\u0130",
    "24 hours", "1 days", "-1 months", "1 month 1 day", "-1 year 13 months", "interval 5 seconds 5 minutes", "interval interval 5 seconds",
]
# fmt: on
SECONDS = ["0", "0.000001", "-59.999999", "61.5", "999999999999.999999", "-999999999999.999999"]
INTS = [None, 0, 1, -1, 5, 25, -13, 1000, 2**31 - 1, -(2**31), 178956970]
MOMENTS = [
    datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 1, 31, 5, 30, tzinfo=UTC), datetime(2024, 3, 9, 7, 15, 30, tzinfo=UTC),
    datetime(2024, 11, 2, 5, 30, 0, 999_999, tzinfo=UTC), datetime(1899, 12, 31, 23, tzinfo=UTC), None,
]  # fmt: skip


def interval_texts() -> pa.Table:
    """Columns ``ts``, ``ntz`` and ``s``: every text at every moment; and terms put together by chance."""
    chance = random.Random(8)
    pieces = [
        "1",
        "-2",
        "+",
        " ",
        "  ",
        "day",
        "hours",
        "month",
        "s",
        "second",
        "milliseconds",
        ".5",
        ".",
        "interval",
        "3.25",
        "week",
    ]
    made = ["".join(chance.choices(pieces, k=chance.randrange(2, 8))) for _ in range(120)]
    terms = [" ".join(chance.choices(pieces[:3] + pieces[5:], k=chance.randrange(2, 7))) for _ in range(120)]
    rows = [(moment, text) for text in [*TEXTS, *terms[:60]] for moment in MOMENTS]
    rows += [(MOMENTS[2], text) for text in made + terms]
    return pa.table(
        {
            "id": pa.array(range(len(rows)), pa.int32()),
            "ts": pa.array([moment for moment, _ in rows], pa.timestamp("us", tz="UTC")),
            "ntz": pa.array([moment for moment, _ in rows], pa.timestamp("us")),
            "s": pa.array([text for _, text in rows], pa.string()),
        }
    )


def interval_numbers() -> pa.Table:
    """Columns ``ts`` and the numbers ``y``, ``mo``, ``w``, ``d``, ``h``, ``mi`` and ``sec``, mostly small ones."""
    chance = random.Random(9)
    columns: dict[str, pa.Array] = {}
    count = 400
    columns["id"] = pa.array(range(count), pa.int32())
    columns["ts"] = pa.array([MOMENTS[n % len(MOMENTS)] for n in range(count)], pa.timestamp("us", tz="UTC"))
    for name in ("y", "mo", "w", "d", "h", "mi"):
        columns[name] = pa.array(
            [chance.choice(INTS) if chance.random() < 0.08 else chance.randint(-3, 3) for _ in range(count)], pa.int32()
        )
    columns["sec"] = pa.array([Decimal(chance.choice(SECONDS)) for _ in range(count)], pa.decimal128(18, 6))
    return pa.table(columns)


SUMS_OF_TEXTS = [
    "case when length(s) < 14 then ts + cast(s as interval) end",
    "ts + cast(s as interval)", "ntz + cast(s as interval)", "ts + try_cast(s as interval)", "ts + cast(lower(s) as interval)",
    "ts + case when length(s) > 9 then cast(s as interval) when s is null then make_interval(0, 0, 2) else make_interval(0, 1) end",
    "ts + cast(concat(length(s) - 9, ' seconds') as interval)",
]  # fmt: skip
SUMS_OF_NUMBERS = [
    "ts + make_interval(y % 9, mo % 9, w % 9, d % 9, h % 9, mi % 9, sec)",
    "ts + make_interval(y, mo, w, d, h, mi, sec)", "ts + try_make_interval(y, mo, w, d, h, mi, sec)",
    "ts + make_interval(0, 0, 0, d)", "ts + make_interval(0, 0, 0, 0, h, mi)", "ts + make_interval(0, 0, 0, 0, 0, 0, sec)",
    "ts + make_interval(y, mo)", "ts + try_make_interval(y, mo, w)",
    "ts + if(d > 0, make_interval(0, mo, 0, d), cast(concat(mi, ' minutes') as interval))",
]  # fmt: skip
