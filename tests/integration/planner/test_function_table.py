"""The table of functions says what is so."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from penstock.planner.function_table import names, tried
from tests.support.places import DOCS

PAGE = DOCS / "functions.md"
EVERY = 19
"""One in so many is tried: all of them take half a minute."""

pytestmark = pytest.mark.spark


def test_the_page_has_every_function_and_what_is_tried_is_as_it_says(spark: SparkSession) -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    listed = names(spark)
    assert len(lines) == len(listed)
    chosen = range(0, len(listed), EVERY)
    found = list(tried(spark, [listed[number] for number in chosen]))
    assert [function.line for function in found] == [lines[number] for number in chosen], (
        "python -m penstock.planner.function_table > docs/functions.md"
    )
    assert f"{sum('` | yes |' in line for line in lines)} of {len(lines)} run." in PAGE.read_text()


def test_a_function_that_the_session_registered_is_not_listed(spark: SparkSession) -> None:
    session = spark.newSession()
    session.udf.register("registered_here", lambda value: value)
    assert session.catalog.functionExists("registered_here")
    assert "registered_here" not in names(session)
