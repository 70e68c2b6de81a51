"""Parquet files come in batches that are large where rows are small, and from any row on the same rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.files.parquet.reading import BATCH_ROWS, MOST_ROWS, ParquetFormat, batch_rows, leaves_of

ROWS = 150_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    numbers = np.random.default_rng(1).permutation(ROWS)
    texts = pa.array([f"{number:>200}" for number in numbers.tolist()])
    pair = pa.StructArray.from_arrays([pa.array(numbers), texts], ["n", "text"])
    file = tmp_path_factory.mktemp("parquet") / "rows.parquet"
    pq.write_table(
        pa.table({"n": numbers, "text": texts, "text2": numbers, "pair": pair}), file, row_group_size=100_000
    )
    return str(file)


@pytest.mark.parametrize(
    ("names", "rows"),
    [(["n"], MOST_ROWS), (["text"], BATCH_ROWS + 8192), (["pair.n"], MOST_ROWS), (["pair"], BATCH_ROWS + 8192)],
)
def test_batches_have_so_many_bytes_of_the_columns_that_are_read(path: str, names: list[str], rows: int) -> None:
    metadata = pq.read_metadata(path)
    found = batch_rows(metadata, [0, 1], leaves_of(metadata, names))
    assert BATCH_ROWS <= found <= rows
    assert (found == MOST_ROWS) == (rows == MOST_ROWS)
    assert batch_rows(metadata, [0], leaves_of(metadata, [*names, "text", "pair"])) == BATCH_ROWS


def test_a_column_whose_name_goes_on_is_another(path: str) -> None:
    metadata = pq.read_metadata(path)
    assert batch_rows(metadata, [0, 1], leaves_of(metadata, ["text2"])) == MOST_ROWS
    assert batch_rows(metadata, [0, 1], []) == MOST_ROWS


@pytest.mark.parametrize("skipped", [0, 1, 65_536, 99_999, 100_000, 149_999, 150_000])
def test_from_any_row_on_come_the_same_rows(path: str, skipped: int) -> None:
    read = ParquetFormat(pa.schema([("n", pa.int64())]))
    found = [number for batch in read(path, skipped) for number in batch.column(0).to_pylist()]
    assert found == np.random.default_rng(1).permutation(ROWS).tolist()[skipped:]


def test_files_are_read_in_batches_of_that_size(path: str) -> None:
    numbers, texts = ParquetFormat(pa.schema([("n", pa.int64())])), ParquetFormat(pa.schema([("text", pa.string())]))
    assert next(numbers(path, 0)).num_rows == MOST_ROWS
    metadata = pq.read_metadata(path)
    assert next(texts(path, 0)).num_rows == batch_rows(metadata, [0, 1], leaves_of(metadata, ["text"])) < MOST_ROWS


PROGRAM = """
import os, sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.option_texts import OptionTexts
from penstock.connectors.files.parquet.reading import ParquetFormat
from penstock.connectors.files.parquet.sink import parquet_sink_format

threads = lambda: len(os.listdir("/proc/self/task"))
schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
source, merged = Path(sys.argv[1], "one.parquet"), Path(sys.argv[1], "merged.parquet")
pq.write_table(pa.table({"n": range(50_000), "text": [str(n) for n in range(50_000)]}, schema), source)
before = threads()
assert sum(batch.num_rows for batch in ParquetFormat(schema)(str(source), 0)) == 50_000
parquet_sink_format(schema, OptionTexts("parquet sink", {})).merge([source] * 3, merged)
assert pq.read_metadata(merged).num_rows == 150_000
print(threads() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_no_thread_is_left_of_reading_or_merging(tmp_path: Path) -> None:
    """Those of Arrow's pools never end, and each has a heap of its own."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("0\n", "")
