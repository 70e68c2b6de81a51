"""Cases over ``relations.instants`` and ``relations.moments``."""

from __future__ import annotations

DATE_PARTS = ("year", "quarter", "month", "day", "dayofyear", "dayofweek", "weekday", "weekofyear")
LEVELS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")

PARTS = [f"{part}({column})" for part in DATE_PARTS for column in ("dt", "ts", "ntz")]
PARTS += [f"{part}({column})" for part in ("hour", "minute", "second") for column in ("ts", "ntz")]
PARTS += [f"date_trunc('{level}', ts)" for level in LEVELS] + ["date_trunc('nonsense', ts)", "date_trunc('HOUR', ntz)"]
PARTS += [f"trunc(dt, '{level}')" for level in ("week", "MM", "quarter", "yy", "nonsense")] + ["last_day(dt)"]
CASTS = ["cast(ts as date)", "cast(ntz as date)", "cast(dt as timestamp)", "cast(dt as timestamp_ntz)"]
CASTS += ["cast(ts as timestamp_ntz)", "cast(ntz as timestamp)", "cast(ts as string)", "cast(ntz as string)"]
CASTS += ["cast(dt as string)", "cast(ts as bigint)", "cast(ts as int)", "cast(ts as double)", "cast(ts as float)"]
CASTS += ["try_cast(ts as int)", "cast(ts as smallint)", "unix_seconds(ts)", "unix_millis(ts)", "unix_micros(ts)"]
CASTS += ["unix_timestamp(ts)", "to_unix_timestamp(dt)", "unix_timestamp(ntz)", "unix_date(dt)", "to_date(ts)"]
SUMS = ["date_add(dt, n)", "date_sub(dt, n)", "date_add(dt, 1)", "datediff(dt, dt2)", "datediff(ts, ts2)", "dt - dt2"]
SUMS += [
    "dt + interval 3 days",
    "dt + interval 90 minutes",
    "add_months(dt, n)",
    "add_months(dt, 1)",
    "ts - ts2",
    "ntz - ntz",
]
SUMS += [f"{column} {op} interval {text}" for column in ("ts", "ntz") for op in "+-" for text in ("1 hour", "1 day")]
SUMS += ["ts + interval '1 02:03:04.5' day to second", "ts - interval '30' minute", "ts + interval 1 week"]
SUMS += ["ts + interval 1 month", "ts - interval 13 months", "dt - interval 1 year", "dt + interval 1 month"]
SUMS += [
    "ntz + interval 1 year",
    "ts > ts2",
    "ts = ts2",
    "ts <=> ts2",
    "dt < dt2",
    "dt = cast(ts as date)",
    "ts < ntz",
    "greatest(ts, ts2)",
]
SUMS += [
    "ts in (timestamp'1970-01-01 00:00:00', null)",
    "dt in (date'1970-01-01')",
    "ts > timestamp'2024-03-10 12:00:00'",
]
SUMS += ["date'9999-12-31'", "timestamp'1960-01-01 00:00:00.5'", "timestamp_ntz'2020-01-01 00:00:00'", "interval 1 day"]
SUMS += ["xxhash64(ts, dt)", "if(ts is null, ts2, ts)", "coalesce(dt, dt2)"]
SUMS += ["case when year(ts) >= 1900 and year(ts) <= 2100 then cast(unix_seconds(ts) as int) end"]
WINDOWS = ["window(ts, '10 minutes')", "window(ts, '1 hour', '1 hour', '7 minutes')", "window(ntz, '1 day')"]
WINDOWS += ["window(ts, '5 seconds').end"]

TARGETS = ("date", "timestamp", "timestamp_ntz")
MOMENTS = [f"{cast}(s as {name})" for name in TARGETS for cast in ("cast", "try_cast")]
MOMENTS += ["to_date(s)", "to_timestamp(s)", "if(s like '294%', null, hour(try_cast(s as timestamp)))"]
MOMENTS += ["if(s like '294%', null, cast(try_cast(s as timestamp) as string))"]

ZONED = [
    "sequence(ts, ts + interval 3 hours, interval 1 hour)",
    "sequence(dt, date_add(dt, 3))",
    "transform(array(ts, ts2), t -> hour(t))",
]
ZONED += [
    "cast(array(ts, null) as array<string>)",
    "cast(named_struct('t', ts, 'd', dt) as struct<t:date,d:timestamp>)",
]
SEQUENCES = ["sequence(ts, ts + interval 3 hours, interval 1 hour)", "sequence(ts + interval 5 days, ts)"]
SEQUENCES += ["sequence(ts, ts + interval 50 hours)", "sequence(ntz, ntz + interval 90 minutes, interval 30 minutes)"]
SEQUENCES += [
    "sequence(ntz, ntz + interval 2 days)",
    "sequence(dt, date_add(dt, pmod(n, 5)))",
    "sequence(date_add(dt, 2), dt)",
]
SEQUENCES += ["sequence(dt, date_add(dt, 6), interval 2 days)", "sequence(dt, date_add(dt, 6), interval -2 days)"]
SEQUENCES += [
    "sequence(dt, dt, interval 12 hours)",
    "sequence(ts, ts + interval 1 second, interval '0.4' second)",
    "hash(dt, ts)",
]
