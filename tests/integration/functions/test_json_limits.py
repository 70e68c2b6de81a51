"""Jackson's limits, as in Spark: long names, strings and numbers; and the memory of hostile documents."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from penstock.functions.core.record_fields import RecordTimes
from penstock.functions.core.zones import Zone
from penstock.functions.json.paths import get_json_object
from penstock.functions.json.records import RecordParser
from penstock.functions.json.tokens import JsonRules
from penstock.functions.json.values import JsonOptions

KIND = pa.struct([("a", pa.string()), ("b", pa.int32())])
CASES = {
    "a name as long as may be": ('{"@":1,"b":1}', "x", 50_000),
    "a name too long": ('{"@":1,"b":1}', "x", 50_001),
    "a name too long with escapes": ('{"@":1,"b":1}', '\\"', 50_001),
    "a name too long in the end": ('{"b":1,"@":1}', "x", 50_001),
    "a number as long as may be": ('{"c":@,"b":1}', "1", 1000),
    "a number too long": ('{"c":@,"b":1}', "1", 1001),
    "a string as long as may be": ('{"a":"@","b":1}', "x", 20_000_000),
    "a string too long": ('{"a":"@","b":1}', "x", 20_000_001),
    "a string far too long": ('{"a":"@","b":1}', "x", 20_200_000),
    "a long string that is not asked for": ('{"c":"@","b":1}', "x", 20_200_000),
    "a name too long in front of blanks": ('{"b":1,"@" \n :1}', "x", 50_001),
    "a text longer than names": ('{"a":"@","b":1}', "x", 60_000),
    "a text of quotes": ('{"a":"@","b":1}', '\\"\\\\', 30_000),
    "a long list": ('{"a":"x","c":[@1],"b":1}', "1,", 60_000),
}
QUICK = ("a name as long as may be", "a text longer than names", "a text of quotes", "a long list")
"""They are decoded in C."""


def sizes(record: object) -> tuple[int | None, int | None]:
    record = record if isinstance(record, dict) else {}
    text = record.get("a")
    return None if text is None else len(text), record.get("b")


@pytest.mark.spark
@pytest.mark.parametrize("name", CASES)
def test_long_texts_equal_spark(spark: SparkSession, name: str) -> None:
    text, repeated, count = CASES[name]
    document = F.concat(*(F.lit(text.partition("@")[0]), F.expr(f"repeat({json.dumps(repeated)}, {count})")))
    record = F.from_json(F.concat(document, F.lit(text.partition("@")[2])), "a string, b int")
    expected = spark.range(1).select(F.length(record["a"]), record["b"]).first()
    ours = text.replace("@", repeated * count)
    parse = RecordParser(KIND, JsonOptions(RecordTimes(Zone("UTC")), JsonRules()))
    assert expected is not None
    assert sizes(parse(ours)) == tuple(expected)
    quick = parse.fast_path(pa.array([ours]), None)
    assert quick is not None
    assert quick.fallback is not None
    assert not (name in QUICK and quick.fallback[0])
    assert quick.fallback[0] or sizes(quick.values[0].as_py()) == tuple(expected)


DEEP = {
    "arrays": ("[@]", "[", "]"),
    "objects": ('{"a":@}', '{"a":', "}"),
    "both": ('{"a":@}', '[1,{"b":[],"a":', ',"c":{}},null]'),
}


@pytest.mark.spark
@pytest.mark.parametrize("depth", [100, 499, 998, 1000])
@pytest.mark.parametrize("name", DEEP)
def test_deep_values_equal_spark(spark: SparkSession, name: str, depth: int) -> None:
    text, opening, closing = DEEP[name]
    document = text.replace("@", opening * depth + "7" + closing * depth)
    frame = spark.createDataFrame([(document,)], "d string")
    paths = ["$", "$.a", "$[0][0]", "$.a[1].a"]
    if depth < 500:  # Spark flattens by recursion, and its stack overflows for more
        paths += ["$[*]", "$[*][*]", "$[*][*][*]", "$.a[*]", "$.a[*][*]"]
    record = F.from_json("d", "a string, b int")["a"]
    expected = frame.select(record, *(F.get_json_object("d", path) for path in paths)).first()
    parsed = RecordParser(KIND, JsonOptions(RecordTimes(Zone("UTC")), JsonRules()))(document)
    assert expected is not None
    assert isinstance(parsed, dict)
    assert [parsed.get("a"), *(get_json_object(document, path) for path in paths)] == list(expected)


PROGRAM = """
import json, resource, sys
import pyarrow as pa
from penstock.functions.json.records import RecordParser
from penstock.functions.json.tokens import JsonRules
from penstock.functions.json.values import JsonOptions
from penstock.functions.core.record_fields import RecordTimes
from penstock.functions.core.zones import Zone

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

begin, repeated, end = json.loads(sys.argv[1])
kind = pa.struct([("a", pa.string()), ("b", pa.list_(pa.list_(pa.string())))])
parse = RecordParser(kind, JsonOptions(RecordTimes(Zone("UTC")), JsonRules()))
count = (2 << 20) // len(repeated)
document = begin + repeated * count + end
before = peak()
parse.fast_path(pa.array([document]), None)
parse(document)
print((peak() - before) / len(document))
"""


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    ("begin", "repeated", "end", "most"),
    [
        ("", "[", "", 16),
        ("", '{"a":', "", 16),
        ('{"a":', "[", "", 16),
        ('{"c":[', "[],", "[]]}", 16),
        ('{"c":[', "{},", "{}]}", 16),
        ('{"a":[', "[],", "[]]}", 32),
        ('{"b":[', "[],", "[]]}", 64),
    ],
)
def test_the_memory_of_a_document_is_bounded(begin: str, repeated: str, end: str, most: int) -> None:
    """A tree of Python objects would take 24 to 400 times the size of the document."""
    arguments = [sys.executable, "-c", PROGRAM, json.dumps([begin, repeated, end])]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=200, check=True)
    assert float(done.stdout) < most
