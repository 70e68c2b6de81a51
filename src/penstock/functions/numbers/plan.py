"""Arithmetic, rounding, bits and bitmaps, number bases, and functions of doubles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
from pyspark import SparkContext

from penstock.catalyst.jvm import java_class
from penstock.catalyst.trees import JavaTree, arrow_type, elements, kind
from penstock.functions import Expression, Literal
from penstock.functions.casts.plan import require_known_digits
from penstock.functions.core.strict import ScalarFunction, VectorFunction
from penstock.functions.numbers import arithmetic as kernels
from penstock.functions.numbers import bits, decimal_division, fast_decimals, numbers, rounding, strict_math
from penstock.functions.numbers.arithmetic import EvalMode
from penstock.functions.numbers.decimals import DecimalArithmetic, DecimalSign
from penstock.functions.plan_registry import Translation, catalyst, constant, eval_mode, refuse

ARITHMETIC = "Arithmetic"
MAX_NEGATED_PRECISION = 34
MAX_PRECISION = 38

_SYMBOLS = {"Add": "+", "Subtract": "-", "Multiply": "*", "BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^"}


def is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type))


@catalyst("Add", "Subtract", "Multiply", area=ARITHMETIC, forms="`+` `-` `*`, `try_add`...", limits="numbers")
def arithmetic(tree: JavaTree, translation: Translation) -> Expression:
    left, right = translation.children(tree)
    if pa.types.is_decimal(left.data_type):
        return DecimalArithmetic(_SYMBOLS[kind(tree)], left, right, arrow_type(tree), eval_mode(tree))
    if not is_number(left.data_type):
        refuse(tree, "only numbers can be added, subtracted and multiplied")
    if kind(tree) in ("Add", "Subtract") and _is_integral_zero(right):
        return left  # window() subtracts its start time, which is mostly 0
    return kernels.Arithmetic(_SYMBOLS[kind(tree)], left, right, eval_mode(tree), bool(tree.nullable()))


def _is_integral_zero(expression: Expression) -> bool:
    """Return True for the integer literal 0.

    A float zero does not count, because -0.0 + 0 is 0.0.
    """
    if not isinstance(expression, Literal) or not pa.types.is_integer(expression.data_type):
        return False
    return expression.scalar.is_valid and not expression.scalar.as_py()


_DIVISIONS: dict[str, Callable[[Expression, Expression, pa.DataType, EvalMode], Expression]] = {
    "Divide": kernels.Divide,
    "IntegralDivide": kernels.IntegralDivide,
    "Remainder": kernels.Remainder,
    "Pmod": kernels.PositiveModulo,
}


_DECIMAL_DIVISIONS = {
    "Divide": decimal_division.quotient,
    "IntegralDivide": decimal_division.whole_quotient,
    "Remainder": decimal_division.remainder,
    "Pmod": decimal_division.positive_modulo,
}


@catalyst(*_DIVISIONS, area=ARITHMETIC, forms="`/` `div` `%` `pmod`, `try_divide`, `try_mod`", limits="numbers")
def division(tree: JavaTree, translation: Translation) -> Expression:
    left, right = translation.children(tree)
    if pa.types.is_decimal(left.data_type):
        data_type, function = arrow_type(tree), _DECIMAL_DIVISIONS[kind(tree)]
        precise = _whole_type(left.data_type, right.data_type) if pa.types.is_int64(data_type) else data_type
        return decimal_division.DecimalDivision(function, left, right, data_type, precise, eval_mode(tree))
    if not is_number(left.data_type):
        refuse(tree, "only numbers can be divided")
    return _DIVISIONS[kind(tree)](left, right, arrow_type(tree), eval_mode(tree))


def _whole_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return ``IntegralDivide.resultDecimalType``, which has enough digits for the largest quotient."""
    digits = left.precision - left.scale + right.scale
    return pa.decimal128(min(digits if digits else 1, MAX_PRECISION), 0)


def decimal_sign(tree: JavaTree, operation: str, child: Expression) -> Expression:
    """Compile unary minus or ``abs`` of a decimal.

    Decimals of more than 34 digits are refused, because Spark rounds them to 34 digits when it negates them.
    """
    if child.data_type.precision > MAX_NEGATED_PRECISION:
        refuse(tree, f"decimals of more than {MAX_NEGATED_PRECISION} digits cannot be negated; cast to fewer")
    return DecimalSign(operation, child, bool(tree.nullable()))


@catalyst("UnaryMinus", area=ARITHMETIC, forms="`-x`", limits="numbers")
def negate(tree: JavaTree, translation: Translation) -> Expression:
    child = translation(tree.child())
    if pa.types.is_decimal(child.data_type):
        return decimal_sign(tree, "-", child)
    if not is_number(child.data_type):
        refuse(tree, "only numbers can be negated")
    return kernels.Negate(child, bool(tree.failOnError()), bool(tree.nullable()))


@catalyst("Abs", area=ARITHMETIC, forms="`abs`", limits="numbers")
def absolute(tree: JavaTree, translation: Translation) -> Expression:
    child = translation(tree.child())
    if pa.types.is_decimal(child.data_type):
        return decimal_sign(tree, "abs", child)
    if not is_number(child.data_type):
        refuse(tree, "only numbers have an absolute value")
    return kernels.Absolute(child, bool(tree.failOnError()), bool(tree.nullable()))


@catalyst("BitwiseAnd", "BitwiseOr", "BitwiseXor", area=ARITHMETIC, forms="`&` `|` `^`", limits="integers")
def bitwise(tree: JavaTree, translation: Translation) -> Expression:
    left, right = translation.children(tree)
    return kernels.Bitwise(_SYMBOLS[kind(tree)], left, right, bool(tree.nullable()))


@catalyst("BitwiseNot", area=ARITHMETIC, forms="`~`", limits="integers")
def bitwise_not(tree: JavaTree, translation: Translation) -> Expression:
    return kernels.BitwiseNot(translation.children(tree), arrow_type(tree), bool(tree.nullable()))


ROUNDING = "Rounding"
FUNCTIONS = "Functions of numbers"


@catalyst(*rounding.MODES, area=ROUNDING, forms="`round`, `bround`, `ceil` and `floor` with a scale",
          limits="floats and doubles on Java 17 and 18 only, whose digits later versions change")  # fmt: skip
def round_to(tree: JavaTree, translation: Translation) -> Expression:
    child, scale = translation.children(tree)
    mode, decimal_places, nullable = rounding.MODES[kind(tree)], constant(scale), bool(tree.nullable())
    if not isinstance(decimal_places, int):
        refuse(tree, "the scale must be a constant")
    if pa.types.is_decimal(child.data_type):
        return _rounded_decimal(mode, decimal_places, child, arrow_type(tree))
    if pa.types.is_integer(child.data_type):
        return rounding.RoundInteger(mode, decimal_places, child, translation.conf.ansi, nullable)
    require_known_digits(tree)
    return rounding.RoundFloat(mode, decimal_places, child, nullable)


@catalyst(*rounding.WHOLE_MODES, area=ROUNDING, forms="`ceil`, `ceiling`, `floor`")
def whole(tree: JavaTree, translation: Translation) -> Expression:
    child = translation(tree.child())
    if pa.types.is_decimal(child.data_type):
        return _rounded_decimal(rounding.WHOLE_MODES[kind(tree)], 0, child, arrow_type(tree))
    return rounding.WholeNumber(kind(tree) == "Ceil", child, translation.conf.ansi, bool(tree.nullable()))


def _rounded_decimal(mode: str, decimal_places: int, child: Expression, data_type: pa.DataType) -> Expression:
    fast_path = partial(fast_decimals.rounded, mode, decimal_places)
    function = rounding.decimal_rounding(mode, decimal_places, data_type)
    return ScalarFunction(function, (child,), data_type, fast_path=fast_path)


def of_doubles(tree: JavaTree, translation: Translation) -> Expression:
    function = partial(numbers.of_doubles, numbers.EXACT[kind(tree)][0])
    operands = translation.children(tree)
    if not all(pa.types.is_float64(operand.data_type) for operand in operands):
        refuse(tree, "only doubles are supported")
    return VectorFunction(function, operands, arrow_type(tree), bool(tree.nullable()))


for _name, (_, _forms) in numbers.EXACT.items():
    catalyst(_name, area=FUNCTIONS, forms=_forms)(of_doubles)

_SHIFTS = {"ShiftLeft": "<<", "ShiftRight": ">>", "ShiftRightUnsigned": ">>>"}


@catalyst(*_SHIFTS, area=FUNCTIONS, forms="`<<` `>>` `>>>`, `shiftleft`, `shiftright`, `shiftrightunsigned`")
def shift(tree: JavaTree, translation: Translation) -> Expression:
    function = partial(bits.shift, _SHIFTS[kind(tree)])
    return VectorFunction(function, translation.children(tree), arrow_type(tree), bool(tree.nullable()))


_CLASSES = {
    "BitwiseCount": (bits.BitCount, "`bit_count`"),
    "BitwiseGet": (bits.BitGet, "`bit_get`, `getbit`"),
    "Factorial": (numbers.Factorial, "`factorial`"),
}


def simple(tree: JavaTree, translation: Translation) -> Expression:
    return _CLASSES[kind(tree)][0](translation.children(tree), arrow_type(tree), bool(tree.nullable()))


for _name, (_class, _forms) in _CLASSES.items():
    catalyst(_name, area=FUNCTIONS, forms=_forms)(simple)


@catalyst("WidthBucket", area=FUNCTIONS, forms="`width_bucket`", limits="of numbers")
def width_bucket(tree: JavaTree, translation: Translation) -> Expression:
    operands = translation.children(tree)
    if not all(pa.types.is_float64(operand.data_type) for operand in operands[:3]):
        refuse(tree, "only numbers are put into buckets")
    return numbers.WidthBucket(operands, arrow_type(tree), bool(tree.nullable()))


_MAPPED: dict[str, tuple[Callable[..., object], str]] = {
    "Bin": (numbers.binary_of, "`bin`"),
}


def mapped(tree: JavaTree, translation: Translation) -> Expression:
    return ScalarFunction(_MAPPED[kind(tree)][0], translation.children(tree), arrow_type(tree), bool(tree.nullable()))


for _name, (_mapped, _forms) in _MAPPED.items():
    catalyst(_name, area=FUNCTIONS, forms=_forms)(mapped)


@catalyst("Conv", area=FUNCTIONS, forms="`conv`")
def conv(tree: JavaTree, translation: Translation) -> Expression:
    function = partial(numbers.convert_base, translation.conf.ansi)
    return ScalarFunction(function, translation.children(tree), arrow_type(tree))


STRICT_MATH = "Exponentials, logarithms, arcs"
LAST_STRICT_JAVA = 21
"""Later JVMs have their own ``cbrt``, ``sinh`` and ``tanh``, which differ from those of ``StrictMath``."""


def require_strict(tree: JavaTree) -> None:
    """Refuse a function that this JVM's ``Math`` may compute differently from ``StrictMath``."""
    context = SparkContext._active_spark_context
    assert context is not None
    version = str(java_class(context, "java.lang.System").getProperty("java.specification.version"))
    if int(version) > LAST_STRICT_JAVA:
        refuse(tree, f"Java {version} may compute it in a way of its own; use a pandas_udf")


def strict_function(tree: JavaTree, translation: Translation) -> Expression:
    if kind(tree) in strict_math.OF_MATH:
        require_strict(tree)
    function = partial(strict_math.compute, strict_math.FUNCTIONS[kind(tree)][0])
    return VectorFunction(function, translation.children(tree), arrow_type(tree), bool(tree.nullable()))


for _name, (_, _forms) in strict_math.FUNCTIONS.items():
    catalyst(_name, area=STRICT_MATH, forms=_forms,
             limits="on Java 17 to 21" if _name in strict_math.OF_MATH else "")(strict_function)  # fmt: skip


def logarithm(tree: JavaTree, translation: Translation) -> Expression:
    function, limit, _ = strict_math.LOGARITHMS[kind(tree)]
    operands = translation.children(tree)
    return VectorFunction(partial(strict_math.above, function, limit), operands, arrow_type(tree))


for _name, (_function, _limit, _forms) in strict_math.LOGARITHMS.items():
    catalyst(_name, area=STRICT_MATH, forms=_forms)(logarithm)


BITMAPS = "Bitmaps"

_BITMAP_FUNCTIONS: dict[str, Callable[..., Expression]] = {
    "BitmapExpressionUtils.bitmapBucketNumber": bits.BitmapBucket,
    "BitmapExpressionUtils.bitmapBitPosition": bits.BitmapPosition,
    "BitmapExpressionUtils.bitmapCount": bits.BitmapCount,
}


@catalyst(*_BITMAP_FUNCTIONS, area=BITMAPS, forms="`bitmap_bucket_number`, `bitmap_bit_position`, `bitmap_count`")
def bitmap_function(tree: JavaTree, translation: Translation) -> Expression:
    [argument] = map(translation, elements(tree.arguments()))
    kernel = _BITMAP_FUNCTIONS[f"BitmapExpressionUtils.{tree.functionName()}"]
    return kernel((argument,), pa.int64(), bool(tree.nullable()))
