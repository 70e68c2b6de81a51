"""An option of the query limits the length of texts for patterns that may backtrack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import penstock
from tests.support.queries.query_running import Inbox, rows_of

pytestmark = pytest.mark.spark
Start = Callable[..., penstock.StreamingQuery]


@pytest.mark.parametrize(("pattern", "bounded"), [("(?i)(1+)+x", True), ("(1+)+x", False)])
def test_longer_texts_end_the_query_unless_re2_runs_the_pattern(
    spark: SparkSession, inbox: Inbox, start: Start, out: Path, pattern: str, bounded: bool
) -> None:
    inbox.add([(1, 1, 0.0)])
    df = inbox.stream(spark).selectExpr(f"repeat('1', 30) || key rlike '{pattern}' AS found")
    query = start(df, **{"regexp.maxLength": 30, "restart.strategy": "none"})
    if bounded:
        with pytest.raises(
            StreamingQueryException, match=r"text of 31 characters; the limit is 30: .*regexp\.maxLength"
        ):
            query.processAllAvailable()
    else:
        query.processAllAvailable()
        assert rows_of(out) == [(False,)]
