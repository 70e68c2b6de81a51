"""Refusals of CSV and Avro at the start, by name, and the texts and messages that fail a query."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.errors import DataError, EvaluationError, NotSupported
from penstock.functions import BoundReference, Literal, SessionConf
from penstock.functions.avro.reading import FromAvro
from penstock.functions.avro.schema import UnsupportedSchema, parse_schema
from penstock.functions.avro.writing import ToAvro
from penstock.functions.core.record_fields import RecordTimes, TextRules
from penstock.functions.core.zones import Zone
from penstock.functions.csv.lines import CsvDialect
from penstock.functions.csv.reading import MAX_COLUMNS, CsvOptions, FromCsv
from penstock.functions.logic.logic import RaiseError
from penstock.functions.text.masking import Masking

if TYPE_CHECKING:
    from tests.support.functions.expression_oracle import Relation


RECORD = '{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}'
OTHER_FIELD, OTHER_NAME = RECORD.replace('"a"', '"b"'), RECORD.replace('"r"', '"q"')


@pytest.mark.spark
@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("from_csv(s, 'a int', map('sep', '||'))", "CsvToStructs.*the separator '\\|\\|'"),
        ("from_csv(s, 'a int', map('quote', ''))", "the option quote of ''"),
        ("from_csv(s, 'a int', map('comment', '#'))", "the option comment is not supported"),
        ("from_csv(s, 'a int, _corrupt_record string, b int').b", "add map\\('mode', 'PERMISSIVE'\\)"),
        ("from_csv(s, 'a interval day to second')", "the field a: read it as a string"),
        ("from_csv(s, 'a date', map('dateFormat', 'YYYY'))", "dateformat.*'YYYY'"),
        ("hmac(s, s, s)", "the algorithm must be one of SHA-256"),
    ],
)
def test_csv_and_others(relation: Callable[[str], Relation], sql: str, why: str) -> None:
    with pytest.raises(NotSupported) as refusal:
        relation("csv read").compile([sql], SessionConf())
    assert re.search(why, str(refusal.value))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("sql", "why"),
    [
        (f"from_avro(v, '{RECORD}', map('recursiveFieldMaxDepth', '3'))", "the option recursivefieldmaxdepth"),
        (f"from_avro(v, '{RECORD}', map('datetimeRebaseMode', 'LEGACY'))", "to CORRECTED; the hybrid calendar"),
        (
            f"from_avro(v, '{RECORD}', map('avroSchema', '{OTHER_FIELD}'))",
            "the field b.*has no default",
        ),
        (f"from_avro(v, '{RECORD}', map('avroSchema', '{OTHER_NAME}'))", "the names r and q differ"),
        ('from_avro(v, \'["null","int"]\')', "whole message is a union; use a record"),
        ("to_avro(map('a', v))", "CatalystDataToAvro.*map<string, binary.*is not supported"),
        ('to_avro(id, \'["int","long"]\')', "a union other than one of null and a type"),
        ("to_avro(id, '\"long\"')", "int32 as long is not supported"),
    ],
)
def test_avro(relation: Callable[[str], Relation], sql: str, why: str) -> None:
    with pytest.raises(NotSupported) as refusal:
        relation("avro read").compile([sql], SessionConf())
    assert re.search(why, str(refusal.value))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "cannot be read"),
        ('"nothing"', "there is no type nothing"),
        ('{"type":"record","name":"r","fields":[{"name":"r","type":["null","r"]}]}', "contains itself"),
        ('{"type":"record","name":"r","aliases":["q"],"fields":[]}', "aliases"),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"A","type":"int"}]}', "in case only"),
        ('{"type":"int","spark.sql.catalyst.type":"interval month"}', "types of intervals"),
    ],
)
def test_avro_schemas(schema: str, why: str) -> None:
    with pytest.raises(UnsupportedSchema, match=why):
        parse_schema(schema)


def column(values: list[Any], data_type: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(values, data_type)})


def test_texts_that_end_a_query() -> None:
    options = CsvOptions(CsvDialect(), TextRules(RecordTimes(Zone("UTC"))), False, "bad")
    read = FromCsv(BoundReference(0, pa.string()), pa.struct([("a", pa.string())]), options, True)
    assert read.evaluate(column(["x,y", None], pa.string())).to_pylist() == [{"a": "x"}, None]
    with pytest.raises(DataError, match=r"from_csv.*U\+FFFF.*replace"):
        read.evaluate(column(["x\uffffy"], pa.string()))
    with pytest.raises(EvaluationError, match="more than 20480 fields"):
        read.evaluate(column(["," * MAX_COLUMNS], pa.string()))
    with pytest.raises(DataError, match=r"mask.*some Java versions only"):
        Masking("X", "x", "n", None)("\u2c2f")


def test_messages_that_end_a_query() -> None:
    read = FromAvro(BoundReference(0, pa.binary()), pa.string(), '"string"', '"string"', True)
    assert read.evaluate(column([b"\x02a", b"\x04a", None], pa.binary())).to_pylist() == ["a", None, None]
    with pytest.raises(DataError, match=r"not UTF-8; read it with the type bytes"):
        read.evaluate(column([b"\x02\xff"], pa.binary()))
    write = ToAvro(BoundReference(0, pa.string()), parse_schema('{"type":"enum","name":"e","symbols":["A"]}'), True)
    assert write.evaluate(column(["A", None], pa.string())).to_pylist() == [b"\x00", None]
    with pytest.raises(EvaluationError, match=r"'B' is not a symbol of the enum e"):
        write.evaluate(column(["B"], pa.string()))


def test_a_field_of_a_message_is_named() -> None:
    kinds = [("s", '"string"'), ("e", '{"type":"enum","name":"e","symbols":["A"]}')]
    fields = ",".join(f'{{"name":"{name}","type":{kind}}}' for name, kind in kinds)
    inner = f'{{"type":"record","name":"r","fields":[{fields}]}}'
    text = f'{{"type":"record","name":"q","fields":[{{"name":"a","type":{{"type":"array","items":{inner}}}}}]}}'
    data_type = pa.struct([("a", pa.list_(pa.struct([("s", pa.string()), ("e", pa.string())])))])
    write = ToAvro(BoundReference(0, data_type), parse_schema(text), True)
    messages = write.evaluate(column([{"a": [{"s": "x", "e": "A"}]}], data_type))
    read = FromAvro(BoundReference(0, pa.binary()), data_type, text, text, True)
    assert read.evaluate(column(messages.to_pylist(), pa.binary())).to_pylist() == [{"a": [{"s": "x", "e": "A"}]}]
    with pytest.raises(EvaluationError, match=r"to_avro: field a\.e: 'B' is not a symbol of the enum e"):
        write.evaluate(column([{"a": [{"s": "x", "e": "B"}]}], data_type))
    with pytest.raises(EvaluationError, match=r"to_avro: field a\.s: null for a string that may not be null"):
        write.evaluate(column([{"a": [{"s": None, "e": "A"}]}], data_type))
    with pytest.raises(DataError, match=r"from_avro: field a\.s: the string b'.xff' of 1 bytes is not UTF-8"):
        read.evaluate(column([messages[0].as_py().replace(b"x", b"\xff")], pa.binary()))


def test_no_row_raises_no_error() -> None:
    raising = RaiseError(Literal("no", pa.string()), pa.null())
    rows = column([1, 2], pa.int32())
    assert len(raising.evaluate(rows.slice(0, 0))) == 0
    assert len(raising.evaluate(rows, pa.array([False, False]).to_numpy(zero_copy_only=False))) == 2
    with pytest.raises(EvaluationError, match=r"\[USER_RAISED_EXCEPTION\] no"):
        raising.evaluate(rows)
