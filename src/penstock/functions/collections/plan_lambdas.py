"""Functions that take a lambda."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_type, elements, expr_id, kind, preorder
from penstock.functions import BoundReference, Expression
from penstock.functions.collections import lambdas as kernels
from penstock.functions.collections.lambdas import Body
from penstock.functions.collections.maps import MapRules
from penstock.functions.plan_registry import Translation, catalyst, refuse

AREA = "Lambdas"


def body_of(function: JavaTree, translation: Translation) -> Body:
    """A ``LambdaFunction`` as an expression over a batch of its own: what it reads from outside, and its arguments."""
    arguments = elements(function.arguments())
    own = [expr_id(argument) for argument in arguments]
    read = {expr_id(tree) for tree in preorder(function.function()) if kind(tree) in _VARIABLES} - set(own)
    outer = [identity for identity in translation.ordinals if identity in read]
    ordinals = {identity: position for position, identity in enumerate([*outer, *own])}
    expression = Translation(ordinals, translation.conf, translation.fields)(function.function())
    return Body(expression, [translation.ordinals[identity] for identity in outer], [arrow_type(a) for a in arguments])


_VARIABLES = ("AttributeReference", "NamedLambdaVariable")


@catalyst("NamedLambdaVariable", area=AREA, forms="a lambda's argument")
def variable(tree: JavaTree, translation: Translation) -> Expression:
    ordinal = translation.ordinals.get(expr_id(tree))
    if ordinal is None:
        refuse(tree, "it is not an argument of a lambda around it")
    return BoundReference(ordinal, arrow_type(tree), bool(tree.nullable()))


_OVER_ELEMENTS: dict[str, Callable[[Expression, Body, pa.DataType, bool], Expression]] = {
    "ArrayTransform": kernels.Transform, "ArrayFilter": kernels.Filter, "MapFilter": kernels.FilterMap,
}  # fmt: skip


@catalyst(*_OVER_ELEMENTS, area=AREA, forms="`transform`, `filter`, `map_filter`, `array_compact`")
def over_elements(tree: JavaTree, translation: Translation) -> Expression:
    body = body_of(tree.function(), translation)
    argument = translation(tree.argument())
    return _OVER_ELEMENTS[kind(tree)](argument, body, arrow_type(tree), bool(tree.nullable()))


@catalyst("ArrayExists", "ArrayForAll", area=AREA, forms="`exists`, `forall`")
def any_of(tree: JavaTree, translation: Translation) -> Expression:
    exists = kind(tree) == "ArrayExists"
    if exists and not bool(tree.followThreeValuedLogic()):
        refuse(tree, "unset spark.sql.legacy.followThreeValuedLogicInArrayExists")
    argument, body = translation(tree.argument()), body_of(tree.function(), translation)
    return kernels.Any(exists, argument, body, bool(tree.nullable()))


@catalyst("ArrayAggregate", area=AREA, forms="`aggregate`, `reduce`")
def aggregate(tree: JavaTree, translation: Translation) -> Expression:
    return kernels.Aggregate(
        translation(tree.argument()),
        translation(tree.zero()),
        body_of(tree.merge(), translation),
        body_of(tree.finish(), translation),
        arrow_type(tree),
    )


@catalyst("TransformKeys", "TransformValues", area=AREA, forms="`transform_keys`, `transform_values`")
def transform_map(tree: JavaTree, translation: Translation) -> Expression:
    return kernels.TransformMap(
        kind(tree) == "TransformKeys",
        MapRules(translation.conf.last_key_wins, plain_keys=False),
        translation(tree.argument()),
        body_of(tree.function(), translation),
        arrow_type(tree),
        bool(tree.nullable()),
    )


@catalyst("ZipWith", "MapZipWith", area=AREA, forms="`zip_with`, `map_zip_with`")
def over_two(tree: JavaTree, translation: Translation) -> Expression:
    left, right = translation(tree.left()), translation(tree.right())
    body = body_of(tree.function(), translation)
    make = kernels.ZipWith if kind(tree) == "ZipWith" else kernels.ZipMaps
    return make(left, right, body, arrow_type(tree), bool(tree.nullable()))


@catalyst("ArraySort", area=AREA, forms="`array_sort`", limits="the comparator is an order, and never null")
def array_sort(tree: JavaTree, translation: Translation) -> Expression:
    if bool(tree.allowNullComparisonResult()):
        refuse(tree, "unset spark.sql.legacy.allowNullComparisonResultInArraySort")
    argument, body = translation(tree.argument()), body_of(tree.function(), translation)
    if not pa.types.is_integer(body.data_type):
        refuse(tree, "the comparator must return an integer")
    return kernels.SortBy(argument, body, arrow_type(tree), bool(tree.nullable()))
