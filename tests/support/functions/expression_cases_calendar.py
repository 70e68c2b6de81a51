"""Cases over ``relations.instants`` and ``calendar_fields``."""

# ruff: noqa: E501 - tables of texts
from __future__ import annotations

UNITS = (
    "microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year",
)  # fmt: skip

FIELDS = [
    "make_date(y, mo, d)", "make_date(2024, mo, d)", "make_timestamp(y, mo, d, h, mi, sec)",
    "make_timestamp(2024, 2, d, 23, 59, sec)", "try_make_timestamp(2024, mo, d, h, mi, sec)",
    "make_timestamp_ntz(y, mo, d, h, mi, sec)", "make_timestamp_ltz(2024, mo, d, h, mi, sec, 'Europe/Paris')",
    "try_make_timestamp_ntz(y, 1, 10, 4, 0, sec)", "make_timestamp(2024, 3, 10, 2, mi, 0)", "next_day(dt, day)",
    "next_day(dt, 'FR')", "next_day(date'2024-02-29', day)", "from_utc_timestamp(ts, zone)",
    "to_utc_timestamp(ts, zone)", "from_utc_timestamp(ts, 'America/New_York')", "to_utc_timestamp(ts, 'Europe/Paris')",
    "convert_timezone(zone, 'Pacific/Apia', ntz)", "convert_timezone('Europe/Paris', zone, ntz)",
    "convert_timezone('PST', 'UTC', ntz)", "convert_timezone('Asia/Kolkata', ntz)", "date_trunc(unit, ts)",
    "date_trunc(unit, ntz)", "trunc(dt, unit)", "timestamp_seconds(dec)", "timestamp_seconds(sec)",
    "case when zone = 'PST' then from_utc_timestamp(ts, zone) end", "make_dt_interval(y, mo, mi, sec)",
    "make_dt_interval(d, h)", "make_dt_interval(106751991, 4, 0, sec)", "try_add(ts, make_dt_interval(y))",
    "extract(day from make_dt_interval(y, h, mi, sec))", "extract(hour from make_dt_interval(d, h, mi, sec))",
    "extract(minute from make_dt_interval(-d, h, mi, sec))", "extract(second from make_dt_interval(d, -h, mi, sec))",
    "ts + make_dt_interval(d, h, mi, sec)",
    "make_dt_interval(d, h, mi, sec) * y", "make_dt_interval(0, 0, 0, sec) / mi",
    "make_dt_interval(d, h, mi, sec) / y", "make_dt_interval(-d, h, 0, sec) / (mo - 7)", "make_dt_interval(mi) * mo",
    "make_dt_interval(0, 0, 0, cast(0.000003 as decimal(18,6)) * h) / (mi - 2)",
    "try_multiply(make_dt_interval(h, 1), y)",
    "make_dt_interval(-106751991, -4, 0 * mi, -54.775808) / (mo - 2)", "try_divide(make_dt_interval(d, 7), mo)",
]  # fmt: skip
SPANS = [
    "months_between(ts, ts2)", "months_between(ts, ts2, false)", "months_between(dt, dt2)", "dayname(dt)",
    "monthname(dt)", "extract(yearofweek from ts)", "extract(second from ts)", "extract(second from ntz)",
    "extract(yearofweek from dt)", "dateadd(day, n, dt)", "timestampadd(dayofyear, 3, ts)", "datediff(month, ts, ts2)",
]  # fmt: skip
SPANS += [f"timestampdiff({unit}, ts, ts2)" for unit in UNITS] + ["timestampdiff(hour, ntz, ntz)"]
SPANS += [f"timestampadd({unit}, n, ts)" for unit in UNITS] + ["timestampadd(month, 1, ntz)"]

YEAR_MONTHS = [
    "ts + make_ym_interval(n, 1)", "ts + make_ym_interval(n % 5000, n % 70)", "dt + make_ym_interval(0, n)", "ntz - make_ym_interval(n % 300)",
    "dt - make_ym_interval(n % 300, 7)", "ts + interval '2' month * n", "dt + interval '1-3' year to month * (n % 100)",
    "dt + interval '1' month * cast(n as bigint) * 4000000000", "dt + if(n > 0, interval '1' month, make_ym_interval(1))",
    "ts + case when n > 5 then interval '1' year when n < 0 then make_ym_interval(0, n % 7) end", "dt + cast(null as interval month)",
    "dt + coalesce(make_ym_interval(n % 9), interval '3' month)", "extract(year from make_ym_interval(0, n))",
    "extract(month from make_ym_interval(0, n))", "extract(month from make_ym_interval(n % 100, 5))",
    "if(n < 100, extract(year from make_ym_interval(n, 13)), n)",
]  # fmt: skip
