"""Small ORC files that claim to be large: refused by name, or read little by little. A process that reads one stays
small."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from penstock.connectors.files.orc import footers as orc_footers
from penstock.connectors.files.orc.reading import orc_format
from penstock.connectors.files.parquet.pages import MAX_COLUMNS, MAX_DEPTH
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import DataError

PROGRAM = """
import json, resource, sys
import pyarrow as pa
from penstock.connectors.option_texts import OptionTexts
from penstock.connectors.files.orc.reading import orc_format
from penstock.errors import DataError

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

read = orc_format(pa.schema([("a", pa.int64())]), OptionTexts("test", {}), "UTC")
list(read(sys.argv[2], 0))
before, rows, said = peak(), 0, ""
try:
    for batch in read(sys.argv[1], 0):
        rows += batch.num_rows
except (DataError, pa.ArrowException) as error:
    said = str(error)
print(json.dumps([said, rows, peak() - before]))
"""
LONG = b"\x08\x04"


def number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def field(place: int, content: bytes) -> bytes:
    return number(place << 3 | 2) + number(len(content)) + content


def struct_of(inner: Sequence[int]) -> bytes:
    return b"\x08\x0c" + field(2, b"".join(map(number, inner))) + field(3, b"a") * len(inner)


def file_with(columns: list[bytes], path: Path, block: int = 65536) -> None:
    """A file without rows and without compression; see orc_proto.proto."""
    footer = b"\x08\x03\x10\x03" + b"".join(field(4, column) for column in columns) + b"\x30\x00"
    told = b"\x08" + number(len(footer)) + b"\x10\x00\x18" + number(block) + field(4, b"\x00\x0c") + b"\x28\x00\x30\x06"
    told += field(8000, b"ORC")
    path.write_bytes(b"ORC" + footer + told + bytes([len(told)]))


def read(path: Path, tmp_path: Path) -> tuple[str, int, int]:
    orc.write_table(pa.table({"a": [1]}), tmp_path / "warm.orc")
    arguments = [sys.executable, "-c", PROGRAM, str(path), str(tmp_path / "warm.orc")]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr or done.returncode
    said, rows, taken = json.loads(done.stdout)
    return said, rows, taken


@pytest.mark.one_in(2)
@pytest.mark.parametrize("compression", ["zstd", "zlib", "snappy", "lz4"])
def test_a_stripe_that_becomes_large_is_read_little_by_little(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "bomb.orc"
    with orc.ORCWriter(path, compression=compression, stripe_size=1 << 30) as writer:
        for _ in range(20):
            writer.write(pa.table({"a": np.zeros(1_000_000, np.int64)}))
    assert orc.ORCFile(path).nstripes == 1
    said, rows, taken = read(path, tmp_path)
    assert (said, rows) == ("", 20_000_000)
    assert taken < 64 << 20, "of 160 MB"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("columns", "block", "complaint"),
    [
        ([struct_of([n + 1]) for n in range(MAX_DEPTH)] + [LONG], 65536, f"more than {MAX_DEPTH} deep"),
        ([struct_of([n + 1]) for n in range(99_000)] + [LONG], 65536, f"more than {MAX_DEPTH} deep"),
        ([struct_of(range(1, 200_001))] + [LONG] * 200_000, 65536, f"at most {MAX_COLUMNS} are read"),
        ([struct_of([0])], 65536, "its footer is damaged: column 0 holds column 0"),
        ([struct_of([7]), LONG], 65536, "its footer is damaged: column 0 holds column 7"),
        ([struct_of([1]), LONG], 1 << 31, "has blocks of 2147483648 bytes"),
    ],
)
def test_a_footer_that_is_a_bomb_is_refused(tmp_path: Path, columns: list[bytes], block: int, complaint: str) -> None:
    path = tmp_path / "bomb.orc"
    file_with(columns, path, block)
    said, _, taken = read(path, tmp_path)
    assert complaint in said
    assert taken < 128 << 20


@pytest.mark.parametrize("compression", ["uncompressed", "zstd", "zlib", "snappy", "lz4"])
def test_footers_of_any_compression_are_looked_at(
    tmp_path: Path, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.orc"
    table = pa.table({f"column {n}": [{"a": [n]}] for n in range(300)})
    orc.write_table(table, path, compression=compression)
    orc_footers.check_footer(str(path), 128 << 20)
    with pytest.raises(DataError, match=r"a\.orc has a footer .*\(option maxPageBytes\)"):
        orc_footers.check_footer(str(path), 1000)
    monkeypatch.setattr(orc_footers, "MAX_DEPTH", 3)
    with pytest.raises(DataError, match=r"a\.orc has columns that are more than 3 deep"):
        orc_footers.check_footer(str(path), 128 << 20)


def test_all_rows_come_in_their_order_from_any_one_on(tmp_path: Path) -> None:
    numbers = np.random.default_rng(1).permutation(100_000)
    orc.write_table(pa.table({"b": ["x"] * len(numbers), "a.c": numbers}), tmp_path / "a.orc", stripe_size=1 << 16)
    assert orc.ORCFile(tmp_path / "a.orc").nstripes > 2
    read = orc_format(pa.schema([("a.c", pa.int64())]), OptionTexts("test", {}), "UTC")
    for skipped in (0, 1, 16_384, 99_999, 100_000):
        found = [value for batch in read(str(tmp_path / "a.orc"), skipped) for value in batch.column(0).to_pylist()]
        assert found == numbers.tolist()[skipped:]
