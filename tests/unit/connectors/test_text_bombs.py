"""A compressed file that becomes a gigabyte without a line end is refused; the reading process needs little memory."""

from __future__ import annotations

import bz2
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.connectors.files.text.lines import LineFormat, parse_line_format
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import ConfigError, DataError

LIMIT = 8 << 20
RATIO = 8
"""Memory that reading may take, as a multiple of ``LIMIT``."""
PROGRAM = """
import json, resource, sys
import pyarrow as pa
from penstock.connectors.files.csv.reading import csv_format
from penstock.connectors.files.json.reading import json_format
from penstock.connectors.option_texts import OptionTexts
from penstock.connectors.files.text.reading import text_format
from penstock.errors import DataError

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

path, kind, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
schema, texts = pa.schema([("value", pa.string())]), OptionTexts(kind, options)
if kind == "text":
    read = text_format(schema, texts, "UTC")
else:
    read = {"csv": csv_format, "json": json_format}[kind](schema, texts, "UTC")
before = peak()
try:
    for batch in read(path, 0):
        pass
    said = "nothing"
except DataError as error:
    said = str(error)
print(json.dumps([said, peak() - before]))
"""


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create compressed files of 256 MiB each."""
    folder = tmp_path_factory.mktemp("bombs")
    for name, opened in (("x.gz", gzip.open), ("x.bz2", bz2.open)):
        with opened(folder / name, "wb", 1) as file:
            for _ in range(64):
                file.write(b"[" * (4 << 20))
    return folder


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["x.gz", "x.bz2"])
@pytest.mark.parametrize(
    ("kind", "options", "where"),
    [
        ("text", {}, ", line 1"),
        ("text", {"wholetext": "true"}, ""),
        ("csv", {}, ", line 1"),
        ("json", {}, ", line 1"),
        ("json", {"multiLine": "true"}, ""),
    ],
)
def test_a_record_without_an_end_is_refused(
    bombs: Path, name: str, kind: str, options: dict[str, str], where: str
) -> None:
    texts = json.dumps({**options, "maxRecordBytes": "8m"})
    arguments = [sys.executable, "-c", PROGRAM, str(bombs / name), kind, texts]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=True)
    said, taken = json.loads(done.stdout)
    assert f"{bombs / name}{where} has a record of more than {LIMIT} bytes" in said
    assert "maxRecordBytes" in said
    assert taken < RATIO * LIMIT


def test_a_record_of_just_the_size_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * 300_000 + b"\n" + b"y" * 300_000 + b"\nz")
    for size in (300_000, 600_003):
        lines = LineFormat(record_bytes=size)
        assert [len(line) for block in lines.blocks(str(tmp_path / "a.txt")) for line in block.lines()] == [
            300_000, 300_000, 1,
        ]  # fmt: skip
    assert len(LineFormat(record_bytes=600_003).whole(str(tmp_path / "a.txt"))) == 600_003
    with pytest.raises(DataError, match=r"line 1 has a record of more than 200000 bytes"):
        list(LineFormat(record_bytes=200_000).blocks(str(tmp_path / "a.txt")))
    with pytest.raises(DataError, match=r"a\.txt has a record of more than 600002 bytes"):
        LineFormat(record_bytes=600_002).whole(str(tmp_path / "a.txt"))


def test_the_option_is_a_size() -> None:
    assert parse_line_format(OptionTexts("text", {})).record_bytes == 128 << 20
    assert parse_line_format(OptionTexts("text", {"MAXRECORDBYTES": "2g"})).record_bytes == (2 << 30) - 1
    for text in ("0", "much", "-1"):
        with pytest.raises(ConfigError, match="maxRecordBytes"):
            parse_line_format(OptionTexts("text", {"maxRecordBytes": text}))
