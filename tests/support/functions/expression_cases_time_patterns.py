"""Cases of Java patterns over ``relations.instants`` and ``written_times``."""

from __future__ import annotations

WRITING = [
    "yyyy-MM-dd HH:mm:ss.SSSSSS", "y M d H m s S", "yy MMM LLLL EEEE E D DDD Q QQ QQQ QQQQ q qqq", "yyyyy G GGGG",
    "GGGG y yyyy yy", "a h hh K KK k kk", "X XX XXX XXXX XXXXX", "x xx xxx xxxx xxxxx", "Z ZZZZ ZZZZZ O OOOO", "VV",
    "'T'HH''mm[ss]", "yyy yyyyy yyyyyy", "日本 SSSSSSSSS", "",
]  # fmt: skip
READING = [
    "yyyy-MM-dd", "yyyy-M-d", "y-M-d", "yyyyMMdd", "yyyyMMddHHmmss", "yyMMdd", "yy-MM-dd", "yyyyMMd", "M/d/yyyy",
    "MM/dd/yyyy hh:mm a", "h:mm a", "K a", "K:m a", "k:mm", "H:mm a", "a", "MMM d yyyy", "MMMM d y", "LLL d yyyy",
    "d MMMM", "yyyy-DDD", "yyyyDDD", "yyyy-DD", "D", "y G", "y GGGG", "yyyy-MM-dd HH:mm:ss",
    "yyyy-MM-dd HH:mm:ss.SSSSSS", "yyyy-MM-dd HH:mm:ss[.SSS]", "yyyy-MM-dd HH:mm:ss.S", "yyyyMMddHHmmssSSS",
    "yyyyMMdd HHmmss.S", "yyyy-MM-dd'T'HH:mm:ssX", "yyyy-MM-dd'T'HH:mm:ssXX", "yyyy-MM-dd'T'HH:mm:ssXXX",
    "yyyy-MM-dd'T'HH:mm:ssXXXX", "yyyy-MM-dd'T'HH:mm:ssXXXXX", "yyyy-MM-dd'T'HH:mm:ssx", "yyyy-MM-dd'T'HH:mm:ssxx",
    "yyyy-MM-dd'T'HH:mm:ssxxx", "yyyy-MM-dd'T'HH:mm:ssZ", "yyyy-MM-dd'T'HH:mm:ssZZZZZ", "XXX", "Z", "MM-dd", "d",
    "y", "yyyy", "yyyyy", "yyyyyy", "yy", "yyyy年MM月dd日", "'K' d", "yyyy-MM[-dd]", "yyyy-MM-dd[ HH:mm[:ss]]",
    "[yyyy-MM-dd][M/d/yyyy]", "d d", "H m", "H:m:s", "h:m:s a", "ss", "s.S", "yyyyMM", "yyyy-DDD[-dd]", "y-M-d[ ]",
    "DDD", "DD", "HH:ss", "k:m", "H:m", "", "'a'yyyy-MM-dd'b'", "K:s", "yyyySmm", "yyyyMMM", "M", "m", "S",
    "yyyy-MM-dd-D", "[G ]yyyy-MM-dd", "yyyy[ G]", "MM-dd[ G]",
]  # fmt: skip

WRITTEN = [f'date_format(ts, "{pattern}")' for pattern in WRITING]
WRITTEN += ["date_format(dt, 'yyyy-MM-dd EEE')", "date_format(ntz, 'yyyy-MM-dd HH:mm')", "to_char(ts, 'yyyy')"]
WRITTEN += ["from_unixtime(n)", "from_unixtime(cast(n as bigint) * 1000000000, 'yyyy G')", "date_format(ts, null)"]
READ = [f'try_to_timestamp(s, "{pattern}")' for pattern in READING]
READ += [f'to_timestamp(s, "{pattern}")' for pattern in READING[:60:6]]
READ += [f'to_timestamp_ntz(s, "{pattern}")' for pattern in READING[3:60:6]]
READ += [f'to_date(s, "{pattern}")' for pattern in ("yyyyMMdd", "M/d/yyyy", "yyyy-DDD")]
READ += ["unix_timestamp(s)", "to_unix_timestamp(s, 'yyyy-MM-dd')", "to_timestamp(s, null)"]
READ += ["case when length(s) = 8 then to_date(s, '[yyyyMMdd][HH:mm:ss][M/d/yyyy]') end"]
READ_IN_ZONE = ["unix_timestamp(s, 'yyyy-MM-dd HH:mm:ss')", "try_to_timestamp(s, \"yyyy-MM-dd'T'HH:mm:ssXXX\")"]
