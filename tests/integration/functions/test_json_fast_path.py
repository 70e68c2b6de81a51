"""Documents decoded in C are what the exact reader makes of them, or are left to it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.functions.core.record_fields import RecordTimes
from penstock.functions.core.zones import Zone
from penstock.functions.json import fast_json
from penstock.functions.json.paths import get_json_object
from penstock.functions.json.records import RecordParser
from penstock.functions.json.tokens import JsonRules
from penstock.functions.json.values import JsonOptions
from tests.support.effort import some

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = pa.struct(
    [
        ("a", pa.int32()),
        ("b", pa.string()),
        ("c", pa.float64()),
        ("d", pa.bool_()),
        ("e", pa.list_(pa.int64())),
        ("f", pa.struct([("x", pa.string()), ("y", pa.int16())])),
        ("t", pa.timestamp("us", "UTC")),
        ("u", pa.date32()),
        ("_corrupt_record", pa.string()),
    ]
)
NAMES = ["a", "b", "c", "d", "e", "f", "t", "u", "x", "y", "other", "_corrupt_record"]
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.integers(-9, 9) | st.floats() | st.text(max_size=4)
    | st.sampled_from(["2024-02-30", "2024-02-29T12:00:00Z", "2024-02-29", "NaN", "-0", "", '"', "12"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=6,
)  # fmt: skip
fitting = st.fixed_dictionaries(
    {},
    optional={
        "a": st.integers(-(2**31), 2**31 - 1), "b": st.text(), "c": st.floats() | st.integers(), "d": st.booleans(),
        "e": st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), max_size=3),
        "f": st.fixed_dictionaries({}, optional={"x": st.text(max_size=3), "y": st.integers(-9, 9), "z": values}),
        "t": st.sampled_from(["2024-02-29T12:00:00Z", "2024-03-31 02:30:00"]), "u": st.dates().map(str),
        "other": values,
    },
)  # fmt: skip
documents = st.dictionaries(st.sampled_from(NAMES), values, max_size=5) | values | fitting


PUT = ["", "0", "-", ".", '"', "\\", ",", "}", "{", " ", "\n", "e5", "'", '"a": 1, ', "ab"]


@st.composite
def texts(draw: st.DrawFn) -> str:
    """JSON, and what is nearly JSON: something dropped, doubled or put in."""
    text = json.dumps(draw(documents), ensure_ascii=draw(st.booleans()))
    for _ in range(draw(st.sampled_from((0, 0, 1, 2)))):
        at = draw(st.integers(0, len(text)))
        put = draw(st.sampled_from(PUT))
        text = text[:at] + put + text[at + draw(st.integers(0, 1)) :]
    return text


@settings(max_examples=some(40), deadline=None)
@given(st.lists(st.none() | texts(), max_size=6))
def test_records_are_the_same(found: list[str | None]) -> None:
    parse = RecordParser(TYPES, JsonOptions(RecordTimes(Zone("Europe/Berlin")), JsonRules()))
    quick = parse.fast_path(pa.array(found, pa.string()), None)
    assert quick is not None
    assert quick.fallback is not None
    for document, record, doubt in zip(found, quick.values, quick.fallback, strict=True):
        if document is None:
            assert not record.is_valid
        elif not doubt:
            exact = pa.array([parse(document)], TYPES)
            assert repr(record.as_py()) == repr(exact[0].as_py())  # tells -0.0 from 0.0


@pytest.mark.spark
@pytest.mark.parametrize(
    ("document", "value"),
    [
        ('{"d": -0}', "0.0"), ('{"d": -0.0}', "-0.0"), ('{"d": -0e1}', "-0.0"), ('{"m": "1_0"}', "None"),
        ('{"m": "NaN"}', "None"), ('{"m": " 1"}', "None"), ('{"m": "1,0"}', "Decimal('10.00')"),
    ],
)  # fmt: skip
def test_numbers_are_read_as_java_reads_them(spark: SparkSession, document: str, value: str) -> None:
    name = document[2]
    kind, ddl = (pa.float64(), "d double") if name == "d" else (pa.decimal128(5, 2), "m decimal(5,2)")
    parse = RecordParser(pa.struct([(name, kind)]), JsonOptions(RecordTimes(Zone("UTC")), JsonRules()))
    record = parse(document)
    assert isinstance(record, dict)
    assert repr(record.get(name)) == value
    frame = spark.createDataFrame([(document,)], "document string").selectExpr(f"from_json(document, '{ddl}').{name}")
    assert repr(frame.collect()[0][0]) == value


def assert_found_alike(document: str, path: str) -> None:
    """If it is found at all."""
    answer = fast_json.at_path(pa.array([document]), pa.array([path]), None, pa.string())
    if answer is not None and answer.fallback is not None and not answer.fallback[0]:
        assert answer.values[0].as_py() == get_json_object(document, path)


@settings(max_examples=some(40), deadline=None)
@given(texts(), st.sampled_from(["$.a", "$.f.x", "$.other.a", "$['b']", "$.e[0]", "$", "$.*", "a"]))
def test_what_is_found_at_a_path_is_the_same(document: str, path: str) -> None:
    assert_found_alike(document, path)


@pytest.mark.parametrize(
    "document",
    [
        '{"other": ' + "1" * 1001 + ', "a": 1}',
        '{"c": 0.' + "1" * 1001 + "}",
        '{"other": ' + "[" * 1001 + "]" * 1001 + ', "a": 1}',
        '{"a\\"b": 1}',
    ],
)
def test_what_jackson_stops_at_is_not_read(document: str) -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        parse = RecordParser(TYPES, JsonOptions(RecordTimes(Zone("UTC")), JsonRules()))
        quick = parse.fast_path(pa.array([document]), None)
    finally:
        sys.setrecursionlimit(before)
    assert quick is not None
    assert quick.fallback is not None
    assert quick.fallback[0] or quick.values[0].as_py() == pa.array([parse(document)], TYPES)[0].as_py()
    for path in ("$.a", "$['a\"b']"):
        assert_found_alike(document, path)
    odd = pa.struct([('a"b', pa.int32())])
    assert (
        RecordParser(odd, JsonOptions(RecordTimes(Zone("UTC")), JsonRules())).fast_path(pa.array([document]), None)
        is None
    )


@pytest.mark.parametrize("path", ["$.a", "$.b", "$.f.x"])
def test_ordinary_documents_are_not_in_doubt(path: str) -> None:
    ordinary = [
        f'{{"a": {n}, "b": "text {n}", "c": {n}.5, "f": {{"x": "{n}"}}, "t": "2024-01-01T00:00:00Z", "more": [1]}}'
        for n in range(50)
    ]
    parse = RecordParser(TYPES, JsonOptions(RecordTimes(Zone("UTC")), JsonRules()))
    quick = parse.fast_path(pa.array(ordinary), None)
    assert quick is not None
    assert quick.fallback is not None
    assert not quick.fallback.any()
    found = fast_json.at_path(pa.array(ordinary), pa.array([path] * 50), None, pa.string())
    assert found is not None
    assert found.fallback is not None
    assert not found.fallback.any()
    assert found.values.null_count == 0
