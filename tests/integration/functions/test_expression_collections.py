"""Maps under the other policy for equal keys, and nested values as batches really hold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import DataError, NotSupported
from penstock.functions import SessionConf
from penstock.functions.core import ragged
from penstock.functions.core.ragged import as_type, list_array
from penstock.functions.core.ranks import ranks
from tests.support.functions.expression_cases_collections import MAPS
from tests.support.functions.expression_oracle import bits, check
from tests.support.functions.expression_relations_nested import collections

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.functions.expression_oracle import Relation


@pytest.mark.spark
def test_the_last_of_equal_keys_wins_if_the_session_says_so(
    spark: SparkSession, relation: Callable[[str], Relation]
) -> None:
    built = [case for case in MAPS if case.startswith(("map(", "map_from", "map_concat", "str_to_map"))]
    more = [
        "map(x_f, 1, -0.0D, 2, 0.0D, 3)",
        "transform_keys(x_m, (k, v) -> k % 2)",
        "transform_keys(x_fm, (k, v) -> k % 1)",
    ]
    spark.conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
    try:
        maps = relation("maps")
        differences = check(maps, maps.compile(built + more, SessionConf(last_key_wins=True)))
    finally:
        spark.conf.unset("spark.sql.mapKeyDedupPolicy")
    assert not differences, "\n".join(differences[:40])


def nested_columns() -> list[tuple[str, pa.Array]]:
    table = collections().combine_chunks()
    return [(name, table[name].combine_chunks()) for name in table.column_names]


@pytest.mark.spark
def test_days_of_a_zone_are_not_counted(
    spark: SparkSession, relation: Callable[[str], Relation], spark_conf: Callable[[str, str], None]
) -> None:
    edges = relation("time sequences")
    spark_conf("spark.sql.session.timeZone", "America/New_York")
    for sql in ("sequence(ts, ts2)", "sequence(dt, dt2, interval 1 day)"):
        with pytest.raises(NotSupported, match=r"days are not of one length.*transform a sequence of integers"):
            edges.compile([sql], SessionConf(time_zone="America/New_York"))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("setting", "value", "sql"),
    [
        ("spark.sql.legacy.negativeIndexInArrayInsert", "true", "array_insert(x_i, -1, 5)"),
        ("spark.sql.legacy.followThreeValuedLogicInArrayExists", "false", "exists(x_i, e -> e > 1)"),
        ("spark.sql.legacy.allowNullComparisonResultInArraySort", "true", "array_sort(x_i, (a, b) -> a - b)"),
    ],
)
def test_older_meanings_are_refused(
    relation: Callable[[str], Relation], spark_conf: Callable[[str, str], None], setting: str, value: str, sql: str
) -> None:
    edges = relation("arrays")
    spark_conf(setting, value)
    with pytest.raises(NotSupported, match=f"unset {setting}"):
        edges.compile([sql], SessionConf())


def renamed(data_type: pa.DataType) -> pa.DataType:
    """The type with other names inside."""
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(f"other {f.name}", renamed(f.type)) for f in data_type])
    return pa.list_(pa.field("other", renamed(data_type.value_type))) if pa.types.is_list(data_type) else data_type


@pytest.mark.parametrize(("name", "array"), nested_columns(), ids=[name for name, _ in nested_columns()])
def test_slices_of_nested_columns_keep_their_values(name: str, array: pa.Array) -> None:
    part = array.slice(9, 17)
    assert bits(as_type(part, renamed(part.type))) == bits(part)
    if pa.types.is_list(array.type) or pa.types.is_map(array.type):
        rows = np.asarray(part.is_valid())
        assert bits(ragged.ragged(part, rows).array(part.type, rows)) == bits(part)


def test_ranks_order_as_spark_does() -> None:
    nan = float("nan")
    values = [None, [], [None], [None, 1.0], [-0.0], [0.0, None], [1.0], [1.0, -1.0], [float("inf")], [nan], [nan, nan]]
    order = ranks(pa.array(values, pa.list_(pa.float64())))
    assert order.tolist() == sorted(order.tolist())
    assert len(set(order.tolist())) == len(values)
    assert ranks(pa.array([[0.0], [-0.0]])).tolist() == [1, 1]
    pairs = pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "z"}, {"a": 1, "b": None}])
    assert np.argsort(ranks(pairs)).tolist() == [1, 2, 3, 0]


def test_more_values_than_a_batch_can_hold_end_the_query() -> None:
    with pytest.raises(DataError, match="arrays of one batch have 4294967296 elements"):
        list_array(np.array([2**31, 2**31]), pa.nulls(0, pa.int32()), pa.list_(pa.int32()))
