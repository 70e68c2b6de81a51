"""Only its user has access to a query's new checkpoint folder, unless an option allows more."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.queries.query_running import Inbox, Start

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("owner_only", "mode"), [("true", 0o700), ("false", 0o777)])
def test_a_query_makes_its_location_for_its_owner(
    spark: SparkSession, inbox: Inbox, start: Start, tmp_path: Path, owner_only: str, mode: int
) -> None:
    before = os.umask(0)
    try:
        options = {"checkpointLocation": str(tmp_path / "made"), "checkpoint.ownerOnly": owner_only}
        query = start(inbox.stream(spark), format="parquet", path=str(tmp_path / "out"), **options)
        query.stop()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == mode
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o777, "readers of the output are others"
