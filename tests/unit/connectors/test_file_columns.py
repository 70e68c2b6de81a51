"""Partition columns from the directories of a file, by rules that need no reader of Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.connectors.files.columns import FileColumns
from penstock.errors import ConfigError, UnfitFile

SCHEMA = pa.schema([("value", pa.string()), ("Day", pa.string())])
DECLARED = ("value", "Day", "unread")


def columns(case_sensitive: bool = False, schema: pa.Schema = SCHEMA, partitions: tuple[str, ...] = ()) -> FileColumns:
    return FileColumns(schema, partitions, "UTC", declared=DECLARED, case_sensitive=case_sensitive)


def test_directories_that_appear_give_columns_that_the_query_does_not_read_too() -> None:
    assert columns().partition_of("/in/Day=foo/unread=7/1", "/in") == {"Day": "foo", "unread": "7"}
    assert columns().partition_of("/in/1", "/in") == {}


def test_directories_are_found_by_case_as_the_session_says() -> None:
    assert columns().partition_of("/in/day=foo/1", "/in") == {"Day": "foo"}
    with pytest.raises(UnfitFile, match=r"named like a partition, day=\.\.\., and the query has no such column"):
        columns(case_sensitive=True).partition_of("/in/day=foo/1", "/in")
    given = columns(partitions=("Day",))
    assert given.partition_of("/in/DAY=foo/1", "/in") == {"Day": "foo"}


def test_the_columns_of_the_query_come_in_their_order() -> None:
    given = columns(partitions=("Day", "unread"))
    assert given.partition_of("/in/Day=a/unread=b/1", "/in") == {"Day": "a", "unread": "b"}
    for path in ("/in/unread=b/Day=a/1", "/in/Day=a/1", "/in/1"):
        with pytest.raises(UnfitFile, match=r"must lie in directories Day=\.\.\./unread=\.\.\. below /in"):
            given.partition_of(path, "/in")


def test_a_directory_of_a_column_that_no_name_can_hold_is_refused() -> None:
    schema = pa.schema([("value", pa.string()), ("Day", pa.list_(pa.string()))])
    with pytest.raises(ConfigError, match="Day"):
        columns(schema=schema).partition_of("/in/Day=foo/1", "/in")


def test_names_and_values_are_unescaped() -> None:
    assert columns().partition_of("/in/D%61y=a%2Fb/1", "/in") == {"Day": "a/b"}
    assert columns().partition_of("/in/Day=__HIVE_DEFAULT_PARTITION__/1", "/in") == {"Day": None}
