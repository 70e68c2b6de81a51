"""CSV: the same files through Spark's own batch reader and through the source, row by row."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import ConfigError, DataError
from tests.support.connectors.spark_readers import assert_same, ours, sparks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("escape", ['"', "\\"])
def test_nul_in_quotes(spark: SparkSession, tmp_path: Path, escape: str) -> None:
    lines = ['"a\0b",c', '"\0",c', '"a\0"",b",c', 'a\0b,"c\0', '"x"\0,"\0\0a"', '"""\0""",c', '"a\\\0b",c']
    path = tmp_path / "lines.csv"
    path.write_text("\n".join(lines) + "\n")
    assert_same(spark, "csv", path, "a STRING, b STRING, _corrupt_record STRING", {"escape": escape}, lines)


DIALECTS = [
    {},
    {"escape": '"'},
    {"nullValue": "ab", "emptyValue": "E"},
    {"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true"},
]


@pytest.mark.parametrize("options", DIALECTS, ids=str)
def test_every_short_line_is_split_alike(spark: SparkSession, tmp_path: Path, options: dict[str, str]) -> None:
    alphabet = 'a", \\'
    lines = ["".join(chars) for length in range(1, 6) for chars in itertools.product(alphabet, repeat=length)]
    rng = random.Random(4)
    lines += ["".join(rng.choice('ab"",,\\ x') for _ in range(rng.randrange(6, 24))) for _ in range(4000)]
    lines = [line for line in lines if line.strip()]
    path = tmp_path / "lines.csv"
    path.write_text("\n".join(lines) + "\n")
    ddl = "a STRING, b STRING, c STRING, _corrupt_record STRING"
    assert_same(spark, "csv", path, ddl, options, lines)


TEXTS = {
    "INT": ["1", "+1", "-1", " 1", "1.0", "2147483647", "2147483648", "", "abc", "1e3", "٣", "--1", "1_000"],
    "BYTE": ["127", "128", "-128", "-129", "0x1"],
    "BIGINT": ["9223372036854775807", "9223372036854775808", "-9223372036854775808"],
    "DOUBLE": [
        "1", "1.5", ".5", "5.", "1e3", "1E-400", "1e999", "NaN", "nan", "Inf", "-Inf", "inf", "Infinity", "+Infinity",
        "-Infinity", "1d", "1f", " 1 ", "0x1p3", "+NaN", "1_0", "1,5", "e5", "-0.0", "+", "--5",
    ],
    "FLOAT": ["0.1", "16777217", "1e39", "3.4028236e38", "NaN", "Inf"],
    "BOOLEAN": ["true", "TRUE", "False", "t", "1", "yes", " true"],
    "DECIMAL(5,2)": ["1", "1,2", "1.005", "1.015", "999.99", "999.995", "1000", "-0.004", "1e2", "abc", " 1", "1e-10"],
    "DECIMAL(38,18)": ["12345678901234567890.123456789012345678", "1e20", "99999999999999999999.9999999999999999999"],
    "DATE": [
        "2020-01-02", "2020-1-2", "2020", "2020-02", "2020-02-30", "2020-01-02 junk", "2020-01-02T", "2020-01-02x",
        " 2020-01-02 ", "20200102", "0001-01-01", "9999-12-31", "-0001-01-01", "12020-01-01", "2020-13-01",
        "02-01-2020", "2020-01-", "2020-01-02 ", "2020/01/02",
    ],
    "TIMESTAMP": [
        "2020-01-02 03:04:05", "2020-01-02T03:04:05", "2020-01-02 3:4:5", "2020-01-02", "2020", "2020-01",
        "2020-01-02 03:04", "2020-01-02 03", "2020-01-02 03:04:05.", "2020-01-02 03:04:05.1",
        "2020-01-02 03:04:05.123456", "2020-01-02 03:04:05.1234567", "2020-01-02 03:04:05Z", "2020-01-02 03:04:05 Z",
        "2020-01-02 03:04:05+01:00", "2020-01-02 03:04:05+1", "2020-01-02 03:04:05+01:00:30", "2020-01-02 03:04:05 UTC",
        "2020-01-02 03:04:05 Europe/Berlin", "2020-07-02 03:04:05 America/New_York", "2020-01-02 03:04:05 Nowhere/X",
        "2020-01-02 03:04:05.5+02:00", "2020-01-02 24:00:00", "2020-01-02 23:59:60", "2020-02-30 00:00:00", "x",
        "2020-01-02 03:04:05 +010203",
        "2020-01-02T03:04:05GMT+01:00", "2020-03-29 02:30:00 Europe/Berlin", "2020-10-25 02:30:00 Europe/Berlin",
        " 2020-01-02 03:04:05 ", "2020-01-02 03:04:05.1 PST", "2020-01-02 03:04Z", "2020-01-02 03:04+01:00",
        "1577934245",         "2020-01-02 ", "2020-01-02T", "2020-01-02  03:04:05",
        "2020-01-02 03:04:05 +01:00", "2020-01-02 03:04:05+25:00",
        "1900-01-01 00:00:00", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2020-01-02 03:04:05-0800",
    ],
    "TIMESTAMP_NTZ": ["2020-01-02 03:04:05", "2020-01-02 03:04:05.123", "2020-01-02 03:04:05Z", "2020-01-02", "x"],
    "STRING": ["a", " a ", "", "null", "\\N"],
    "BINARY": ["abc", "ä"],
}  # fmt: skip


@pytest.mark.parametrize("kind", TEXTS)
def test_every_text_is_converted_alike(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    texts = TEXTS[kind]
    path = tmp_path / "texts.csv"
    path.write_text("".join(f"{text}|{i}\n" for i, text in enumerate(texts)))
    assert_same(spark, "csv", path, f"a {kind}, i INT, _corrupt_record STRING", {"sep": "|"}, texts)


ODD_TIMES = [
    "+12020-01-01 00:00:00", "+12020-07-01 23:59:59.999999 Europe/Berlin", "12020-01-01 03:04:05+01:00", "-0001-01-01",
    "+99999-12-31T23:59:59", "+294247-01-10 04:00:54.775807", "+294247-01-10 04:00:54.775808Z", "GMT2024-01-01",
    "2024-01-01GMT", "2024-01-01 03:04:05 GMT", "2024-01-01 03:04:05 GMT0", "2024-01-01T03:04:05 EST",
    "2024-01-01GMT 03", "2024-01-01 03:04:05 UTC+1", "2024-01-01 03:04:05+1:2", "0000-01-01 00:00:00",
    "1800-06-01 12:00:00",
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text_format"), [("csv", "{text}|{i}\n"), ("json", '{{"a": "{text}", "i": {i}}}\n')])
def test_times_far_away_and_oddly_written_are_read_alike(
    spark: SparkSession, tmp_path: Path, kind: str, text_format: str
) -> None:
    path = tmp_path / "texts"
    path.write_text("".join(text_format.format(text=text, i=i) for i, text in enumerate(ODD_TIMES)))
    for column in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        options = {"sep": "|", "timeZone": "America/New_York"} if kind == "csv" else {"timeZone": "America/New_York"}
        assert_same(spark, kind, path, f"a {column}, i INT, _corrupt_record STRING", options, ODD_TIMES)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_time_of_day_is_no_time(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "texts"
    line = "T03:04:05" if kind == "csv" else '{"a": "T03:04:05"}'
    path.write_text(line + "\n")
    assert ours(kind, path, "a TIMESTAMP, _corrupt_record STRING", {}) == [(None, line)]


def test_patterns_and_zones_that_are_not_known_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("2020-01-02\n")
    with pytest.raises(ConfigError, match="dateFormat='yyyy-mm-dd'"):
        ours("csv", tmp_path / "texts", "a DATE", {"dateFormat": "yyyy-mm-dd"})
    with pytest.raises(ConfigError, match=r"timeZone='Nowhere/Land'.* it is no time zone"):
        ours("csv", tmp_path / "texts", "a DATE", {"timeZone": "Nowhere/Land"})


@pytest.mark.parametrize(("kind", "options", "texts"), [
    ("DATE", {"dateFormat": "yyyy-MM-dd"}, ["2020-01-02", "2020-1-2", "2020-01-02 x", "2020", "2020-02-30"]),
    (
        "TIMESTAMP",
        {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]"},
        ["2020-01-02T03:04:05", "2020-01-02T03:04:05.123", "2020-01-02T03:04:05.123+01:00", "2020-01-02T03:04:05Z",
         "2020-01-02 03:04:05", "2020-01-02T03:04:05.1", "2020-01-02T03:04:05.12Z",
         "2020-01-02T03:04:05.1234", "2020-01-02", "x"],
    ),
])  # fmt: skip
def test_explicit_iso_formats_are_strict(
    spark: SparkSession, tmp_path: Path, kind: str, options: dict[str, str], texts: list[str]
) -> None:
    path = tmp_path / "texts.csv"
    path.write_text("".join(f"{text}|{i}\n" for i, text in enumerate(texts)))
    assert_same(spark, "csv", path, f"a {kind}, i INT, _corrupt_record STRING", {"sep": "|", **options}, texts)


MALFORMED = ["1,a,2020-01-01", "x,b,2020-01-02", "2,c", "3,d,2020-01-03,extra", "", "   ", "#note", "4,,", ",,", "5"]


@pytest.mark.parametrize("ddl", ["a INT, b STRING, c DATE", "a INT, _corrupt_record STRING, b STRING, c DATE"])
@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
@pytest.mark.parametrize("header", ["true", "false"])
def test_malformed_rows(spark: SparkSession, tmp_path: Path, mode: str, header: str, ddl: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("\n# first\na,b,c\r\n" + "\r\n".join(MALFORMED))
    assert_same(spark, "csv", path, ddl, {"mode": mode, "header": header, "comment": "#"}, [])


def test_failfast_names_file_and_line(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("1\n2\nx\n")
    with pytest.raises(DataError, match=r"rows\.csv, line 3.*'x' is no value of column a"):
        ours("csv", path, "a INT", {"mode": "FAILFAST"})
    with pytest.raises(Exception, match="MALFORMED_RECORD_IN_PARSING"):
        sparks(spark, "csv", path, "a INT", {"mode": "FAILFAST"})
