"""Malformed bytes and escapes of surrogates, read by Spark's reader and by the file source."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.functions.text.java_utf8 import decode_as_java
from tests.support.connectors.file_oracle import differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TEXTS = [
    b"a\xff\xfeb", b"caf\xe9", b"\\ud800x", b"\\ud83d\\ude00", b"\\udc00", b"\xed\xa0\x80", b"\xed\xa0", b"\xc0\x80z",
    b"\xed\xa0\xbd\xed\xb8\x80", b"\xf7\xbf\xbf\xbf", b"\xf0\x9f\x98", b"\xe1\x80", b"\xf5\x80\x80\x80", b"\xff}",
    b"\xe9}", "grüße 😀".encode(),
]  # fmt: skip
"""Contents of strings. The quote after one may be read as a part of a character."""
PLACES = [
    b'{"id":1,"s":"%s"}', b'{"s":"%s","id":2}', b'{"id":3,"%s":1,"s":"x"}', b'{"id":4,"unknown":"%s","s":"x"}',
    b'{"id":5,"s":[1, "%s"]}', b'{"id":6,"s":{"%s":1.50e1}}', b"{'id':7,'s':'%s'}", b'{"id":8,"t":{"x":"%s","y":1}}',
    b'{"id":9,"a":["%s","b"],"s":"x"}', b'{"id":10,"m":{"%s":"v","w":"%s"}}', b'{"id":11,"%s', b"%s",
]  # fmt: skip
DOCUMENTS = [
    b'\xef\xbb\xbf{"id":6}', b"\xef\xbb\xbf", '{"id":7,"v":"ü"}'.encode("utf-16"),
    '{"id":7,"s":"ü"}'.encode("utf-16-be"),
    '{"id":7}'.encode("utf-32"), '{"id":7}'.encode("utf-32-be"), b"\0\0\xff\xfe{}", b"\0{\0\0", b"\x0b", b" \t",
    b"\xa0",
    b'{"id":12,"s":tru}', b'{"id":13,"t":{"x":tru},"s":"q"}', b'{"id":14,"s":[1,2}',
    b'{"a":[\xd9\xa3, "x"],"id":17}', '{"m":{"k":"x","l":0😀},"id":18}'.encode(), '{"id":19,"x":tru😀}'.encode(),
    b'{"b":"QUI=","id":15}', b'{"b":"QU!","id":16}',
]  # fmt: skip
DDL = (
    "id bigint, s string, a array<string>, m map<string,string>, t struct<x:string,y:int>, b binary, v void,"
    " _corrupt_record string"
)
JSON_OPTIONS = [
    {}, {"encoding": "UTF-8"}, {"encoding": "ISO-8859-1", "lineSep": "\n"}, {"encoding": "US-ASCII", "lineSep": "\n"},
]  # fmt: skip


def documents() -> list[bytes]:
    return [place.replace(b"%s", text) for place in PLACES for text in TEXTS] + DOCUMENTS


def write(folder: Path, contents: list[bytes], suffix: str = "") -> None:
    for number, content in enumerate(contents):
        (folder / f"{number:03}{suffix}").write_bytes(gzip.compress(content) if suffix else content)


def assert_alike(spark: SparkSession, kind: str, folder: Path, ddl: str, options: dict[str, str]) -> None:
    wrong = differences(spark, kind, folder, ddl, options)
    assert not wrong, "\n".join(f"{name} {(folder / name).read_bytes()!r}:\n   {wrong[name]}" for name in wrong)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", JSON_OPTIONS, ids=str)
def test_json_lines(spark: SparkSession, tmp_path: Path, options: dict[str, str]) -> None:
    write(tmp_path, [b'{"id":0}\n' + document + b'\n{"id":"end"}' for document in documents()])
    assert_alike(spark, "json", tmp_path, DDL, options)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("options", JSON_OPTIONS, ids=str)
def test_json_files_of_one_value(spark: SparkSession, tmp_path: Path, options: dict[str, str], suffix: str) -> None:
    write(tmp_path, documents(), suffix)
    assert_alike(spark, "json", tmp_path, DDL, {**options, "multiLine": "true"})


@pytest.mark.parametrize("kind", ["csv", "text"])
@pytest.mark.parametrize("encoding", ["UTF-8", "US-ASCII", "ISO-8859-1"])
def test_csv_and_text(spark: SparkSession, tmp_path: Path, kind: str, encoding: str) -> None:
    write(tmp_path, [b'1,%s\n2,x\n3,"y%s"\nq%s,z\n' % (text, text, text) for text in TEXTS])
    ddl = "id bigint, s string, _corrupt_record string" if kind == "csv" else "value string"
    assert_alike(spark, kind, tmp_path, ddl, {"encoding": encoding})
    if kind == "text":
        assert_alike(spark, kind, tmp_path, ddl, {"encoding": encoding, "wholetext": "true"})
        (tmp_path / "separators").write_bytes("one?twoéthree\n".encode() + b"four\xe9five?")
        assert_alike(spark, kind, tmp_path, ddl, {"encoding": encoding, "lineSep": "é"})


def test_malformed_utf8_is_replaced_as_java_does(spark: SparkSession) -> None:
    chance = random.Random(1)
    # The first and last bytes of each class of lead and continuation bytes.
    odd = bytes.fromhex("41 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f4 f5 f7 f8 ff")
    texts = [bytes(chance.choices(odd, k=chance.randrange(1, 7))) for _ in range(3000)]
    decoded = spark.createDataFrame([(bytearray(text),) for text in texts], "b binary").selectExpr("cast(b as string)")
    assert [decode_as_java(text) for text in texts] == [row[0] for row in decoded.collect()]
