"""Fixtures of the tests of aggregation."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.aggregates.aggregate_kit import make_rows


@pytest.fixture(scope="session")
def rows() -> pa.Table:
    return make_rows()


@pytest.fixture(scope="session")
def folder(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows as one Parquet file, so that Spark reads them in their order."""
    path = tmp_path_factory.mktemp("rows")
    pq.write_table(rows, path / "part-0.parquet")
    return path
