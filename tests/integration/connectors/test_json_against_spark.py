"""JSON: the same files through Spark's own batch reader and through the source, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import DataError
from tests.support.connectors.spark_readers import assert_same, ours

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

VALUES = {
    "INT": ["1", "-1", "1.0", "1e2", '"1"', "true", "null", "2147483648", "{}", "[]", "01", "+1", "NaN"],
    "BYTE": ["127", "128", "255", "256", "-128", "-129"],
    "BIGINT": ["9223372036854775807", "9223372036854775808", "1.5"],
    "DOUBLE": ["1", "1.5", '"1.5"', '"NaN"', '"Infinity"', '"-INF"', '"nan"', "NaN", "Infinity", "-Infinity", "INF",
               "+INF", "-INF", '""', "-0", "-0.0", "-0e1"],
    "FLOAT": ["-0", "0.1", "16777217", "1e39", '"NaN"'],
    "BOOLEAN": ["true", "false", '"true"', "1", "True"],
    "DECIMAL(5,2)": ["1", "1.005", "1.015", "1000", "1e2", '"1.5"', '"x"', '""', "true", "-0.005",
                     '"1_0"', '"NaN"', '" 1"', '"1,0"'],
    "DATE": ['"18000"', '"2020-01-02"', '"2020"', '"x"', '""', "18000", '"2020-01-02T00:00:00"', '"٣"', '"+5"',
             f'"{"9" * 5000}"'],
    "TIMESTAMP": ['"2020-01-02 03:04:05"', '"2020-01-02T03:04:05.123Z"', '"x"', '""', "1577934245", "1.5", "true"],
    "TIMESTAMP_NTZ": ['"2020-01-02 03:04:05"', '"2020-01-02T03:04:05Z"', "1577934245"],
    "STRING": [
        '"a"', "1", "1.0", "1e5", "-0", "true", "false", '{"x": 1, "y" : [1,2 ] }', "[1, 2]", '""', "'single'",
        '"\\u00e4"', '"\\ud83d\\ude00"', '"a\\nb"', "NaN", '"\\x"', "{'q': 'w'}", '"tab\tin"',
        "100000000000000000000000",
    ],
    "BINARY": ['"YWJj"', '"YWJ"', '"?"', "1", '" YWJj "', '"YW Jj"', '"YW\\nJj"', '"YWI=YWJj"', '""'],
    "ARRAY<INT>": ["[1, 2]", "[]", '[1, "x"]', "[null, 1]", "1", "{}", "[[1]]"],
    "STRUCT<x: INT, y: STRING>": ['{"x": 1}', '{"x": "a", "y": "b"}', '{"y": {"deep": [1]}}', "{}", "[]", "1",
                                  '{"z": 1}'],
    "ARRAY<STRUCT<x: INT>>": ['[{"x": 1}, {"x": "a"}, {"x": 3}]', "[1]", "[{}]"],
    "MAP<STRING, INT>": ['{"a": 1, "b": 2}', '{"a": "x"}', "{}", "[]", '{"a": null}'],
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
def test_every_value_is_converted_alike(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    values = VALUES[kind]
    path = tmp_path / "values.json"
    path.write_text("".join(f'{{"i": {i}, "a": {value}, "z": "end"}}\n' for i, value in enumerate(values)))
    assert_same(spark, "json", path, f"i INT, a {kind}, z STRING, _corrupt_record STRING", {}, values)


LINES = [
    '{"a": 1, "b": "x"}', "", "   ", '{"a": 2', '{"a": 3, "b": ', "null", "[]", "[1]", '[{"a": 4}, {"b": "y"}]',
    "5", '"text"', "{}", '{"A": 6}', '{"a": 7} trailing', '{"a": 8}{"a": 9}', '{"a": 10, "a": 11}',
    '{"a": 12, "a": null}', "garbage", '{"a" 13}', "{'a': 14, 'b': 'it\\'s'}", '{a: 15}', '{"a": 16,}',
    '[{"a": 17}, {"a": "bad"}]', '[{"a": 18}, null]', '{"a": 19, "c": {"x": ', ' {"a": 20}', '{"a":21}\t', "true",
    "[[]]", '{"b": "\\"quoted\\""}', '{"a": 22 /* no */}', '{"a": "bad", "b": "kept"}',
]  # fmt: skip


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
@pytest.mark.parametrize("ddl", ["a INT, b STRING", "_corrupt_record STRING, a INT, b STRING"])
def test_malformed_lines(spark: SparkSession, tmp_path: Path, mode: str, ddl: str) -> None:
    path = tmp_path / "lines.json"
    path.write_text("\n".join(LINES))
    assert_same(spark, "json", path, ddl, {"mode": mode}, [])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-be", "utf-16-le", "utf-32-be", "utf-32-le"])
@pytest.mark.parametrize("value", ['{"x": 1e2, "z": [1]}', '[1.0, "a"]', "1e2", '"text"'])
def test_nested_values_as_text_in_every_encoding(
    spark: SparkSession, tmp_path: Path, encoding: str, value: str
) -> None:
    path = tmp_path / "value.json"
    path.write_bytes(f'{{"s": {value}, "a": [3], "t": "b"}}'.encode(encoding))
    ddl = "s STRING, a ARRAY<INT>, t STRING, _corrupt_record STRING"
    assert_same(spark, "json", path, ddl, {"multiLine": "true"}, [])


def test_failfast_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('{"a": 1}\n{"a": "x"}\n')
    with pytest.raises(DataError, match=r"rows\.json, line 2.*member a"):
        ours("json", path, "a INT", {"mode": "FAILFAST"})
