"""Small Parquet files that claim to be large are refused by name or read in small batches, with little memory."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.files.parquet.pages import LARGEST_BATCH, MAX_COLUMNS, MAX_DEPTH, check_footer, max_batch_rows
from penstock.connectors.files.parquet.reading import page_bytes
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import ConfigError

LIMIT = 8 << 20
PROGRAM = """
import json, resource, sys
import pyarrow as pa
import pyarrow.parquet as pq
from penstock.connectors.option_texts import OptionTexts
from penstock.connectors.files.parquet.reading import parquet_format
from penstock.errors import DataError

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

path, schema, option = sys.argv[1], pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(sys.argv[2]))), sys.argv[3]
read = parquet_format(schema, OptionTexts("test", {"maxPageBytes": option}), "UTC")
pq.write_table(pa.table({"warm": ["up"]}), path + ".warm")
list(read(path + ".warm", 0))
before, rows, said = peak(), 0, ""
try:
    for batch, _ in zip(read(path, 0), range(3)):
        rows += batch.num_rows
        del batch
except (DataError, pa.ArrowException) as error:
    said = str(error)
print(json.dumps([said, rows, peak() - before]))
"""


def read(path: Path, schema: pa.Schema, option: str = "8m") -> tuple[str, int, int]:
    """Read three batches. Return the error, the number of rows and the memory."""
    arguments = [sys.executable, "-c", PROGRAM, str(path), schema.serialize().to_pybytes().hex(), option]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    said, rows, taken = json.loads(done.stdout)
    return said, rows, taken


TEXT = pa.schema([("value", pa.string())])
LONGS = pa.schema([("value", pa.list_(pa.int64()))])


def page_bomb(path: Path) -> pa.Schema:
    """A page of 64 MiB in some KiB."""
    table = pa.table({"value": ["x" * (64 << 20)]})
    pq.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)
    return TEXT


def dictionary_page_bomb(path: Path) -> pa.Schema:
    table = pa.table({"value": pa.DictionaryArray.from_arrays(pa.array([0, 0]), ["x" * (64 << 20)])})
    pq.write_table(table, path, compression="zstd", dictionary_pagesize_limit=1 << 30, write_statistics=False)
    return TEXT


def lying_page(path: Path) -> pa.Schema:
    """A page whose header claims 128 MiB: Arrow would allocate them."""
    table = pa.table({"value": ["x" * (1100 << 10)]})
    pq.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)
    data = bytearray(path.read_bytes())
    said = (1100 << 10) + 4 + 6  # the text, its length, and the levels
    [place] = [data.index(varint(2 * size)) for size in range(said - 6, said + 1) if varint(2 * size) in data[:40]]
    data[place : place + 4] = varint(2 * ((1 << 27) - 1))
    path.write_bytes(data)
    return TEXT


def nested_bomb(path: Path) -> pa.Schema:
    """A row of 10 million zeros."""
    values = pa.array(np.zeros(10_000_000, np.int64))
    table = pa.table({"value": pa.ListArray.from_arrays([0, len(values)], values)})
    pq.write_table(table, path, compression="zstd", data_page_size=1 << 30, write_statistics=False)
    return LONGS


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def file_with(elements: bytes, count: int, path: Path) -> None:
    """A file without rows; ``elements``: its schema, see parquet.thrift."""
    footer = b"\x15\x02" + b"\x19\xfc" + varint(count) + elements + b"\x16\x00" + b"\x19\x0c" + b"\x00"
    path.write_bytes(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1")


def group(children: int) -> bytes:
    return b"\x35\x00\x18\x01a\x15" + varint(2 * children) + b"\x00"


LEAF = b"\x15\x02\x25\x02\x18\x01b\x00"


def many_columns(path: Path) -> pa.Schema:
    file_with(group(1_000_000) + LEAF * 1_000_000, 1_000_001, path)
    return TEXT


def deep_columns(path: Path) -> pa.Schema:
    file_with(group(1) * 90_000 + LEAF, 90_001, path)
    return TEXT


def long_footer(path: Path) -> pa.Schema:
    pq.write_table(pa.table({"value": ["x"]}).replace_schema_metadata({"a": "x" * (9 << 20)}), path)
    return TEXT


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (page_bomb, "column value has a page of"),
        (dictionary_page_bomb, "column value has a page of"),
        (lying_page, "would become 134217727, more than 8388608"),
        (nested_bomb, "column value.list.element may become 800"),
        (many_columns, f"at most {MAX_COLUMNS} are read"),
        (deep_columns, f"more than {MAX_DEPTH} deep"),
        (long_footer, "has a footer of"),
    ],
)
def test_a_bomb_is_refused_by_name(tmp_path: Path, make: Callable[[Path], pa.Schema], complaint: str) -> None:
    path = tmp_path / "bomb.parquet"
    schema = make(path)
    said, rows, taken = read(path, schema, "1m" if make is nested_bomb else "8m")
    assert complaint in said
    assert str(path) in said
    assert rows == 0
    assert taken < 6 * LIMIT
    if complaint.startswith(("column value has", "has a footer")):
        assert "maxPageBytes" in said
        assert read(path, schema, "1g")[:2] == ("", pq.read_metadata(path).num_rows), "the option raises the bound"


@pytest.mark.parametrize(
    "footer",
    [b"\x19" * 5000, b"\x1c" * 5000, b"\x1b\x01\xbb" * 5000, b"\x29\x15\x02\x00", b"\x25\x02\x00", b"\x29\x1c\x5c"],
    ids=["lists in lists", "structures", "maps in maps", "schema of numbers", "schema that is a number", "no end"],
)
def test_a_damaged_footer_is_no_parquet_file(tmp_path: Path, footer: bytes) -> None:
    path = tmp_path / "damaged.parquet"
    path.write_bytes(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1")
    with pytest.raises(pa.ArrowInvalid, match="its footer is damaged"):
        check_footer(str(path), 1 << 20)


def test_a_damaged_page_header_is_named(tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    pq.write_table(pa.table({"value": [1, 2]}), path, use_dictionary=False, compression="none", write_statistics=False)
    metadata = pq.read_metadata(path)
    place = metadata.row_group(0).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    header = b"\x15\x00\x15\x02\x15\x02\x25\x02\x00"  # a data page whose own header, field 5, is a number
    data[place : place + len(header)] = header
    path.write_bytes(data)
    with pytest.raises(pa.ArrowInvalid, match=f"column value: the header of the page at {place} is damaged"):
        max_batch_rows(str(path), metadata, [0], [0], 1024, 1 << 20)


def dictionary_bomb(path: Path) -> pa.Schema:
    """A million rows with the same 4 MiB."""
    text = ["y", "x" * (4 << 20)]
    table = pa.table({"value": pa.DictionaryArray.from_arrays(pa.array(np.ones(1_000_000, np.int32)), text)})
    pq.write_table(table, path, compression="zstd", dictionary_pagesize_limit=1 << 30, write_statistics=False)
    return TEXT


def delta_bomb(path: Path) -> pa.Schema:
    """Values that are equal to the one before."""
    table = pa.table({"value": ["x" * (512 << 10)] * 2000})
    encoding = {"value": "DELTA_BYTE_ARRAY"}
    pq.write_table(
        table, path, compression="zstd", use_dictionary=False, column_encoding=encoding, data_page_size=1 << 22,
        write_statistics=False,
    )  # fmt: skip
    return TEXT


def wide_rows(path: Path) -> pa.Schema:
    """Pages of one row, each 7 MiB."""
    table = pa.table({"value": ["x" * (7 << 20)] * 40})
    pq.write_table(
        table, path, compression="zstd", use_dictionary=False, data_page_size=1, write_batch_size=1,
        write_statistics=False,
    )  # fmt: skip
    return TEXT


@pytest.mark.one_in(3)
@pytest.mark.parametrize("make", [dictionary_bomb, delta_bomb, wide_rows])
def test_columns_of_large_values_are_read_in_small_batches(tmp_path: Path, make: Callable[[Path], pa.Schema]) -> None:
    path = tmp_path / "bomb.parquet"
    schema = make(path)
    said, rows, taken = read(path, schema)
    assert said == ""
    assert rows > 0
    assert taken < 4 * LARGEST_BATCH


def files() -> Iterator[tuple[pa.Table, dict[str, object]]]:
    rng = np.random.default_rng(1)
    numbers, texts = rng.integers(0, 1 << 40, 50_000), [f"text {x}" for x in rng.integers(0, 30_000, 50_000)]
    table = pa.table({"number": numbers, "text": texts, "nulls": pa.array([None, *texts[1:]])})
    nested = pa.table({"list": [[n, None] for n in range(20_000)], "map": [{"a": n} for n in range(20_000)]})
    for version in ("1.0", "2.0"):
        for compression in ("none", "snappy", "gzip", "zstd", "lz4", "brotli"):
            for one in (table, nested):
                yield one, {"data_page_version": version, "compression": compression}
        texts = pa.table({"list": [["a long text that goes on", f"and {n}"] * 20 for n in range(20_000)]})
        encoding = {"list.list.element": "DELTA_BYTE_ARRAY"}
        yield texts, {"data_page_version": version, "use_dictionary": False, "column_encoding": encoding}
        yield table, {"data_page_version": version, "use_dictionary": False, "row_group_size": 7_000}
        yield table, {"data_page_version": version, "data_page_size": 1_000, "write_page_index": True}
        yield table, {"data_page_version": version, "dictionary_pagesize_limit": 10_000, "write_page_checksum": True}


@pytest.mark.parametrize(("table", "options"), list(files()))
def test_ordinary_files_keep_their_batches(tmp_path: Path, table: pa.Table, options: dict[str, object]) -> None:
    pq.write_table(table, tmp_path / "a.parquet", **options)
    metadata = pq.read_metadata(tmp_path / "a.parquet")
    groups, columns = list(range(metadata.num_row_groups)), list(range(metadata.num_columns))
    assert max_batch_rows(str(tmp_path / "a.parquet"), metadata, groups, columns, 16_384, 128 << 20) == 16_384


def test_the_option_is_a_size() -> None:
    assert page_bytes(OptionTexts("test", {})) == 128 << 20
    assert page_bytes(OptionTexts("test", {"MAXPAGEBYTES": "8g"})) == (1 << 31) - 1
    for text in ("0", "much", "-1"):
        with pytest.raises(ConfigError, match="maxPageBytes"):
            page_bytes(OptionTexts("test", {"maxPageBytes": text}))
