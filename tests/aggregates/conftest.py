"""Fixtures of the tests of aggregation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aggregate_kit import make_rows


@pytest.fixture(autouse=True)
def without_generated_code(request: pytest.FixtureRequest) -> None:
    """Each of Spark's plans runs once, over few rows: compiling Java for it would take most of the time."""
    if request.node.get_closest_marker("spark") is None:
        return
    spark_conf: Callable[[str, str], None] = request.getfixturevalue("spark_conf")
    spark_conf("spark.sql.codegen.wholeStage", "false")
    spark_conf("spark.sql.codegen.factoryMode", "NO_CODEGEN")


@pytest.fixture(scope="session")
def rows() -> pa.Table:
    return make_rows()


@pytest.fixture(scope="session")
def folder(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows as one Parquet file, so that Spark reads them in their order."""
    path = tmp_path_factory.mktemp("rows")
    pq.write_table(rows, path / "part-0.parquet")
    return path
