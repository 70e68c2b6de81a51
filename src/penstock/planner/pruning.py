"""Columns of a plan's leaf, and fields of its structs, that the nodes above it need."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.catalyst.trees import JavaTree, children, elements, expr_id, ids_in, kind

_NARROWING = ("Project", "Aggregate")
_PASSING = (
    "Filter",
    "EventTimeWatermark",
    "ArrowEvalPython",
    "BatchEvalPython",
    "Repartition",
    "RepartitionByExpression",
)
"""``_NARROWING``: nodes whose output has only columns that they name. ``_PASSING``: nodes that pass all columns on."""
_WITHIN = ("Filter", "EventTimeWatermark")
"""Nodes of ``_PASSING`` that send rows neither to other subtasks nor to Python."""
_OF_NO_FIELD = ("IsNull", "IsNotNull")


def needed_columns(output: Sequence[JavaTree], above: Sequence[JavaTree]) -> list[JavaTree]:
    """Return the leaf's attributes that are read; at least one, so that rows can be counted.

    All attributes are returned if the nodes above pass all columns on, or may do so.

    Args:
        output: the leaf's attributes.
        above: the nodes above the leaf, nearest first.
    """
    needed: set[int] = set()
    for node in above:
        needed.update(identity for item in elements(node.expressions()) for identity in ids_in(item))
        if kind(node) in _NARROWING:
            return [attribute for attribute in output if expr_id(attribute) in needed] or list(output[:1])
        if kind(node) not in _PASSING:
            break
    return list(output)


def needed_fields(above: Sequence[JavaTree]) -> dict[int, tuple[int, ...]]:
    """Return the fields to read of struct attributes that the plan reads only field by field.

    Args:
        above: the nodes above the leaf, nearest first.

    Returns:
        The ordinals of the fields by expression id; at least one, which shows if the struct itself is null.
    """
    whole: set[int] = set()
    fields: dict[int, set[int]] = {}
    for node in above:
        for expression in elements(node.expressions()):
            _note_uses(expression, whole, fields)
        if kind(node) in _NARROWING:
            return {key: tuple(sorted(read or {0})) for key, read in sorted(fields.items()) if key not in whole}
        if kind(node) not in _WITHIN:
            break
    return {}


def _note_uses(expression: JavaTree, whole: set[int], fields: dict[int, set[int]]) -> None:
    name = kind(expression)
    if name == "AttributeReference":
        whole.add(expr_id(expression))
        return
    below = children(expression)
    if name not in ("GetStructField", *_OF_NO_FIELD) or kind(below[0]) != "AttributeReference":
        for child in below:
            _note_uses(child, whole, fields)
        return
    read = fields.setdefault(expr_id(below[0]), set())
    if name == "GetStructField":
        read.add(int(expression.ordinal()))
