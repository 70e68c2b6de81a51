"""Text and ORC files, partition directories and ``_metadata``: through Spark's own reader and through the source."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.catalyst.trees import arrow_schema, elements
from penstock.connectors.files.source import FileSource
from penstock.errors import DataError, NotSupported, UnfitFile
from penstock.planner.sources import create_source
from tests.support.connectors.kits import check_replay, discover_all, new_reader, read_rows, rows_of
from tests.support.connectors.spark_readers import ours, sparks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def by_text(rows: list[tuple[Any, ...]]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize(
    "options", [{}, {"lineSep": ";"}, {"lineSep": "e\n"}, {"wholetext": "true"}, {"wholetext": "true", "lineSep": ";"}]
)
def test_text(spark: SparkSession, tmp_path: Path, options: Mapping[str, str]) -> None:
    contents = [b"\xef\xbb\xbfone\r\ntwo\rthree\n\nfive\n", b"", b"x;y;\nz;", "grüße; e\n".encode(), b"\n", b";"]
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.txt").write_bytes(content)
    expected = sparks(spark, "text", tmp_path, "line STRING", options)
    assert by_text(ours("text", tmp_path, "line STRING", options)) == by_text(expected)


def test_text_replays(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"{i}\n" for i in range(20)))
    assert check_replay(FileSource("text", str(tmp_path), pa.schema([("v", pa.string())])), max_rows=3) == [
        (str(i),) for i in range(20)
    ]


ORC = """id, cast(id % 100 as byte) b, cast(id as short) s, cast(id as int) i, id * 1.5D d, cast(id as float) f,
    id % 2 = 0 t, concat('x', id) st, cast('ab' as binary) bi, cast(id % 900 as decimal(5,2)) d1,
    cast(id / 3 as decimal(38,18)) d2, cast(-id / 7 as decimal(18,6)) d3,
    date_add(date'0001-01-01', cast(id * 1234 as int)) da, date_add(date'1500-01-01', cast(id * 57 as int)) db,
    array(id, null) ar, map('k', id) ma, named_struct('x', id, 'y', array(id)) sr, if(id % 3 = 0, id, null) nu,
    if(id % 5 = 0, date'1400-02-28', null) dn"""


def test_orc(spark: SparkSession, tmp_path: Path) -> None:
    written = spark.sql(f"SELECT {ORC} FROM range(600)")
    written.coalesce(1).write.orc(str(tmp_path / "in"))
    ddl = f"{written._jdf.schema().toDDL()}, missing STRING"
    expected = sparks(spark, "orc", tmp_path / "in", ddl, {})
    assert len(expected) == 600
    assert by_text(ours("orc", tmp_path / "in", ddl, {})) == by_text(expected)


def test_orc_replays(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(40).coalesce(1).write.orc(str(tmp_path / "in"))
    source = FileSource("orc", str(tmp_path / "in"), pa.schema([("id", pa.int64())]))
    assert check_replay(source, steps=7, max_rows=9) == [(i,) for i in range(40)]


def test_orc_types_that_would_differ_are_refused() -> None:
    for kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.list_(pa.date32())):
        with pytest.raises(NotSupported, match=r"column c.*are not read from ORC files"):
            FileSource("orc", "/in", pa.schema([("c", kind)]))


def stream_source(df: DataFrame) -> FileSource:
    """The source of a streaming DataFrame's relation, with all its columns."""
    node = df._jdf.queryExecution().analyzed()
    while node.children().size():
        node = node.children().apply(0)
    source = create_source(df.sparkSession, node, elements(node.output()), {})
    assert isinstance(source, FileSource)
    assert source.schema == arrow_schema(elements(node.output()))
    return source


def read(source: FileSource) -> list[tuple[Any, ...]]:
    reader = new_reader(source)
    for split in discover_all(source):
        reader.add_split(split)
    return read_rows(reader)


@pytest.mark.parametrize("kind", ["parquet", "json"])
@pytest.mark.parametrize("ddl", ["id BIGINT", "id BIGINT, k STRING", "k DOUBLE, d TIMESTAMP, id BIGINT"])
def test_partition_directories(spark: SparkSession, tmp_path: Path, kind: str, ddl: str) -> None:
    rows = spark.range(6).selectExpr(
        "id",
        "id % 2 k",
        "date_add(date'2020-01-02', cast(id % 2 as int)) d",
        "if(id = 5, null, concat('a/b=ü ', id)) s",
    )
    rows.write.partitionBy("k", "d", "s").format(kind).save(str(tmp_path / "in"))
    path = str(tmp_path / "in")
    expected = rows_of(spark.read.schema(ddl).format(kind).load(path).toArrow())
    source = stream_source(spark.readStream.schema(ddl).format(kind).load(path))
    assert len(expected) == 6
    assert by_text(read(source)) == by_text(expected)
    (tmp_path / "in" / "k=7").mkdir()
    (tmp_path / "in" / "k=7" / "stray").write_text("{}")
    with pytest.raises(DataError, match=r"k=7/stray must lie in directories k=\.\.\./d=\.\.\./s=\.\.\."):
        discover_all(source)


@pytest.mark.parametrize("kind", ["parquet", "orc", "json", "csv"])
def test_partition_directories_that_appear_later(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path, ddl = tmp_path / "in", "v STRING, k INT, d DATE"
    path.mkdir()
    source = stream_source(spark.readStream.schema(ddl).format(kind).load(str(path)))
    assert discover_all(source) == []
    written = spark.range(6).selectExpr(
        "concat('v', id) v", "id % 2 K", "date_add(date'2020-01-02', cast(id as int)) d"
    )
    written.write.partitionBy("K", "d").format(kind).mode("append").save(str(path))
    expected = rows_of(spark.read.schema(ddl).format(kind).load(str(path)).toArrow())
    assert len(expected) == 6
    assert by_text(read(source)) == by_text(expected)
    (path / "other=1").mkdir()
    (path / "other=1" / "x").write_text("{}")
    with pytest.raises(UnfitFile, match=r"in/other=1/x: a directory .* other=\.\.\., and the query has no such column"):
        discover_all(source)


def test_the_base_path_of_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    for k in (1, 2):
        (tmp_path / f"k={k}").mkdir()
        (tmp_path / f"k={k}" / "x").write_text(f"{k}\n")
    pattern = str(tmp_path / "k=*")
    for options in ({"basePath": str(tmp_path)}, {}):
        expected = rows_of(spark.read.options(**options).text(pattern).toArrow())
        assert by_text(read(stream_source(spark.readStream.options(**options).text(pattern)))) == by_text(expected)


@pytest.mark.parametrize("kind", ["parquet", "orc", "text"])
def test_a_partition_alone_counts_the_rows(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    spark.range(20).selectExpr("cast(id as string) id", "id % 2 k").write.partitionBy("k").format(kind).save(
        str(tmp_path / "in")
    )
    source = FileSource(kind, str(tmp_path / "in"), pa.schema([("k", pa.int32())]), partitions=["k"])
    assert sorted(check_replay(source, steps=3, max_rows=3)) == [(0,)] * 10 + [(1,)] * 10


def test_partition_values_that_do_not_fit_are_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "k=1").mkdir()
    (tmp_path / "k=1" / "a").write_text("x")
    source = stream_source(spark.readStream.text(str(tmp_path)))
    (tmp_path / "k=b").mkdir()
    (tmp_path / "k=b" / "a").write_text("y")
    with pytest.raises(DataError, match=r"k=b/a: directory k=b is no value of int32"):
        read(source)


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "text"])
def test_metadata(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "in (1) #ü%"
    spark.range(5).selectExpr("cast(id as string) id").coalesce(1).write.format(kind).save(str(path))
    (file,) = path.glob("part-*")
    renamed = file.rename(path / "a é=[%20].x")
    os.utime(renamed, ns=(5, 1_700_000_000_123_456_789))
    columns = ["id", "_metadata"]
    expected = rows_of(spark.read.schema("id STRING").format(kind).load(str(path)).select(columns).toArrow())
    source = stream_source(spark.readStream.schema("id STRING").format(kind).load(str(path)).select(columns))
    assert len(expected) == 5
    assert json.dumps(read(source), default=str) == json.dumps(expected, default=str)


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_json_files_of_one_value(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    contents = ['[{"a":1},\n{"a":"x"}]', '{"a":\n3}\n{"a":4}', "", "  ", '{"a":', "null", "5", "[]", '\ufeff{"a":9}']
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.json").write_text(content)
    ddl, options = "a INT, _corrupt_record STRING", {"multiLine": "true", "mode": mode}
    assert by_text(ours("json", tmp_path, ddl, options)) == by_text(sparks(spark, "json", tmp_path, ddl, options))


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_other_encodings_and_separators(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    lines = ["1,grüße"] if kind == "csv" else ['{"a": 1, "b": "grüße"}', '{"a": 2,\n"b": "x"}']
    end = "\n" if kind == "csv" else ";"
    (tmp_path / "a").write_bytes(end.join(lines).encode("latin-1"))
    options = {"encoding": "ISO-8859-1"} | ({} if kind == "csv" else {"lineSep": ";"})
    ddl = "a INT, b STRING"
    assert by_text(ours(kind, tmp_path, ddl, options)) == by_text(sparks(spark, kind, tmp_path, ddl, options))


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_corrupt_files_are_named_or_skipped(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    spark.range(50_000).selectExpr("id", "uuid() u").coalesce(1).write.option("compression", "gzip").format(kind).save(
        str(tmp_path / "in")
    )
    (file,) = (tmp_path / "in").glob("part-*")
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    for crc in (tmp_path / "in").glob(".*"):
        crc.unlink()
    ddl = "id BIGINT, u STRING"
    with pytest.raises(DataError, match=r"cannot read .*part-"):
        ours(kind, tmp_path / "in", ddl, {})
    skipped = ours(kind, tmp_path / "in", ddl, {"ignoreCorruptFiles": "true"})
    assert bool(skipped) == (kind == "json")
    assert [row[0] for row in skipped] == list(range(len(skipped)))
