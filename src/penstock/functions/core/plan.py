"""Columns, literals, structs, and wrappers that do not change values."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_type, children, data_type, expr_id, kind
from penstock.errors import NotSupported
from penstock.functions import BoundReference, Expression, Literal
from penstock.functions.core.nested import GetField, MakeStruct, Reinterpret, Retyped
from penstock.functions.logic.logic import NormalizeFloat
from penstock.functions.numbers.fixed_point import WIDE
from penstock.functions.plan_registry import Translation, catalyst

AREA = "Columns, literals, structs"


@catalyst("AttributeReference", area=AREA, forms="a column")
def attribute(tree: JavaTree, translation: Translation) -> Expression:
    ordinal = translation.ordinals.get(expr_id(tree))
    if ordinal is None:
        raise NotSupported(f"column {tree.toString()} is not among the input's columns")
    return BoundReference(ordinal, arrow_type(tree), bool(tree.nullable()))


def literal_value(value: JavaTree, data_type: pa.DataType, catalyst_type: JavaTree) -> object:
    """Convert Catalyst's internal value of a literal to a value that ``pa.scalar`` accepts."""
    if value is None:
        return None
    if pa.types.is_struct(data_type):
        types = [field.dataType() for field in catalyst_type.fields()]
        fields = [data_type.field(i) for i in range(data_type.num_fields)]
        return [(f.name, _item(value, i, f.type, types[i])) for i, f in enumerate(fields)]
    if pa.types.is_map(data_type):
        keys = _items(value.keyArray(), data_type.key_type, catalyst_type.keyType())
        return list(zip(keys, _items(value.valueArray(), data_type.item_type, catalyst_type.valueType()), strict=True))
    if pa.types.is_list(data_type):
        return _items(value, data_type.value_type, catalyst_type.elementType())
    if pa.types.is_string(data_type):
        return str(value.toString())
    if pa.types.is_decimal(data_type):
        return Decimal(str(value.toString())).quantize(Decimal(1).scaleb(-data_type.scale), context=WIDE)
    return bytes(value) if pa.types.is_binary(data_type) else value


def _items(array: JavaTree, data_type: pa.DataType, catalyst_type: JavaTree) -> list[object]:
    return [_item(array, i, data_type, catalyst_type) for i in range(array.numElements())]


def _item(parent: JavaTree, ordinal: int, data_type: pa.DataType, catalyst_type: JavaTree) -> object:
    value = None if parent.isNullAt(ordinal) else parent.get(ordinal, catalyst_type)
    return literal_value(value, data_type, catalyst_type)


@catalyst("Literal", area=AREA, forms="a constant", limits="day-time, but no other intervals")
def literal(tree: JavaTree, translation: Translation) -> Expression:
    arrow = arrow_type(tree)
    return Literal(literal_value(tree.value(), arrow, data_type(tree)), arrow)


@catalyst("EulerNumber", "Pi", area=AREA, forms="`e()`, `pi()`")
def famous_number(tree: JavaTree, translation: Translation) -> Expression:
    return Literal(math.e if kind(tree) == "EulerNumber" else math.pi, pa.float64())


@catalyst("Alias", area=AREA, forms="`... as name`")
def alias(tree: JavaTree, translation: Translation) -> Expression:
    return translation(tree.child())


@catalyst(
    "KnownNullable", "KnownNotNull", "KnownFloatingPointNormalized", area=AREA, forms="Catalyst's own marks; no effect"
)
def mark(tree: JavaTree, translation: Translation) -> Expression:
    return translation(children(tree)[0])


@catalyst("KnownNotContainsNull", area=AREA, forms="Catalyst's own, in `array_compact`")
def known_elements(tree: JavaTree, translation: Translation) -> Expression:
    return Retyped([translation(tree.child())], arrow_type(tree), bool(tree.nullable()))


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
    child, ordinal = tree.child(), int(tree.ordinal())
    if kind(child) == "AttributeReference" and (read := translation.fields.get(expr_id(child))) is not None:
        ordinal = read.index(ordinal)
    return GetField(translation(child), ordinal, arrow_type(tree), bool(tree.nullable()))
