"""Unusual Parquet and ORC files, read by Spark's reader and by the file source."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyarrow import orc
from pyspark.errors import PySparkException

from penstock.catalyst.types import to_arrow_schema, to_arrow_type
from penstock.connectors.files.source import FileSource
from penstock.errors import DataError, NotSupported
from tests.support.connectors.file_oracle import differences
from tests.support.connectors.kits import discover_all, new_reader, read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FAR = [
    "-4712-01-01 12:00:00", "-4713-11-23 12:00:00", "-4713-11-24 00:00:00", "-4800-01-01 00:00:00.000001",
    "-290308-12-21 19:59:05.224192", "+294247-01-10 04:00:54.775807", "1500-01-01 00:00:00.000001",
    "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00", "2020-01-01 00:00:00",
]  # fmt: skip
"""Julian day 0 began on -4713-11-24. Spark's writer overflows at the end of its range."""
NULL_AS = [
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(5,2)", "decimal(20,2)", "string",
    "binary", "date", "timestamp", "timestamp_ntz", "array<int>", "struct<a:int>", "void",
]  # fmt: skip


@pytest.mark.parametrize("dictionary", ["true", "false"])
def test_int96_of_all_times(spark: SparkSession, tmp_path: Path, dictionary: str) -> None:
    values = ", ".join(f"({i}, timestamp'{time}')" for i, time in enumerate([*FAR, *FAR]))
    rows = spark.sql(f"SELECT * FROM VALUES {values}, (99, null) AS v(i, t)").selectExpr(
        "i", "t", "array(t, null) a", "map(i, t) m", "map(i, named_struct('x', t, 'n', i)) ms",
        "named_struct('x', t, 'y', array(t)) s", "if(i % 2 = 0, null, named_struct('x', t)) sn",
        "if(i % 3 = 0, null, array(t)) an",
    )  # fmt: skip
    writer = rows.coalesce(1).write.option("parquet.enable.dictionary", dictionary)
    writer.parquet(str(tmp_path / "in"))
    (file,) = (tmp_path / "in").glob("part-*")
    assert pq.ParquetFile(file).schema.column(1).physical_type == "INT96"
    for ddl in (rows._jdf.schema().toDDL(), "t TIMESTAMP, s STRUCT<x: TIMESTAMP>", "t TIMESTAMP_NTZ", "i INT"):
        assert not differences(spark, "parquet", tmp_path / "in", ddl)


def test_int96_of_other_writers(spark: SparkSession, tmp_path: Path) -> None:
    """pyarrow stores its own schema in the file, which says that the columns are timestamps."""
    times = pa.array([0, None, -(10**15), 10**15], pa.timestamp("us"))
    table = pa.table(
        {"t": times, "a": pa.array([[0], None, [], [None, 5]], pa.list_(pa.timestamp("us"))), "n": range(4)}
    )
    pq.write_table(table, tmp_path / "x", use_deprecated_int96_timestamps=True, row_group_size=2)
    assert not differences(spark, "parquet", tmp_path, "n BIGINT, a ARRAY<TIMESTAMP>, t TIMESTAMP")


@pytest.mark.parametrize("times", ["INT96", "TIMESTAMP_MICROS"])
def test_files_in_the_calendar_of_spark_2(
    spark: SparkSession, tmp_path: Path, times: str, spark_conf: Callable[[str, str], None]
) -> None:
    spark_conf("spark.sql.parquet.int96RebaseModeInWrite", "LEGACY")
    spark_conf("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    spark_conf("spark.sql.parquet.outputTimestampType", times)
    moments = ["0001-01-01 00:00:00", "1500-02-28 23:59:59.999999", "1582-10-04 12:00:00", "1582-10-15 00:00:00",
               "1899-12-31 23:59:59", "2020-01-01 00:00:00"]  # fmt: skip
    values = ", ".join(f"(timestamp'{moment}')" for moment in moments)
    rows = spark.sql(
        "SELECT t, date(t) d, array(t, null) a, named_struct('d', date(t)) s, t::timestamp_ntz n"
        f" FROM VALUES {values}, (null) AS v(t)"
    )
    rows.coalesce(1).write.parquet(str(tmp_path / "in"))
    assert not differences(spark, "parquet", tmp_path / "in", rows._jdf.schema().toDDL())
    spark_conf("spark.sql.session.timeZone", "Europe/Berlin")
    rows.coalesce(1).write.parquet(str(tmp_path / "zone"))
    schema = pa.schema([("t", pa.timestamp("us", tz="UTC"))])
    with pytest.raises(
        DataError, match=r"column t: it has times before 1900 in the calendar of Spark 2 and the zone Eur"
    ):
        read(FileSource("parquet", str(tmp_path / "zone"), schema))


def sparks_rows(spark: SparkSession, kind: str, folder: Path, ddl: str) -> int | None:
    """Return the rows that Spark reads; None if it fails."""
    try:
        return len(spark.read.format(kind).schema(ddl).load(str(folder)).collect())
    except (PySparkException, Py4JJavaError):
        return None


@pytest.mark.one_in(3)
@pytest.mark.parametrize("wanted", NULL_AS)
def test_a_column_of_nothing_but_nulls(spark: SparkSession, tmp_path: Path, wanted: str) -> None:
    """pandas writes it as 32-bit integers of the logical type Null."""
    nested = pa.StructArray.from_arrays([pa.nulls(2), pa.array([1, 2])], ["x", "y"])
    lists = pa.array([[None], []], pa.list_(pa.null()))
    pq.write_table(pa.table({"i": [1, 2], "n": pa.nulls(2), "s": nested, "l": lists}), tmp_path / "x")
    for ddl in (f"i BIGINT, n {wanted}", f"s STRUCT<x: {wanted}, y: BIGINT>", f"l ARRAY<{wanted}>"):
        if sparks_rows(spark, "parquet", tmp_path, ddl) is None:
            schema = to_arrow_schema(spark.createDataFrame([], ddl).schema.json())
            with pytest.raises(DataError, match=r"/x: column [nsl] of type .*null.* cannot be read as"):
                read(FileSource("parquet", str(tmp_path), schema))
        else:
            assert not differences(spark, "parquet", tmp_path, ddl)


def read(source: FileSource) -> list[tuple[object, ...]]:
    reader = new_reader(source)
    for split in discover_all(source):
        reader.add_split(split)
    return read_rows(reader)


def test_names_that_differ_in_case(spark: SparkSession, tmp_path: Path, spark_conf: Callable[[str, str], None]) -> None:
    inner = pa.StructArray.from_arrays([pa.array([5, 6]), pa.array([7, 8])], ["x", "X"])
    pq.write_table(pa.table({"a": [1, 2], "A": [3, 4], "s": inner}), tmp_path / "x")
    (tmp_path / "orc").mkdir()
    orc.write_table(pa.table({"a": [1, 2], "A": [3, 4]}), tmp_path / "orc" / "x")
    schema = pa.schema([("A", pa.int64()), ("a", pa.int64()), ("b", pa.int64())])
    deep = pa.schema([("s", pa.struct([("X", pa.int64())]))])
    for kind, folder in (("parquet", tmp_path), ("orc", tmp_path / "orc")):
        with pytest.raises(DataError, match="/x has more than one column A: a, A"):
            read(FileSource(kind, str(folder), schema))
        spark_conf("spark.sql.caseSensitive", "true")
        expected = spark.read.schema("A BIGINT, a BIGINT, b BIGINT").format(kind).load(str(folder)).collect()
        assert read(FileSource(kind, str(folder), schema, case_sensitive=True)) == [tuple(row) for row in expected]
        spark_conf("spark.sql.caseSensitive", "false")
    with pytest.raises(DataError, match=r"/x: column s of type .* cannot be read"):
        read(FileSource("parquet", str(tmp_path), deep))
    spark_conf("spark.sql.caseSensitive", "true")
    expected = spark.read.schema("s STRUCT<X: BIGINT>").parquet(str(tmp_path)).collect()
    found = read(FileSource("parquet", str(tmp_path), deep, case_sensitive=True))
    assert found == [({"X": row.s.X},) for row in expected] == [({"X": 7},), ({"X": 8},)]


def test_strings_that_are_no_utf8(spark: SparkSession, tmp_path: Path) -> None:
    raw = pa.array([b"a\xff\xfeb", b"\xed\xa0\x80", None, "grüße".encode()], pa.binary())
    texts = raw.view(pa.string())
    offsets = pa.array([0, 1, None, 3, 4], pa.int32())
    keys = pa.array(["k"] * 4)
    columns = {
        "s": texts,
        "b": raw,
        "l": pa.ListArray.from_arrays(offsets, texts),
        "m": pa.MapArray.from_arrays(offsets, keys, texts),
        "o": pa.StructArray.from_arrays([texts], ["x"]),
    }
    pq.write_table(pa.table(columns), tmp_path / "x", store_schema=False)
    ddl = "s STRING, b STRING, l ARRAY<STRING>, m MAP<STRING, STRING>, o STRUCT<x: STRING>"
    assert not differences(spark, "parquet", tmp_path, ddl)


def test_rows_that_pyarrow_misses_are_an_error(tmp_path: Path) -> None:
    """A file that Spark reads, and pyarrow 26 reads as one without rows."""
    table = pa.table({"l": pa.array([[]], pa.list_(pa.bool_()))})
    pq.write_table(table, tmp_path / "x", data_page_version="2.0", data_page_size=64, compression="gzip")
    with pytest.raises(DataError, match="/x: 1 rows are missing in what pyarrow reads of it"):
        read(FileSource("parquet", str(tmp_path), pa.schema([("l", pa.list_(pa.bool_()))])))


def test_binary_columns_of_orc_are_not_read_as_strings(tmp_path: Path) -> None:
    """Spark prints them as hexadecimal digits."""
    orc.write_table(pa.table({"b": pa.array([b"abc"])}), tmp_path / "x")
    with pytest.raises(DataError, match="/x: column b of type binary cannot be read as string"):
        read(FileSource("orc", str(tmp_path), pa.schema([("b", pa.string())])))


def test_orc_columns_without_names_are_refused(tmp_path: Path) -> None:
    """Spark reads them by position."""
    orc.write_table(pa.table({"_col0": [1], "_col1": [2]}), tmp_path / "x")
    with pytest.raises(DataError, match="/x was written by Hive without names of columns"):
        read(FileSource("orc", str(tmp_path), pa.schema([("a", pa.int64())])))


def test_void_in_other_types(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("SELECT id, map() m, array() e, map('k', null) v, named_struct('x', null) s FROM range(3)")
    rows.coalesce(1).write.parquet(str(tmp_path / "in"))
    with pytest.raises(NotSupported, match="column m: maps with keys of type void are not supported"):
        to_arrow_schema(rows.schema.json())
    assert to_arrow_type({"type": "struct", "fields": [
        {"name": "x", "type": "void", "nullable": False, "metadata": {}}]}).field(0).nullable  # fmt: skip
    ddl = "id BIGINT, e ARRAY<VOID>, v MAP<STRING, VOID>, s STRUCT<x: VOID>"
    assert not differences(spark, "parquet", tmp_path / "in", ddl)


def test_an_unexpected_error_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lines.json").write_text('{"a": 1}\n')

    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("penstock.connectors.files.json.reading._JsonParser.fast_path", broken)
    with pytest.raises(DataError, match=re.escape(f"cannot read {tmp_path}/lines.json: KeyError: 'a bug'")):
        read(FileSource("json", str(tmp_path), pa.schema([("a", pa.int64())]), {"ignoreCorruptFiles": "true"}))
