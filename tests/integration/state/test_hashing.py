"""Key groups are frozen: the vectors below were computed by Spark and may never change."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import NotSupported
from penstock.functions.hashes.murmur3 import MURMUR3
from penstock.state.hashing import chain_hash_with, groups_of, hash_columns, key_groups

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = dt.UTC
WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
NAN_WITH_PAYLOAD = np.array([0x7FF8000000000ABC], np.uint64).view(np.float64)[0]

COLUMNS: dict[str, pa.Array] = {
    "bool": pa.array([True, False, None, True]),
    "byte": pa.array([-128, 127, None, 0], pa.int8()),
    "short": pa.array([-32768, 32767, None, 1], pa.int16()),
    "int": pa.array([-(2**31), 2**31 - 1, None, 7], pa.int32()),
    "long": pa.array([-(2**63), 2**63 - 1, None, 7], pa.int64()),
    "float": pa.array([-0.0, float("nan"), None, 1.5], pa.float32()),
    "double": pa.array(np.array([-0.0, NAN_WITH_PAYLOAD, 0.0, -1e300]), pa.float64()),
    "date": pa.array([dt.date(1969, 12, 31), dt.date(2024, 2, 29), None, dt.date(1970, 1, 1)]),
    "timestamp": pa.array([-1, 1_700_000_000_000_001, None, 0], pa.timestamp("us", "UTC")),
    "ntz": pa.array([-1, 1_700_000_000_000_001, None, 0], pa.timestamp("us")),
    "string": pa.array(["", "a", None, "ü" * 40]),
    "binary": pa.array([b"", b"\x00\xff", None, bytes(range(100))]),
    "dec9": pa.array([Decimal("1.50"), Decimal("-9999999.99"), None, Decimal(0)], pa.decimal128(9, 2)),
    "dec18": pa.array([10**17, -(10**17), None, -1], pa.decimal128(18, 0)),
    "dec38": pa.array([Decimal(10**37), Decimal(-128), None, Decimal(128)], pa.decimal128(38, 0)),
    "window": pa.array(
        [{"start": 0, "end": 60_000_000}, {"start": None, "end": 5}, None, {"start": -5, "end": 0}], WINDOW
    ),
}  # fmt: skip

FROZEN: dict[str, list[int]] = {
    "bool": [-6698625589789238999, 3614696996920510707, 42, -6698625589789238999],
    "byte": [4160238337661960656, 8632298611707923906, 42, 3614696996920510707],
    "short": [-904511417458573795, 8952525448871805501, 42, -6698625589789238999],
    "int": [2073849959933241805, 1508894993788531228, 42, 2786828215451145335],
    "long": [-8619748838626508300, -3246596055638297850, 42, -2864211556195259663],
    "float": [3614696996920510707, 2692338816207849720, 42, 6163473420726370430],
    "double": [-5252525462095825812, -3127944061524951246, -5252525462095825812, 3086024234770041280],
    "date": [2017008487422258757, 4183429117450946631, 42, 3614696996920510707],
    "timestamp": [3858142552250413010, 3348137978408683071, 42, -5252525462095825812],
    "ntz": [3858142552250413010, 3348137978408683071, 42, -5252525462095825812],
    "string": [-7444071767201028348, -8582455328737087284, 42, -7293016135497780812],
    "binary": [-7444071767201028348, 879945414100663330, 42, -9107075101236275961],
    "dec9": [-6873856301616164681, 8670643431269007867, 42, -5252525462095825812],
    "dec18": [6208874880363592185, -7205748577880542659, 42, 3858142552250413010],
    "dec38": [-5413593087337273940, -7898411661632158123, 42, 6715097930120473301],
    "window": [-8892554279648761120, 6251837290343458373, 42, 1826449190030127627],
}  # fmt: skip
FROZEN_CHAIN = [-4927046904798522168, 9183992825293668529, -5252525462095825812, 1668088948945323372]


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_hashes_are_the_frozen_ones(name: str) -> None:
    assert hash_columns([COLUMNS[name]], 4).tolist() == FROZEN[name]


def test_a_chain_of_all_columns_is_frozen() -> None:
    assert hash_columns(list(COLUMNS.values()), 4).tolist() == FROZEN_CHAIN


def test_no_columns_hash_to_the_seed() -> None:
    batch = pa.record_batch([pa.array([1, 2, 3])], names=["x"])
    assert key_groups(batch, [], 128).tolist() == [42, 42, 42]
    assert key_groups(batch, [], 5).tolist() == [2, 2, 2]


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_a_slice_hashes_as_the_whole(name: str) -> None:
    whole = hash_columns([COLUMNS["string"], COLUMNS[name]], 4)
    part = hash_columns([COLUMNS["string"].slice(1, 2), COLUMNS[name].slice(1, 2)], 2)
    assert part.tolist() == whole[1:3].tolist()


def test_groups_are_a_positive_remainder() -> None:
    columns = [pa.array(range(-5000, 5000))]
    groups = groups_of(columns, 10_000, 128)
    assert groups.dtype == np.int16
    assert (groups >= 0).all()
    assert (groups < 128).all()
    assert groups.tolist() == [value % 128 for value in hash_columns(columns, 10_000).tolist()]
    assert len(set(groups.tolist())) == 128


def test_a_map_is_refused_by_its_type() -> None:
    with pytest.raises(NotSupported, match="map<string, int64>"):
        hash_columns([pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))], 1)


@pytest.mark.spark
def test_spark_computes_the_same(spark: SparkSession) -> None:
    frame = spark.createDataFrame(pa.table(COLUMNS))
    names = list(COLUMNS)
    pairs = [(first, second) for first in ("string", "double", "dec38") for second in names]
    chain = ", ".join(names)
    rows = frame.selectExpr(
        "long",
        f"xxhash64({chain}) AS h_all",
        f"pmod(xxhash64({chain}), 128) AS grp",
        *[f"xxhash64({name}) AS h_{name}" for name in names],
        *[f"xxhash64({a}, {b}) AS h_{a}_{b}" for a, b in pairs],
    ).collect()  # fmt: skip
    order = {value: position for position, value in enumerate(COLUMNS["long"].to_pylist())}
    rows.sort(key=lambda row: order[row["long"]])

    def spark_says(column: str) -> list[Any]:
        return [row[column] for row in rows]

    for name in names:
        assert hash_columns([COLUMNS[name]], 4).tolist() == spark_says(f"h_{name}"), name
    for a, b in pairs:
        assert hash_columns([COLUMNS[a], COLUMNS[b]], 4).tolist() == spark_says(f"h_{a}_{b}"), (a, b)
    assert hash_columns(list(COLUMNS.values()), 4).tolist() == spark_says("h_all")
    assert groups_of(list(COLUMNS.values()), 4, 128).tolist() == spark_says("grp")


TEXTS = [bytes((7 * place + length) % 256 for place in range(length)) for length in (0, 3, 255, 256, 257, 264, 5000)]
LISTS = {
    "texts": pa.array(TEXTS),
    "characters": pa.array(["ü" * (len(text) // 2) for text in TEXTS]),
    "lists of texts": pa.array([[TEXTS[6], None, TEXTS[1]] * 100] + [[TEXTS[2]]] * 6),
    **{
        f"lists of {name}": pa.concat_arrays([
            pa.ListArray.from_arrays([0, 4, 4], values),
            pa.ListArray.from_arrays([0, 1000], pa.concat_arrays([values] * 250)),
            pa.array([None], pa.list_(values.type)),
            pa.ListArray.from_arrays([0, 2, 3], values),
            pa.ListArray.from_arrays([0, 41], pa.concat_arrays([values] * 11)),
        ])
        for name, values in COLUMNS.items()
    },
}  # fmt: skip


def murmur(values: pa.Array) -> list[int]:
    return chain_hash_with(values, np.full(len(values), 42, np.uint32), MURMUR3).view(np.int32).tolist()


@pytest.mark.spark
def test_long_texts_and_lists_are_hashed_as_spark_hashes_them(spark: SparkSession) -> None:
    columns = {name.replace(" ", "_"): values for name, values in LISTS.items()}
    hashes = [f"{function}({name}) AS {function}_{name}" for name in columns for function in ("xxhash64", "hash")]
    table = spark.createDataFrame(pa.table(columns)).coalesce(1).selectExpr(*columns, *hashes).toArrow()
    assert table.num_rows == len(TEXTS)
    for name in columns:
        values = table[name].combine_chunks()
        assert hash_columns([values], len(values)).tolist() == table[f"xxhash64_{name}"].to_pylist(), name
        assert murmur(values) == table[f"hash_{name}"].to_pylist(), name


@pytest.mark.parametrize("name", LISTS)
def test_many_long_values_have_the_hashes_of_each(name: str) -> None:
    """Elements that only a few rows have are hashed one by one, all others together."""
    single = [LISTS[name].slice(row, 1) for row in range(len(TEXTS))]
    rows = pa.concat_arrays([LISTS[name]] * 7)
    assert hash_columns([rows], len(rows)).tolist() == [hash_columns([row], 1)[0] for row in single] * 7
    assert murmur(rows) == [murmur(row)[0] for row in single] * 7
