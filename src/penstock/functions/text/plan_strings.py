"""Strings, patterns and splitting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_type, kind
from penstock.functions import Expression, Literal
from penstock.functions.collections import lists
from penstock.functions.core.fast_path import Answer, Quick, by_column
from penstock.functions.core.strict import Mapped, Vectorised
from penstock.functions.logic.logic import CaseWhen, IsNull
from penstock.functions.plan_registry import Translation, catalyst, refuse
from penstock.functions.text import fast_path as quick_texts
from penstock.functions.text import letter_case, strings
from penstock.functions.text import texts as text_functions

AREA = "Strings"


def constant(expression: Expression) -> object:
    """A literal's value; None for anything else and for null."""
    return expression.scalar.as_py() if isinstance(expression, Literal) else None


def of_strings(tree: JavaTree, operands: list[Expression]) -> list[Expression]:
    """The operands, refused if one is binary: Spark's byte-wise variants are not implemented."""
    if any(pa.types.is_binary(operand.data_type) for operand in operands):
        refuse(tree, "only strings are supported; cast the binary column to string first")
    return operands


_LENGTHS = {"Length": "character", "OctetLength": "octet", "BitLength": "bit"}


@catalyst(*_LENGTHS, area=AREA, forms="`length`, `octet_length`, `bit_length`")
def length(tree: JavaTree, translation: Translation) -> Expression:
    return strings.StringLength(_LENGTHS[kind(tree)], translation(tree.child()), bool(tree.nullable()))


_FUNCTIONS: dict[str, tuple[Callable[..., object], str]] = {
    "Upper": (letter_case.upper, "`upper`"),
    "Lower": (letter_case.lower, "`lower`, `ilike`"),
    "Substring": (strings.substring, "`substring`, `left`, `right`"),
    "StringReplace": (strings.replace, "`replace`"),
    "StringInstr": (strings.instr, "`instr`"),
    "StringLPad": (partial(strings.pad, True), "`lpad`"),
    "StringRPad": (partial(strings.pad, False), "`rpad`"),
    "Reverse": (strings.reverse, "`reverse`, of arrays too"),
    "StringRepeat": (strings.repeat, "`repeat`"),
    "StringTranslate": (strings.translate, "`translate`"),
    "SubstringIndex": (strings.substring_index, "`substring_index`"),
    "Ascii": (strings.ascii_code, "`ascii`"),
}


_QUICK: dict[str, Callable[..., Answer | None]] = {
    "Upper": quick_texts.upper,
    "Lower": quick_texts.lower,
    "Substring": quick_texts.substring,
    "StringReplace": quick_texts.replace,
    "StringInstr": partial(quick_texts.locate, 1),
    "StringLPad": partial(quick_texts.pad, True),
    "StringRPad": partial(quick_texts.pad, False),
    "Reverse": quick_texts.reverse,
    "StringRepeat": quick_texts.repeat,
    "StringTranslate": quick_texts.translate,
    "SubstringIndex": quick_texts.substring_index,
}


def _quick(function: Callable[..., Answer | None] | None, operands: Sequence[Expression]) -> Quick | None:
    """If all operands but the first are constants."""
    if function is None or not all(isinstance(given, Literal) and given.scalar.is_valid for given in operands[1:]):
        return None
    return by_column(function, *map(constant, operands[1:]))


_OF_BYTES: dict[str, Callable[..., object]] = {
    "Substring": text_functions.subbytes,
    "Reverse": text_functions.reverse_bytes,
}


def mapped(tree: JavaTree, translation: Translation) -> Expression:
    operands = translation.children(tree)
    if pa.types.is_list(operands[0].data_type):  # of the functions here only ``reverse`` takes arrays
        return Vectorised(lists.reverse, operands, arrow_type(tree), bool(tree.nullable()))
    if kind(tree) in _OF_BYTES and pa.types.is_binary(operands[0].data_type):
        return Mapped(_OF_BYTES[kind(tree)], operands, arrow_type(tree), bool(tree.nullable()))
    of_strings(tree, operands)
    function, _ = _FUNCTIONS[kind(tree)]
    quick = _quick(_QUICK.get(kind(tree)), operands)
    return Mapped(function, operands, arrow_type(tree), bool(tree.nullable()), quick)


for _name, (_, _forms) in _FUNCTIONS.items():
    catalyst(_name, area=AREA, forms=_forms)(mapped)

_SIDES = {"StringTrim": "both", "StringTrimLeft": "left", "StringTrimRight": "right"}


@catalyst(*_SIDES, area=AREA, forms="`trim`, `btrim`, `ltrim`, `rtrim`, with or without characters")
def trim(tree: JavaTree, translation: Translation) -> Expression:
    side = _SIDES[kind(tree)]
    operands = translation.children(tree)
    if len(operands) == 1:
        return strings.TrimSpaces(side, operands[0], bool(tree.nullable()))
    function, quick = partial(strings.trim_characters, side), partial(quick_texts.trim_characters, side)
    return Mapped(function, operands, pa.string(), bool(tree.nullable()), _quick(quick, operands))


_TESTS: dict[str, Callable[..., object]] = {
    "Contains": strings.contains,
    "StartsWith": str.startswith,
    "EndsWith": str.endswith,
}


@catalyst(*_TESTS, area=AREA, forms="`contains`, `startswith`, `endswith`, simple `like`")
def match(tree: JavaTree, translation: Translation) -> Expression:
    operands = of_strings(tree, translation.children(tree))
    pattern = constant(operands[1])
    if isinstance(pattern, str):
        return strings.MatchConstant(kind(tree), operands[0], pattern, bool(tree.nullable()))
    return Mapped(_TESTS[kind(tree)], operands, pa.bool_(), bool(tree.nullable()))


@catalyst("Concat", area=AREA, forms="`concat`, `||`")
def concat(tree: JavaTree, translation: Translation) -> Expression:
    if pa.types.is_list(arrow_type(tree)):
        return lists.ConcatArrays(translation.children(tree), arrow_type(tree), bool(tree.nullable()))
    return strings.Concat(translation.children(tree), arrow_type(tree), bool(tree.nullable()))


@catalyst("ConcatWs", area=AREA, forms="`concat_ws`, of arrays too")
def concat_ws(tree: JavaTree, translation: Translation) -> Expression:
    separator, *parts = translation.children(tree)
    return strings.ConcatWithSeparator(separator, parts)


@catalyst("StringLocate", area=AREA, forms="`locate`, `position`")
def locate(tree: JavaTree, translation: Translation) -> Expression:
    part, text, start = translation.children(tree)
    place, known, nullable = constant(start), constant(part), bool(tree.nullable())
    if isinstance(place, int) and isinstance(known, str):
        quick = by_column(quick_texts.locate, place, known)
        return Mapped(partial(strings.locate, known, start=place), (text,), pa.int32(), nullable, quick)
    found = Mapped(strings.locate, (part, text, start), pa.int32(), nullable)
    if not start.nullable:
        return found
    return CaseWhen([(IsNull(start, negated=False), Literal(0, pa.int32()))], found, pa.int32(), found.nullable)
