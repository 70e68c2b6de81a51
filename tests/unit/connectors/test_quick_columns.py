"""Whole columns at once against line by line: the same rows from any CSV and any JSON text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.connectors.files.csv import reading as csv_files
from penstock.connectors.files.csv.reading import csv_format
from penstock.connectors.files.json import reading as json_files
from penstock.connectors.files.json.reading import json_format
from penstock.connectors.files.text.columns import plain_column
from penstock.connectors.files.text.lines import Block, LineFormat
from penstock.connectors.files.text.values import MALFORMED
from penstock.connectors.option_texts import OptionTexts
from penstock.functions.core.record_fields import RecordTimes, TextRules, text_converter
from penstock.functions.core.zones import Zone
from tests.support.connectors.kits import rows_of
from tests.support.effort import some

SCHEMA = pa.schema(
    [
        ("a", pa.int32()), ("b", pa.string()), ("c", pa.float64()), ("t", pa.timestamp("us", tz="UTC")),
        ("_corrupt_record", pa.string()), ("f", pa.bool_()),
    ]
)  # fmt: skip
NESTED = pa.schema(
    [
        ("l", pa.list_(pa.int64())), ("s", pa.struct([("x", pa.int8()), ("y", pa.string())])), ("d", pa.float32()),
        ("m", pa.map_(pa.string(), pa.int32())), ("n", pa.decimal128(9, 3)), ("x", pa.float64()),
        ("_corrupt_record", pa.string()),
    ]
)  # fmt: skip
TEXTS = st.one_of(
    st.from_regex(r"[-+]?[0-9]{0,20}(\.[0-9]{0,20})?([eE][-+]?[0-9]{1,3})?", fullmatch=True),
    st.from_regex(
        r"[12][0-9]{3}-[01][0-9]-[0-3][0-9]([ T][0-2][0-9]:[0-5][0-9]:[0-6][0-9](\.[0-9]{0,7})?Z?)?", fullmatch=True
    ),
    st.sampled_from(
        ["true", "FALSE", "NaN", "Inf", "-Infinity", "nan", "0x1F", "-0", "", " ", "1_0", "٣", "null", "\x7f1"]
    ),
    st.text(max_size=6),
)
KINDS = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.decimal128(5, 2),
    pa.decimal128(38, 10), pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.string(),
]  # fmt: skip


def exact(texts: list[str | None], kind: pa.DataType, rules: TextRules) -> pa.Array | None:
    convert = text_converter("column", kind, rules)
    try:
        return pa.array([None if text is None else convert(text) for text in texts], kind)
    except MALFORMED:
        return None


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=some(40))
@given(st.lists(st.none() | TEXTS, min_size=1, max_size=4))
@example(["2000E44"])  # far beyond the largest float
def test_a_column_that_goes_through_at_once_is_as_text_by_text(
    kind: pa.DataType, zone: str, texts: list[str | None]
) -> None:
    rules = TextRules(RecordTimes(Zone(zone)))
    quick = plain_column(pa.array(texts, pa.string()), kind, rules)
    if quick is not None:
        assert repr(rows_of(pa.table({"x": quick}))) == repr(rows_of(pa.table({"x": exact(texts, kind, rules)})))


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (pa.int64(), ["-123456789012345678", "007", "0"]), (pa.float32(), ["0.1", "1e-7", "16777217"]),
        (pa.float64(), ["0.30000000000000004", "-1.5E+20", "5"]), (pa.decimal128(9, 3), ["-12.5", "7"]),
        (pa.date32(), ["2024-02-29"]), (pa.bool_(), ["TRUE", "false"]),
        (pa.timestamp("us", tz="UTC"), ["2024-02-29 23:59:59.5", "1999-01-01T00:00:00"]),
    ],
    ids=str,
)  # fmt: skip
def test_ordinary_columns_do_go_through_at_once(kind: pa.DataType, texts: list[str]) -> None:
    for zone in ("UTC", "Europe/Berlin"):
        rules = TextRules(RecordTimes(Zone(zone)))
        quick = plain_column(pa.array([*texts, None], pa.string()), kind, rules)
        assert quick is not None
        assert quick.equals(exact([*texts, None], kind, rules))


def assert_alike(parser: Callable[[], Any], rules: Any, data: bytes) -> bool:
    """Check the fast reading against the exact one; return True if the fast one went through."""
    block = Block(data, b"\n", 1)
    quick = parser().fast_path(block)
    if quick is None:
        return False
    records = [row for batch in rules.batches("file", parser().exact_path(block)) for row in rows_of(batch)]
    assert repr(rows_of(quick)) == repr(records)
    return True


DIALECTS = [
    {}, {"escape": '"'}, {"nullValue": "ab", "emptyValue": "E"}, {"nullValue": "x", "sep": "\t", "quote": ""},
    {"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true"}, {"comment": "#"}, {"sep": " "},
]  # fmt: skip
FIELDS = st.one_of(st.text(alphabet='ab ",\\#\t\0é1', max_size=5), TEXTS, TEXTS.map(lambda text: f'"{text}"'))


@pytest.mark.parametrize("options", DIALECTS, ids=str)
@pytest.mark.parametrize("columns", [1, 3, 5])
@settings(max_examples=some(40))
@given(st.data())
def test_csv_blocks_read_at_once_are_as_line_by_line(
    columns: int, options: dict[str, str], data: st.DataObject
) -> None:
    wanted = pa.schema([pa.field(f"c{i}", SCHEMA.field(i % 2).type if i < 4 else pa.string()) for i in range(columns)])
    wanted = pa.schema([wanted.field(i).with_type(pa.string()) if i != 1 else wanted.field(i) for i in range(columns)])
    form = csv_format(wanted, OptionTexts("csv source", options), "UTC")
    line = st.lists(FIELDS, min_size=columns, max_size=columns).map(options.get("sep", ",").join)
    lines = data.draw(st.lists(line, min_size=1, max_size=4))
    text = "\n".join("".join(text.splitlines()) for text in lines)
    assert_alike(lambda: csv_files._CsvParser(form), form.rules, text.encode("utf-8", "replace"))


VALUES = st.one_of(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4) | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abxy"), inner, max_size=3),
        max_leaves=4,
    ).map(json.dumps),
    st.sampled_from(["-0", "-0.0", "1e400", "01", "'q'", "NaN", '"\\ud800"', '"\t"', "1 2", "[1,", "3.0", '"-0"']),
)
MEMBERS = st.tuples(st.sampled_from(["a", "b", "c", "t", "f", "l", "s", "d", "m", "n", "x", "A", "\\u0061"]), VALUES)


@pytest.mark.parametrize("schema", [SCHEMA, NESTED], ids=["flat", "nested"])
@settings(max_examples=some(150))
@given(st.lists(st.lists(MEMBERS, max_size=4), min_size=1, max_size=3), st.sampled_from(["", " ", "x", ",", "}"]))
def test_json_blocks_read_at_once_are_as_line_by_line(
    schema: pa.Schema, objects: list[list[tuple[str, str]]], tail: str
) -> None:
    form = json_format(schema, OptionTexts("json source", {}), "UTC")
    lines = ["{" + ", ".join(f'"{name}": {value}' for name, value in members) + "}" for members in objects]
    data = "\n".join([*lines[:-1], lines[-1] + tail]).encode("utf-8", "replace")
    assert_alike(lambda: json_files._JsonParser(form), form.rules, data)


def test_ordinary_blocks_do_go_through_at_once() -> None:
    form = csv_format(SCHEMA, OptionTexts("csv source", {}), "UTC")
    plain = b'1,"x, y",0.5,2024-01-01 00:00:00,true\n2,,1e3,2024-01-01T00:00:00.5,FALSE\n\n'
    assert assert_alike(lambda: csv_files._CsvParser(form), form.rules, plain)
    jform = json_format(SCHEMA, OptionTexts("json source", {}), "UTC")
    lines = b'{"a": 1, "b": "x", "c": 2, "t": "2024-01-01 00:00:00", "f": true}\n\n {"b": null, "unknown": [{}]}\n'
    assert assert_alike(lambda: json_files._JsonParser(jform), jform.rules, lines)
    nested = json_format(NESTED, OptionTexts("json source", {}), "UTC")
    lines = b'{"l": [1, null], "s": {"x": 1}, "d": 0.1, "m": {"k": 1, "k": 2}, "n": 1.0005}\n{}\n'
    assert assert_alike(lambda: json_files._JsonParser(nested), nested.rules, lines)


@settings(max_examples=some(100))
@given(
    st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"\xc3\xa9", b"\xff"]), max_size=30).map(b"".join),
    st.integers(1, 7),
)
@example(data=b"\r\n\n", size=1)  # the newline that ends the first line is a block of its own
def test_lines_do_not_depend_on_blocks(tmp_path_factory: pytest.TempPathFactory, data: bytes, size: int) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.txt"
    path.write_bytes(data)
    expected = data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    lines = expected.removesuffix("\n").split("\n") if expected else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.connectors.files.text.lines.BLOCK_BYTES", size)
        blocks = list(LineFormat().blocks(str(path)))
    assert [text for block in blocks for text in block.texts()] == lines
    assert [block.first_line for block in blocks] == [
        1 + sum(b.line_count for b in blocks[:i]) for i in range(len(blocks))
    ]
    for block in blocks:
        if block.line_count > 1:
            first, second = block.halves()
            assert first.line_count
            assert second.line_count
            assert first.texts() + second.texts() == block.texts()
