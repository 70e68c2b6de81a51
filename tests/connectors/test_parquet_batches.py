"""Parquet files come in batches that are large where rows are small, and from any row on the same rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.parquet_files import BATCH_ROWS, MOST_ROWS, ParquetFormat, batch_rows

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
    found = batch_rows(metadata, [0, 1], names)
    assert BATCH_ROWS <= found <= rows
    assert (found == MOST_ROWS) == (rows == MOST_ROWS)
    assert batch_rows(metadata, [0], [*names, "text", "pair"]) == BATCH_ROWS


def test_a_column_whose_name_goes_on_is_another(path: str) -> None:
    metadata = pq.read_metadata(path)
    assert batch_rows(metadata, [0, 1], ["text2"]) == MOST_ROWS
    assert batch_rows(metadata, [0, 1], []) == MOST_ROWS


@pytest.mark.parametrize("skipped", [0, 1, 65_536, 99_999, 100_000, 149_999, 150_000])
def test_from_any_row_on_come_the_same_rows(path: str, skipped: int) -> None:
    read = ParquetFormat(pa.schema([("n", pa.int64())]))
    found = [number for batch in read(path, skipped) for number in batch.column(0).to_pylist()]
    assert found == np.random.default_rng(1).permutation(ROWS).tolist()[skipped:]


def test_files_are_read_in_batches_of_that_size(path: str) -> None:
    numbers, texts = ParquetFormat(pa.schema([("n", pa.int64())])), ParquetFormat(pa.schema([("text", pa.string())]))
    assert next(numbers(path, 0)).num_rows == MOST_ROWS
    assert next(texts(path, 0)).num_rows == batch_rows(pq.read_metadata(path), [0, 1], ["text"]) < MOST_ROWS
