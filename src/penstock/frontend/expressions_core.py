"""Columns, literals, structs, and wrappers without effect on values."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from penstock.errors import NotSupported
from penstock.frontend.catalyst import JavaTree, arrow_type, children, expr_id
from penstock.frontend.expressions_registry import Translation, catalyst, refuse
from penstock.operators.expressions import BoundReference, Expression, Literal
from penstock.operators.expressions.logic import NormalizeFloat
from penstock.operators.expressions.nested import GetField, MakeStruct, Reinterpret

AREA = "Columns, literals, structs"


@catalyst("AttributeReference", area=AREA, forms="a column")
def attribute(tree: JavaTree, translation: Translation) -> Expression:
    ordinal = translation.ordinals.get(expr_id(tree))
    if ordinal is None:
        raise NotSupported(f"column {tree.toString()} is not among the input's columns")
    return BoundReference(ordinal, arrow_type(tree), bool(tree.nullable()))


def literal_value(value: JavaTree, data_type: pa.DataType) -> object:
    """Catalyst's internal value of a literal as what ``pa.scalar`` takes."""
    if value is None:
        return None
    if pa.types.is_string(data_type):
        return str(value.toString())
    if pa.types.is_decimal(data_type):
        return Decimal(str(value.toString())).quantize(Decimal(1).scaleb(-data_type.scale))
    return bytes(value) if pa.types.is_binary(data_type) else value


@catalyst("Literal", area=AREA, forms="a constant", limits="atomic types and day-time intervals")
def literal(tree: JavaTree, translation: Translation) -> Expression:
    data_type = arrow_type(tree)
    if pa.types.is_nested(data_type):
        refuse(tree, "only constants of atomic types are supported")
    return Literal(literal_value(tree.value(), data_type), data_type)


@catalyst("Alias", area=AREA, forms="`... as name`")
def alias(tree: JavaTree, translation: Translation) -> Expression:
    return translation(tree.child())


@catalyst(
    "KnownNullable", "KnownNotNull", "KnownFloatingPointNormalized", area=AREA, forms="Catalyst's own marks; no effect"
)
def mark(tree: JavaTree, translation: Translation) -> Expression:
    return translation(children(tree)[0])


@catalyst("NormalizeNaNAndZero", area=AREA, forms="Catalyst's own, around floating-point keys")
def normalize(tree: JavaTree, translation: Translation) -> Expression:
    return NormalizeFloat(translation.children(tree), arrow_type(tree), bool(tree.nullable()))


@catalyst("PreciseTimestampConversion", area=AREA, forms="Catalyst's own, in `window(...)`")
def reinterpret(tree: JavaTree, translation: Translation) -> Expression:
    return Reinterpret(translation.children(tree), arrow_type(tree), bool(tree.nullable()))


@catalyst("CreateNamedStruct", area=AREA, forms="`struct(...)`, `named_struct(...)`, `window(...)`")
def struct(tree: JavaTree, translation: Translation) -> Expression:
    return MakeStruct([translation(child) for child in children(tree)[1::2]], arrow_type(tree))


@catalyst("GetStructField", area=AREA, forms="`struct.field`")
def field(tree: JavaTree, translation: Translation) -> Expression:
    return GetField(translation(tree.child()), int(tree.ordinal()), arrow_type(tree), bool(tree.nullable()))
