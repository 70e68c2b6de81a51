"""Arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_type, kind
from penstock.functions import Expression, Literal
from penstock.functions.numbers import arithmetic as kernels
from penstock.functions.numbers import decimal_division
from penstock.functions.numbers.arithmetic import EvalMode
from penstock.functions.numbers.decimals import DecimalArithmetic, DecimalSign
from penstock.functions.plan_registry import Translation, catalyst, eval_mode, refuse

AREA = "Arithmetic"
MAX_NEGATED_PRECISION = 34
MAX_PRECISION = 38

_SYMBOLS = {"Add": "+", "Subtract": "-", "Multiply": "*", "BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^"}


def is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type))


@catalyst("Add", "Subtract", "Multiply", area=AREA, forms="`+` `-` `*`, `try_add`...", limits="numbers")
def arithmetic(tree: JavaTree, translation: Translation) -> Expression:
    left, right = translation.children(tree)
    if pa.types.is_decimal(left.data_type):
        return DecimalArithmetic(_SYMBOLS[kind(tree)], left, right, arrow_type(tree), eval_mode(tree))
    if not is_number(left.data_type):
        refuse(tree, "only numbers can be added, subtracted and multiplied")
    if kind(tree) in ("Add", "Subtract") and _is_integral_zero(right):
        return left  # window() subtracts its start time, which is mostly none
    return kernels.Arithmetic(_SYMBOLS[kind(tree)], left, right, eval_mode(tree), bool(tree.nullable()))


def _is_integral_zero(expression: Expression) -> bool:
    """Not of a float: -0.0 + 0 is 0.0."""
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


@catalyst(*_DIVISIONS, area=AREA, forms="`/` `div` `%` `pmod`, `try_divide`, `try_mod`", limits="numbers")
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
    """``IntegralDivide.resultDecimalType``: room for the largest whole quotient."""
    digits = left.precision - left.scale + right.scale
    return pa.decimal128(min(digits if digits else 1, MAX_PRECISION), 0)


def decimal_sign(tree: JavaTree, operation: str, child: Expression) -> Expression:
    """Spark negates longer decimals in a context of 34 digits, and so rounds them: refused rather than copied."""
    if child.data_type.precision > MAX_NEGATED_PRECISION:
        refuse(tree, f"decimals of more than {MAX_NEGATED_PRECISION} digits cannot be negated; cast to fewer")
    return DecimalSign(operation, child, bool(tree.nullable()))


@catalyst("UnaryMinus", area=AREA, forms="`-x`", limits="numbers")
def negate(tree: JavaTree, translation: Translation) -> Expression:
    child = translation(tree.child())
    if pa.types.is_decimal(child.data_type):
        return decimal_sign(tree, "-", child)
    if not is_number(child.data_type):
        refuse(tree, "only numbers can be negated")
    return kernels.Negate(child, bool(tree.failOnError()), bool(tree.nullable()))


@catalyst("Abs", area=AREA, forms="`abs`", limits="numbers")
def absolute(tree: JavaTree, translation: Translation) -> Expression:
    child = translation(tree.child())
    if pa.types.is_decimal(child.data_type):
        return decimal_sign(tree, "abs", child)
    if not is_number(child.data_type):
        refuse(tree, "only numbers have an absolute value")
    return kernels.Absolute(child, bool(tree.failOnError()), bool(tree.nullable()))


@catalyst("BitwiseAnd", "BitwiseOr", "BitwiseXor", area=AREA, forms="`&` `|` `^`", limits="integers")
def bitwise(tree: JavaTree, translation: Translation) -> Expression:
    left, right = translation.children(tree)
    return kernels.Bitwise(_SYMBOLS[kind(tree)], left, right, bool(tree.nullable()))


@catalyst("BitwiseNot", area=AREA, forms="`~`", limits="integers")
def bitwise_not(tree: JavaTree, translation: Translation) -> Expression:
    return kernels.BitwiseNot(translation.children(tree), arrow_type(tree), bool(tree.nullable()))
