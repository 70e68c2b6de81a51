"""Rounding, bits, bases, and functions of doubles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_type, kind
from penstock.functions import Expression
from penstock.functions.casts.plan import require_known_digits
from penstock.functions.core.strict import Fallible, Mapped, Vectorised
from penstock.functions.numbers import bits, numbers, rounding
from penstock.functions.numbers import fast_decimals as quick_decimals
from penstock.functions.plan_registry import Translation, catalyst, refuse
from penstock.functions.text.plan_strings import constant

ROUNDING = "Rounding"
FUNCTIONS = "Functions of numbers"


@catalyst(*rounding.MODES, area=ROUNDING, forms="`round`, `bround`, `ceil` and `floor` with a scale",
          limits="floats and doubles on Java 17 and 18 only, whose digits later versions change")  # fmt: skip
def round_to(tree: JavaTree, translation: Translation) -> Expression:
    child, scale = translation.children(tree)
    mode, places, nullable = rounding.MODES[kind(tree)], constant(scale), bool(tree.nullable())
    if not isinstance(places, int):
        refuse(tree, "the scale must be a constant")
    if pa.types.is_decimal(child.data_type):
        return _rounded_decimal(mode, places, child, arrow_type(tree))
    if pa.types.is_integer(child.data_type):
        return rounding.RoundInteger(mode, places, child, translation.conf.ansi, nullable)
    require_known_digits(tree)
    return rounding.RoundFloat(mode, places, child, nullable)


@catalyst(*rounding.WHOLE_MODES, area=ROUNDING, forms="`ceil`, `ceiling`, `floor`")
def whole(tree: JavaTree, translation: Translation) -> Expression:
    child = translation(tree.child())
    if pa.types.is_decimal(child.data_type):
        return _rounded_decimal(rounding.WHOLE_MODES[kind(tree)], 0, child, arrow_type(tree))
    return rounding.WholeNumber(kind(tree) == "Ceil", child, translation.conf.ansi, bool(tree.nullable()))


def _rounded_decimal(mode: str, places: int, child: Expression, data_type: pa.DataType) -> Expression:
    quick = partial(quick_decimals.rounded, mode, places)
    return Fallible(rounding.decimal_rounding(mode, places, data_type), child, data_type, None, quick)


def of_doubles(tree: JavaTree, translation: Translation) -> Expression:
    function = partial(numbers.of_doubles, numbers.EXACT[kind(tree)][0])
    operands = translation.children(tree)
    if not all(pa.types.is_float64(operand.data_type) for operand in operands):
        refuse(tree, "only doubles are supported")
    return Vectorised(function, operands, arrow_type(tree), bool(tree.nullable()))


for _name, (_, _forms) in numbers.EXACT.items():
    catalyst(_name, area=FUNCTIONS, forms=_forms)(of_doubles)

_SHIFTS = {"ShiftLeft": "<<", "ShiftRight": ">>", "ShiftRightUnsigned": ">>>"}


@catalyst(*_SHIFTS, area=FUNCTIONS, forms="`<<` `>>` `>>>`, `shiftleft`, `shiftright`, `shiftrightunsigned`")
def shift(tree: JavaTree, translation: Translation) -> Expression:
    function = partial(bits.shift, _SHIFTS[kind(tree)])
    return Vectorised(function, translation.children(tree), arrow_type(tree), bool(tree.nullable()))


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
    return Mapped(_MAPPED[kind(tree)][0], translation.children(tree), arrow_type(tree), bool(tree.nullable()))


for _name, (_mapped, _forms) in _MAPPED.items():
    catalyst(_name, area=FUNCTIONS, forms=_forms)(mapped)


@catalyst("Conv", area=FUNCTIONS, forms="`conv`")
def conv(tree: JavaTree, translation: Translation) -> Expression:
    function = partial(numbers.convert_base, translation.conf.ansi)
    return Mapped(function, translation.children(tree), arrow_type(tree))
