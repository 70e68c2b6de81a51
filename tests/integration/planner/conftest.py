"""Fixtures of the frontend's tests."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture(scope="module")
def folder(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The module's own ``rows`` as a Parquet file."""
    path = tmp_path_factory.mktemp("rows")
    pq.write_table(rows, path / "part-0.parquet")
    return path
