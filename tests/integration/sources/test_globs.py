"""Paths with wildcards, over outputs of Penstock's sinks and in its file sources, compared with Spark's readers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import penstock
from penstock.connectors.files.listed_paths import ListedPaths
from penstock.connectors.files.listing import Listing, parse_listing_options
from penstock.connectors.files.private_directory import HOME
from penstock.connectors.option_texts import OptionTexts
from tests.support.queries.query_running import Inbox, Start

pytestmark = pytest.mark.spark

DEPTHS = range(9)
"""Number of nested wildcards: one more than the deepest private file needs."""


def files_read(spark: SparkSession, path: str, **options: str) -> list[str]:
    """Return the files that Spark reads as text, or the name of the error."""
    try:
        return sorted(file.removeprefix("file://") for file in spark.read.options(**options).text(path).inputFiles())
    except PySparkException as error:
        return [] if error.getCondition() == "PATH_NOT_FOUND" else [str(error.getCondition())]


def all_files(directory: Path) -> set[str]:
    return {os.path.join(folder, name) for folder, _, names in os.walk(directory) for name in names}


def only_rows_are_read(spark: SparkSession, directory: Path, bare: Path) -> None:
    """Assert that Spark reads an output like a copy that has the files with rows only."""
    shutil.copytree(directory, bare, ignore=lambda folder, names: [name for name in names if name[0] in "_."])
    for depth in DEPTHS:
        for options in ({}, {"basePath": ""}, {"recursiveFileLookup": "true"}):
            found = [
                [
                    file.removeprefix(str(top))
                    for file in files_read(spark, f"{top}{'/*' * depth}", **_below(top, options))
                ]
                for top in (directory, bare)
            ]
            assert found[0] == found[1], (depth, options)


def _below(top: Path, options: dict[str, str]) -> dict[str, str]:
    return {**options, "basePath": str(top)} if "basePath" in options else options


def test_wildcards_over_an_output_find_its_rows_and_nothing_else(
    spark: SparkSession, inbox: Inbox, out: Path, tmp_path: Path, start: Start
) -> None:
    inbox.add([(1, 10, 1.0), (2, 20, 2.0), (3, 10, 3.0)])
    df = inbox.stream(spark).selectExpr("key AS a", "value AS b", "-key AS c")
    query = start(df, format="json", partitionBy=["a", "b"], path=str(out))
    query.processAllAvailable()
    query.stop()
    query = start(df, format="json", partitionBy=["a", "b"], path=str(out), rollInterval="1h")
    inbox.add([(4, 10, 4.0)])
    query.processAllAvailable()
    assert [file for file in all_files(out) if "/kept/" in file], "a row that is kept back"
    only_rows_are_read(spark, out, tmp_path / "bare")
    for path in (str(out), f"{out}/*", f"{out}/*/*"):
        rows = spark.read.option("basePath", str(out)).json(path).select("a", "b", "c").collect()
        assert sorted(map(tuple, rows)) == [(1, 10, -1), (2, 20, -2), (3, 10, -3)]
    query.stop()


@pytest.mark.parametrize("moment", ["while Spark writes", "afterwards"])
def test_wildcards_over_a_table_find_its_rows_and_nothing_else(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, moment: str
) -> None:
    table = tmp_path / "table"
    spark.sql(f"CREATE TABLE globbed (key bigint) USING json LOCATION '{table}'")
    try:
        inbox.add([(1, 10, 1.0)])
        writer = penstock.writeStream(inbox.stream(spark).select("key")).format("json")
        query = writer.toTable("globbed", checkpointLocation=str(tmp_path / "checkpoint"), parallelism=1)
        query.processAllAvailable()
        query.stop()
        left = table / HOME / "query-sink-0-e0000000009-ab.writing/_temporary/0/task_1"
        if moment == "while Spark writes":
            left.mkdir(parents=True)
            (left / "part-00000.json").write_text("{}")
            (left.parent.parent.parent / "part-00001.json").write_text("{}")
        only_rows_are_read(spark, table, tmp_path / "bare")
    finally:
        spark.sql("DROP TABLE globbed")


TREE = (
    "a/x", "a/_y", "a/.z", "_b/x", "_b/_y", ".c/x", ".c/.y", "_p=1/x", "_d/_spark_metadata/x", "_d/_spark_metadata/e/x",
    "m/_spark_metadata/0", "m/x", ".h", "_u", "k._COPYING_", "_s/t/u/x", "_s/._v/x",
)  # fmt: skip
PATTERNS = (
    "/*", "/*/*", "/*/*/*", "/*/*/*/*", "/m", "/m/*", "/_d/_spark_metadata", "/_d/_spark_metadata/*", "/.*", "/[._]*",
    "/{a,_b}", "/?b/?*", "/*/x", "/_d", "/.c/*", "/_b", "/_s/*", "/[!a]*/x",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_our_sources_find_by_wildcards_what_sparks_find(spark: SparkSession, tmp_path: Path, pattern: str) -> None:
    for name in TREE:
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("v1\n")
    given, options = f"{tmp_path}/in{pattern}", parse_listing_options(OptionTexts("source", {}))
    found = {path for path, _ in Listing(given, options).names()}
    assert found == set(files_read(spark, given))
    listed = ListedPaths(given, options)
    admitted = {path for path in all_files(tmp_path) if listed.admits(path)}
    assert admitted == found or (pattern == "/m" and admitted > found), "Spark's log at m is empty, and may not stay so"
