"""File sinks' formats against Spark: text formats byte for byte, all of them through Spark's readers."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.connectors.files.csv.sink import csv_sink_format
from penstock.connectors.files.format import FileFormat
from penstock.connectors.files.json.sink import json_sink_format
from penstock.connectors.files.parquet.sink import ParquetFormat, parquet_sink_format
from penstock.connectors.files.text.sink import text_sink_format
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import ConfigError, NotSupported
from tests.support.connectors.kits import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_US, _UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")
FLAT = pa.schema(
    {
        "b": pa.bool_(), "y": pa.int8(), "s": pa.int16(), "i": pa.int32(), "l": pa.int64(), "f": pa.float32(),
        "d": pa.float64(), "x": pa.string(), "t": pa.date32(), "ts": _UTC, "ntz": _US, "d9": pa.decimal128(9, 2),
        "d18": pa.decimal128(18, 18), "d38": pa.decimal128(38, 10),
    }
)  # fmt: skip
NESTED = pa.schema(
    {
        "n": pa.binary(),
        "a": pa.list_(pa.string()),
        "st": pa.struct({"p": pa.int32(), "q r": pa.struct({"z": pa.float64()})}),
        "m": pa.map_(pa.string(), _UTC),
        "deep": pa.list_(pa.struct({"k": pa.map_(pa.string(), pa.list_(pa.int32()))})),
        "none": pa.struct({"p": pa.int32()}),
    }
)
ALL = pa.schema([*FLAT, *NESTED])
TEXTS = [
    "", "a", " a ", "  ", 'q"q', '"', '"x"', "a,b", ' a,"b\\ ', "\\", "\\\\", "a\\,b", "#c", "\tq", "é😀", '\\"', "'",
    "NULL", "\u2028", "\x7f", "null", "{}", "a;b", "|",
]  # fmt: skip
LINE_ENDS = ["x\ny", "x\ry", "\n", " \n ", "\x00z", "\x01\x1f\b\f"]
_YEAR_US = 31_556_952_000_000


def strings(*names: str) -> pa.Schema:
    return pa.schema({name: pa.string() for name in names})


class Values:
    """Random values of Arrow types, awkward ones often."""

    def __init__(self, seed: int, texts: list[str]) -> None:
        self._random = random.Random(seed)
        self._texts = texts

    def array(self, kind: pa.DataType, rows: int) -> pa.Array:
        return pa.array([self.value(kind) for _ in range(rows)], kind)

    def value(self, kind: pa.DataType) -> Any:
        rng = self._random
        if rng.random() < 0.2:
            return None
        if pa.types.is_struct(kind):
            return {field.name: self.value(field.type) for field in kind}
        if pa.types.is_list(kind):
            return [self.value(kind.value_type) for _ in range(rng.randrange(4))]
        if pa.types.is_map(kind):
            return [(key, self.value(kind.item_type)) for key in rng.sample(self._texts, rng.randrange(3))]
        return self._scalar(kind)

    def _scalar(self, kind: pa.DataType) -> Any:
        rng = self._random
        if pa.types.is_boolean(kind):
            return rng.random() < 0.5
        if pa.types.is_integer(kind):
            limit = 1 << (kind.bit_width - 1)
            return rng.choice([0, 1, -1, limit - 1, -limit, rng.randrange(-limit, limit)])
        if pa.types.is_floating(kind):
            # 2.0E-3 and the like show where digits are plain and where they have an exponent.
            awkward = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e10, 1e7, 9999999.0, 1e-3, 2e-3, 1e-5]
            value = rng.choice([*awkward, rng.uniform(-1e3, 1e3), rng.gauss(0, 1) * 10.0 ** rng.randrange(-30, 30)])
            return pa.scalar(value, pa.float64()).cast(kind).as_py()
        if pa.types.is_decimal(kind):
            digits = rng.randrange(kind.precision + 1)
            unscaled = rng.choice([0, 1, rng.randrange(10**digits)])
            return Decimal(rng.choice([1, -1]) * unscaled).scaleb(-kind.scale)
        if pa.types.is_date(kind):
            return rng.choice([0, -1, -719_162, -141_428, -141_427, 2_932_896, rng.randrange(-700_000, 700_000)])
        if pa.types.is_timestamp(kind):
            return rng.choice([0, -1, 999, -12_219_292_800_000_001, rng.randrange(-1_900 * _YEAR_US, 5_000 * _YEAR_US)])
        return rng.choice(self._texts).encode() if pa.types.is_binary(kind) else rng.choice(self._texts)

    def table(self, schema: pa.Schema, rows: int) -> pa.Table:
        return pa.Table.from_arrays([self.array(field.type, rows) for field in schema], schema=schema)


def write(file_format: FileFormat, table: pa.Table, path: Path) -> Path:
    """Write the rows in several pieces, like slots."""
    target = path / f"part-00000{file_format.suffix}"
    path.mkdir()
    writer = file_format.create(target)
    for start in range(0, table.num_rows, 37):
        writer.write(table.slice(start, 37))
    writer.close()
    return target


def by_spark(spark: SparkSession, kind: str, table: pa.Table, path: Path, options: Mapping[str, str]) -> bytes:
    schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    spark.createDataFrame(table, schema).coalesce(1).write.format(kind).options(**options).save(str(path))
    (part,) = path.glob("part-*")
    return part.read_bytes()


def assert_reads_back(spark: SparkSession, kind: str, table: pa.Table, path: Path, **options: str) -> None:
    """Spark sees in our file what was written."""
    schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    read = spark.read.format(kind).schema(schema).options(**options).load(str(path)).toArrow()
    assert list(map(repr, rows_of(read))) == list(map(repr, rows_of(table)))


def _csv(schema: pa.Schema, options: Mapping[str, str], zone: str = "UTC") -> FileFormat:
    return csv_sink_format(schema, OptionTexts("csv sink", options), zone)


def _json(schema: pa.Schema, options: Mapping[str, str], zone: str = "UTC") -> FileFormat:
    return json_sink_format(schema, OptionTexts("json sink", options), zone, True)


@pytest.mark.spark
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
@pytest.mark.parametrize(("kind", "schema", "make"), [("csv", FLAT, _csv), ("json", ALL, _json)], ids=["csv", "json"])
def test_texts_are_sparks(
    spark: SparkSession,
    spark_conf: Callable[[str, str], None],
    tmp_path: Path,
    kind: str,
    schema: pa.Schema,
    make: Callable[..., FileFormat],
    zone: str,
) -> None:
    spark_conf("spark.sql.session.timeZone", zone)
    table = Values(len(zone), TEXTS + LINE_ENDS).table(schema, 300)
    ours = write(make(schema, {}, zone), table, tmp_path / "ours").read_bytes()
    theirs = by_spark(spark, kind, table, tmp_path / "sparks", {})
    assert ours.split(b"\n") == theirs.split(b"\n")


CSV_STYLES: list[dict[str, str]] = [
    {"header": "true"},
    {"quoteAll": "true"},
    {"quoteAll": "true", "nullValue": "a", "emptyValue": "E"},
    {"nullValue": "NULL", "emptyValue": ""},
    {"nullValue": 'a"b', "emptyValue": "a,b"},
    {"nullValue": "#"},
    {"escape": '"'},
    {"sep": "\t", "quote": "'"},
    {"delimiter": "|", "quote": "|", "escape": "|"},
    {"sep": "]", "escape": "^"},
    {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"},
    {"ignoreTrailingWhiteSpace": "false", "sep": " "},
    {"timeZone": "Europe/Berlin"},
]


@pytest.mark.spark
def test_every_style_of_csv_is_sparks(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema({"a": pa.string(), 'b "c': pa.string(), "ts": _UTC, "d": pa.float64(), "x": pa.string()})
    for number, style in enumerate(CSV_STYLES):
        table = Values(number, TEXTS + LINE_ENDS).table(schema, 150)
        ours = write(_csv(schema, style), table, tmp_path / f"ours{number}").read_bytes()
        theirs = by_spark(spark, "csv", table, tmp_path / f"sparks{number}", style)
        assert ours.split(b"\n") == theirs.split(b"\n"), style


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["csv", "text"])
def test_single_columns_are_sparks(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """A null may be nothing at all: Spark writes no empty lines in CSV, and does in text."""
    schema = strings("value")
    table = Values(5, TEXTS + LINE_ENDS).table(schema, 100)
    made = _csv(schema, {}) if kind == "csv" else text_sink_format(schema, OptionTexts("text sink", {}))
    ours = write(made, table, tmp_path / "ours").read_bytes()
    assert ours.split(b"\n") == by_spark(spark, kind, table, tmp_path / "sparks", {}).split(b"\n")


@pytest.mark.spark
def test_null_fields_of_json_may_be_written(spark: SparkSession, tmp_path: Path) -> None:
    table = Values(6, TEXTS).table(NESTED, 100)
    options = {"ignoreNullFields": "false"}
    ours = write(_json(NESTED, options), table, tmp_path / "ours").read_bytes()
    assert ours.split(b"\n") == by_spark(spark, "json", table, tmp_path / "sparks", options).split(b"\n")


def whole_millis(table: pa.Table) -> pa.Table:
    """The default formats of times end at milliseconds, Spark's too."""
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            micros = table.column(place).combine_chunks().cast(pa.int64()).to_numpy(zero_copy_only=False)
            valid = table.column(place).combine_chunks().is_valid()
            cut = pa.array(np.nan_to_num(micros).astype(np.int64) // 1000 * 1000).cast(field.type)
            table = table.set_column(place, field, pa.compute.if_else(valid, cut, pa.scalar(None, field.type)))
    return table


@pytest.mark.spark
@pytest.mark.parametrize("compression", ["none", "gzip", "bzip2"])
def test_spark_reads_what_was_written_as_text(spark: SparkSession, tmp_path: Path, compression: str) -> None:
    options = {"compression": compression}
    table = whole_millis(Values(7, ["a", "b,c", 'q"q', "é😀", "x y", "\\", '\\"']).table(FLAT, 200))
    write(_csv(FLAT, options), table, tmp_path / "csv")
    assert_reads_back(spark, "csv", table, tmp_path / "csv")
    write(_json(FLAT, options), table, tmp_path / "json")
    assert_reads_back(spark, "json", table, tmp_path / "json")
    lines = Values(8, ["a", " b ", "", "é"]).table(strings("value"), 50)
    lines = pa.table({"value": lines.column(0).fill_null("")})
    write(text_sink_format(lines.schema, OptionTexts("text sink", options)), lines, tmp_path / "text")
    assert_reads_back(spark, "text", lines, tmp_path / "text")


@pytest.mark.spark
@pytest.mark.parametrize("compression", ["snappy", "zstd", "none"])
def test_spark_reads_what_was_written_as_parquet(spark: SparkSession, tmp_path: Path, compression: str) -> None:
    table = Values(9, TEXTS + LINE_ENDS).table(ALL, 200)
    made = parquet_sink_format(ALL, OptionTexts("parquet sink", {"compression": compression}))
    path = write(made, table, tmp_path / "ours")
    assert_reads_back(spark, "parquet", table, path.parent)


@pytest.mark.parametrize("compression", ["none", "gzip", "bzip2"])
@pytest.mark.parametrize("header", ["true", "false"])
def test_merged_csv_has_one_header(tmp_path: Path, compression: str, header: str) -> None:
    schema = pa.schema({"a": pa.string(), "b": pa.int32()})
    made = _csv(schema, {"compression": compression, "header": header})
    tables = [Values(seed, TEXTS).table(schema, 40) for seed in range(3)]
    sources = [write(made, table, tmp_path / str(i)) for i, table in enumerate(tables)]
    merged = tmp_path / f"merged{made.suffix}"
    made.merge(sources, merged)
    whole = write(made, pa.concat_tables(tables), tmp_path / "whole")
    assert made.open(merged, "rb").read() == made.open(whole, "rb").read()  # type: ignore[attr-defined]


def test_a_file_without_the_header_is_not_merged(tmp_path: Path) -> None:
    schema = strings("title")
    plain = write(_csv(schema, {}), Values(1, TEXTS).table(schema, 40), tmp_path / "x")
    with pytest.raises(OSError, match="does not begin with the header"):
        _csv(schema, {"header": "true"}).merge([plain], tmp_path / "merged")


def test_merged_parquet_has_large_row_groups(tmp_path: Path) -> None:
    made = parquet_sink_format(FLAT, OptionTexts("parquet sink", {}))
    tables = [Values(seed, TEXTS).table(FLAT, 150) for seed in range(4)]
    sources = [write(made, table, tmp_path / str(i)) for i, table in enumerate(tables)]
    made.merge(sources, tmp_path / "merged.parquet")
    merged = pq.read_table(tmp_path / "merged.parquet")
    assert repr(rows_of(merged)) == repr(rows_of(pa.concat_tables(tables)))
    assert pq.read_metadata(tmp_path / "merged.parquet").num_row_groups == 1


@pytest.mark.parametrize(
    ("make", "kind", "options", "error", "match"),
    [
        (_csv, pa.binary(), {}, NotSupported, "csv sink cannot write column a of type binary"),
        (_csv, pa.list_(pa.int32()), {}, NotSupported, "csv sink cannot write column a of type list"),
        (_csv, pa.duration("us"), {}, NotSupported, "column a of type duration"),
        (_csv, pa.int32(), {"compression": "lz4"}, ConfigError, "compression='lz4' of the csv sink: choose none"),
        (_csv, pa.int32(), {"timestampFormat": "yyyy"}, ConfigError, "timestampFormat='yyyy'"),
        (_csv, pa.int32(), {"dateFormat": "dd.MM."}, ConfigError, "dateFormat='dd.MM.'"),
        (_csv, pa.int32(), {"sep": "ab"}, ConfigError, "only a single character"),
        (_csv, pa.int32(), {"quote": ""}, ConfigError, "only a single character"),
        (_csv, pa.int32(), {"timeZone": "Mars"}, ConfigError, "timeZone='Mars'"),
        (
            _csv,
            pa.int32(),
            {"ignoreLeadingWhiteSpace": "false"},
            ConfigError,
            "set ignoreTrailingWhiteSpace=false, too",
        ),
        (_json, pa.map_(pa.int32(), pa.int32()), {}, NotSupported, "json sink cannot write column a of type map"),
        (_json, pa.struct({"b": pa.duration("us")}), {}, NotSupported, r"column a\.b of type duration"),
        (_json, pa.int32(), {"ignoreNullFields": "maybe"}, ConfigError, "choose true or false"),
    ],
)
def test_what_a_format_cannot_hold_is_refused_by_name(
    make: Callable[..., FileFormat], kind: pa.DataType, options: dict[str, str], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        make(pa.schema({"a": kind}), options)


def test_text_wants_one_string_column() -> None:
    for schema in (pa.schema({"a": pa.int32()}), strings("a", "b")):
        with pytest.raises(NotSupported, match="exactly one string column"):
            text_sink_format(schema, OptionTexts("text sink", {}))


@pytest.mark.parametrize("wrap", [lambda field: field, lambda field: pa.field("s", pa.struct([field]))])
def test_columns_whose_long_names_differ_at_the_end_are_other_columns(wrap: Callable[[pa.Field], pa.Field]) -> None:
    """Arrow's text of a schema is the same for both; their files must not be merged."""
    one, other = (ParquetFormat(pa.schema([wrap(pa.field("a" * 200 + end, pa.int32()))]), "snappy") for end in "12")
    assert one.fingerprint != other.fingerprint
