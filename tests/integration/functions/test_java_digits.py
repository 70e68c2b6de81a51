"""The digits of floats: on random bit patterns against Spark, and known oddities of Java 17."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from penstock.functions.casts.fast_digits import double_texts
from penstock.functions.casts.java_digits import decimal_of, double_text, float_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_known_texts() -> None:
    texts = {1.0: "1.0", 1e7: "1.0E7", 9999999.0: "9999999.0", 0.001: "0.001", 1e-4: "1.0E-4", 5e-324: "4.9E-324",
             2.0**-44: "5.6843418860808015E-14", 2e23: "1.9999999999999998E23", -123456.789: "-123456.789",
             float("inf"): "Infinity", float("-inf"): "-Infinity"}  # fmt: skip
    assert {value: double_text(value) for value in texts} == texts
    assert [double_text(value) for value in (0.0, -0.0, float("nan"))] == ["0.0", "-0.0", "NaN"]
    assert float_text(float(np.float32(0.1))) == "0.1"
    assert decimal_of(0.1) == Decimal("0.1")
    assert decimal_of(float("nan")) is None


def test_many_at_once_are_as_each_by_itself() -> None:
    random = np.random.default_rng(11)
    everyday = [np.round(random.random(3000) * 1e4, 2), random.random(3000) * 1e3, random.random(3000) * 1e7]
    binary = random.integers(1, 10**7, 2000) / 2.0 ** random.integers(0, 20, 2000)
    odd = [0.0, -0.0, np.nan, np.inf, 1e-3, 1e7, 9999999.999999998, 2.0**-6, np.nextafter(2.0**-6, 0), 5e-324, 99.95]
    values = np.concatenate([*everyday, binary, random.integers(-(10**7), 10**7, 2000) / 1.0, -everyday[0], odd])
    texts, fallback = double_texts(pa.array(values), None, pa.string())
    assert np.count_nonzero(fallback) < 200
    exact = [double_text(value) for value in values.tolist()]
    assert [text for text, doubt in zip(texts.to_pylist(), fallback, strict=True) if not doubt] == [
        text for text, doubt in zip(exact, fallback, strict=True) if not doubt
    ]


@pytest.mark.spark
@pytest.mark.parametrize("bits", [64, 32])
def test_random_bit_patterns_equal_spark(spark: SparkSession, bits: int) -> None:
    random = np.random.default_rng(7)
    patterns = random.integers(0, 2**bits, 4000, dtype=np.uint64).astype(f"uint{bits}").view(f"float{bits}")
    decimals = np.round(random.random(4000) * 1e4, 3).astype(patterns.dtype)
    powers = np.concatenate([np.ldexp(np.ones(200), np.arange(-100, 100)), 10.0 ** np.arange(-30, 30), [2e23, 2.2e23]])
    values = pa.array(np.concatenate([patterns, decimals, powers.astype(patterns.dtype)]))
    frame = spark.createDataFrame(pa.table({"id": pa.array(range(len(values))), "x": values}))
    expected = frame.selectExpr("id", "cast(x as string) as text").toArrow().sort_by("id")["text"].to_pylist()
    text = double_text if bits == 64 else float_text
    assert [text(value) for value in values.to_pylist()] == expected
