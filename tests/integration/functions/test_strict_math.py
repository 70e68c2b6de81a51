"""fdlibm's functions and rounding, bit by bit against the JVM on random arguments of every size.

``PENSTOCK_MATH_ARGUMENTS`` sets how many of each kind (seven kinds); a run by hand takes a million.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.functions import BoundReference
from penstock.functions.numbers.fdlibm import arcs, exponential, logarithm, power
from penstock.functions.numbers.fdlibm.words import Doubles
from penstock.functions.numbers.rounding import RoundFloat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ARGUMENTS = int(os.environ.get("PENSTOCK_MATH_ARGUMENTS", "4000"))
EDGES = [
    0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 2.0**-1022,
    1.7976931348623157e308, 709.782712893384, -745.1332191019412, 710.4758600739439, -1075.0, 1024.0, 1.5, 3.0, 1 / 3,
    0.975, 22.0, -22.0, 2.0**53, -(2.0**31), 0.7071067811865476, 1.4142135623730951,
]  # fmt: skip

JAVA = """
    java.nio.ByteOrder order = java.nio.ByteOrder.LITTLE_ENDIAN;
    java.nio.DoubleBuffer left = java.nio.ByteBuffer.wrap(xs).order(order).asDoubleBuffer();
    java.nio.DoubleBuffer right = java.nio.ByteBuffer.wrap(ys).order(order).asDoubleBuffer();
    java.nio.ByteBuffer out = java.nio.ByteBuffer.allocate(xs.length).order(order);
    while (left.hasRemaining()) {
        double x = left.get();
        double y = right.get();
        out.putDouble(EXPRESSION);
    }
    return out.array();
"""


@pytest.fixture(scope="module")
def java(spark: SparkSession) -> Callable[[str, Doubles, Doubles], Doubles]:
    """``java(expression, xs, ys)``: what Java makes of ``x`` and ``y``."""
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    find = jvm.java.lang.Class.forName

    def evaluate(expression: str, xs: Doubles, ys: Doubles) -> Doubles:
        names, types = gateway.new_array(jvm.java.lang.String, 2), gateway.new_array(jvm.java.lang.Class, 2)
        names[0], names[1] = "xs", "ys"
        types[0] = types[1] = find("[B")
        script = jvm.org.codehaus.janino.ScriptEvaluator()
        script.setReturnType(find("[B"))
        script.setParameters(names, types)
        script.cook(JAVA.replace("EXPRESSION", expression))
        arguments: Any = gateway.new_array(jvm.java.lang.Object, 2)
        arguments[0], arguments[1] = bytearray(xs.tobytes()), bytearray(ys.tobytes())
        return np.frombuffer(bytes(script.evaluate(arguments)), np.float64)

    return evaluate


def arguments(seed: int) -> Doubles:
    """Any bits, numbers around zero, one and a hundred, integers, and of all sizes."""
    random, n = np.random.default_rng(seed), ARGUMENTS
    patterns = random.integers(0, 2**64, n, dtype=np.uint64).view(np.float64)
    sizes = random.normal(0, 1, n) * 10.0 ** random.uniform(-20, 3, n)
    near_one, wide = 1 + random.normal(0, 1e-6, n), random.normal(0, 100, n)
    whole = random.integers(-60, 60, n).astype(np.float64)
    return np.concatenate([patterns, sizes, near_one, wide, whole, random.uniform(-1, 1, n), random.normal(0, 1, n)])


def pairs() -> tuple[Doubles, Doubles]:
    left, right = arguments(1), np.random.default_rng(3).permutation(arguments(2))
    edges = np.array(np.meshgrid(EDGES, EDGES)).reshape(2, -1)
    return np.concatenate([left, edges[0]]), np.concatenate([right, edges[1]])


FUNCTIONS: dict[str, Callable[..., Doubles]] = {
    "exp(x)": exponential.exp, "expm1(x)": exponential.expm1, "sinh(x)": exponential.sinh, "cosh(x)": exponential.cosh,
    "tanh(x)": exponential.tanh, "log(x)": logarithm.log, "log10(x)": logarithm.log10, "log1p(x)": logarithm.log1p,
    "cbrt(x)": power.cbrt, "pow(x, y)": power.power, "hypot(x, y)": power.hypot, "asin(x)": arcs.asin,
    "acos(x)": arcs.acos, "atan(x)": arcs.atan, "atan2(x, y)": arcs.atan2,
}  # fmt: skip


def differing(expected: Doubles, ours: Doubles) -> np.ndarray[Any, np.dtype[np.bool_]]:
    same = (expected.view(np.int64) == ours.view(np.int64)) | (np.isnan(expected) & np.isnan(ours))
    return np.asarray(~same)


@pytest.mark.parametrize("call", FUNCTIONS)
def test_equal_to_strict_math(java: Callable[[str, Doubles, Doubles], Doubles], call: str) -> None:
    x, y = pairs()
    expected = java(f"java.lang.StrictMath.{call}", x, y)
    with np.errstate(all="ignore"):
        ours = FUNCTIONS[call](x, y) if "y" in call else FUNCTIONS[call](x)
    wrong = differing(expected, ours)
    shown = zip(x[wrong][:5], y[wrong][:5], expected[wrong][:5], ours[wrong][:5], strict=True)
    assert not wrong.any(), f"{wrong.sum()} of {len(x)}: {list(shown)}"


@pytest.mark.parametrize("places", [-2, 0, 1, 2, 5, 15, 22])
@pytest.mark.parametrize(("mode", "java_mode"), [(ROUND_HALF_UP, "HALF_UP"), (ROUND_HALF_EVEN, "HALF_EVEN")])
def test_rounding_of_random_doubles(
    java: Callable[[str, Doubles, Doubles], Doubles], places: int, mode: str, java_mode: str
) -> None:
    random = np.random.default_rng(9)
    ties = (random.integers(-(10**6), 10**6, 500) + 0.5) / 10.0**places
    values = np.concatenate([ties, np.nextafter(ties, 0), arguments(4)[:: max(1, ARGUMENTS // 500)]])
    values = values[np.isfinite(values) & (np.abs(values) < 1e60) & (np.abs(values) > 1e-60)]
    call = f"java.math.BigDecimal.valueOf(x).setScale({places}, java.math.RoundingMode.{java_mode}).doubleValue()"
    expected = java(call, values, values)
    kernel = RoundFloat(mode, places, BoundReference(0, pa.float64()))
    ours = kernel.evaluate(pa.record_batch({"x": values})).to_numpy()
    wrong = differing(expected, ours)
    assert not wrong.any(), list(zip(values[wrong][:5], expected[wrong][:5], ours[wrong][:5], strict=True))
