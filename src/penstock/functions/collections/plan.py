"""Functions of arrays and maps, and functions with a lambda."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_type, children, elements, expr_id, kind, option, preorder
from penstock.functions import BoundReference, Expression
from penstock.functions.collections import lambdas, list_sets, lists, maps
from penstock.functions.collections.lambdas import Body
from penstock.functions.collections.maps import MapRules
from penstock.functions.core.strict import ArrayFunction, VectorFunction
from penstock.functions.patterns import patterns
from penstock.functions.plan_registry import Translation, catalyst, constant, refuse
from penstock.functions.times.calendar import MICROS_PER_DAY

ARRAYS = "Arrays"
MAPS = "Maps"


@catalyst("CreateArray", area=ARRAYS, forms="`array(...)`")
def array(tree: JavaTree, translation: Translation) -> Expression:
    return lists.MakeArray(translation.children(tree), arrow_type(tree))


@catalyst("GetArrayItem", area=ARRAYS, forms="`array[i]`, `get`", limits="zero-based")
def get_item(tree: JavaTree, translation: Translation) -> Expression:
    items, index = translation.children(tree)
    return lists.GetItem(items, index, bool(tree.failOnError()))


@catalyst("GetMapValue", area=MAPS, forms="`map[key]`")
def map_value(tree: JavaTree, translation: Translation) -> Expression:
    return VectorFunction(maps.lookup, translation.children(tree), arrow_type(tree))


@catalyst("ElementAt", area=ARRAYS, forms="`element_at`, `try_element_at`", limits="of arrays and maps")
def element_at(tree: JavaTree, translation: Translation) -> Expression:
    operands = translation.children(tree)
    if tree.defaultValueOutOfBound().isDefined():
        refuse(tree, "split the text and take an element with try_element_at")
    if pa.types.is_map(operands[0].data_type):
        return VectorFunction(maps.lookup, operands, arrow_type(tree))
    return VectorFunction(partial(lists.element_at, bool(tree.failOnError())), operands, arrow_type(tree))


@catalyst("Size", area=ARRAYS, forms="`size`, `cardinality`, `array_size`", limits="of arrays and maps")
def size(tree: JavaTree, translation: Translation) -> Expression:
    return lists.Size(translation(tree.child()), bool(tree.legacySizeOfNull()))


@catalyst("GetArrayStructFields", area=ARRAYS, forms="`array_of_structs.field`")
def list_fields(tree: JavaTree, translation: Translation) -> Expression:
    function = partial(lists.list_fields, int(tree.ordinal()))
    return VectorFunction(function, [translation(tree.child())], arrow_type(tree), bool(tree.nullable()))


_FUNCTIONS: dict[str, tuple[ArrayFunction, str, str]] = {
    "ArrayContains": (lists.contains, ARRAYS, "`array_contains`, `map_contains_key`"),
    "ArrayPosition": (lists.position, ARRAYS, "`array_position`"),
    "ArrayMax": (lists.max_of, ARRAYS, "`array_max`"),
    "ArrayMin": (lists.min_of, ARRAYS, "`array_min`"),
    "Slice": (lists.cut, ARRAYS, "`slice`"),
    "Flatten": (lists.flatten, ARRAYS, "`flatten`"),
    "ArraysZip": (lists.zipped, ARRAYS, "`arrays_zip`"),
    "ArrayDistinct": (list_sets.distinct, ARRAYS, "`array_distinct`"),
    "ArrayUnion": (list_sets.union, ARRAYS, "`array_union`"),
    "ArrayIntersect": (list_sets.intersect, ARRAYS, "`array_intersect`"),
    "ArrayExcept": (list_sets.except_, ARRAYS, "`array_except`"),
    "ArrayRemove": (list_sets.remove, ARRAYS, "`array_remove`"),
    "ArraysOverlap": (list_sets.overlap, ARRAYS, "`arrays_overlap`"),
    "MapKeys": (partial(maps.part, 0), MAPS, "`map_keys`"),
    "MapValues": (partial(maps.part, 1), MAPS, "`map_values`"),
    "MapEntries": (maps.entries, MAPS, "`map_entries`"),
}


def array_function(tree: JavaTree, translation: Translation) -> Expression:
    function = _FUNCTIONS[kind(tree)][0]
    return VectorFunction(function, translation.children(tree), arrow_type(tree), bool(tree.nullable()))


for _name, (_, _area, _forms) in _FUNCTIONS.items():
    catalyst(_name, area=_area, forms=_forms)(array_function)


@catalyst("SortArray", area=ARRAYS, forms="`sort_array`")
def sort_array(tree: JavaTree, translation: Translation) -> Expression:
    values, ascending = translation.children(tree)
    descending = constant(ascending) is not True
    # Spark sorts an array of primitive values without nulls as Java does, with -0.0 before 0.0.
    exact = not descending and not values.data_type.value_field.nullable
    return VectorFunction(partial(lists.sort, descending, exact), [values], arrow_type(tree), bool(tree.nullable()))


@catalyst("ArrayInsert", area=ARRAYS, forms="`array_insert`, `array_append`, `array_prepend`")
def insert(tree: JavaTree, translation: Translation) -> Expression:
    if bool(tree.legacyNegativeIndex()):
        refuse(tree, "unset spark.sql.legacy.negativeIndexInArrayInsert")
    return VectorFunction(
        lists.insert, translation.children(tree), arrow_type(tree), bool(tree.nullable()), null_tolerant=(2,)
    )


@catalyst("ArrayRepeat", area=ARRAYS, forms="`array_repeat`")
def repeat(tree: JavaTree, translation: Translation) -> Expression:
    return VectorFunction(
        lists.repeat, translation.children(tree), arrow_type(tree), bool(tree.nullable()), null_tolerant=(0,)
    )


@catalyst("ArrayJoin", area=ARRAYS, forms="`array_join`")
def join(tree: JavaTree, translation: Translation) -> Expression:
    operands = translation.children(tree)
    return VectorFunction(partial(lists.joined, len(operands) > 2), operands, arrow_type(tree), bool(tree.nullable()))


@catalyst("Sequence", area=ARRAYS, forms="`sequence`",
          limits="steps of days, hours... but not of months; steps of days of instants in UTC only")  # fmt: skip
def sequence(tree: JavaTree, translation: Translation) -> Expression:
    operands = translation.children(tree)
    first, has_step = operands[0].data_type, len(operands) > 2
    stride = unit = 1
    if pa.types.is_timestamp(first) and not has_step:
        stride = MICROS_PER_DAY
    elif pa.types.is_date(first) and has_step:
        unit = MICROS_PER_DAY
    if MICROS_PER_DAY in (stride, unit) and first != pa.timestamp("us") and not _is_utc(tree):
        refuse(tree, "days are not of one length in the session's time zone; transform a sequence of integers")
    function = partial(lists.sequence, stride, unit)
    return VectorFunction(function, operands, arrow_type(tree), bool(tree.nullable()))


def _is_utc(tree: JavaTree) -> bool:
    zone = option(tree.timeZoneId())
    return zone is not None and str(zone) in ("UTC", "Etc/UTC", "Z", "GMT")


def rules_of(tree: JavaTree, translation: Translation) -> maps.MapRules:
    return maps.MapRules(translation.conf.last_key_wins, kind(tree) not in ("CreateMap", "MapFromArrays"))


@catalyst("CreateMap", area=MAPS, forms="`map(...)`")
def make_map(tree: JavaTree, translation: Translation) -> Expression:
    return maps.MakeMap(translation.children(tree), arrow_type(tree), rules_of(tree, translation))


_BUILDERS = {"MapFromArrays": maps.from_arrays, "MapFromEntries": maps.from_entries, "MapConcat": maps.concat}


@catalyst(*_BUILDERS, area=MAPS, forms="`map_from_arrays`, `map_from_entries`, `map_concat`")
def build_map(tree: JavaTree, translation: Translation) -> Expression:
    if not children(tree):
        refuse(tree, "write map()")
    function = partial(_BUILDERS[kind(tree)], rules_of(tree, translation))
    return VectorFunction(function, translation.children(tree), arrow_type(tree), bool(tree.nullable()))


@catalyst("StringToMap", area=MAPS, forms="`str_to_map`", limits="separators are constant texts without operators")
def text_map(tree: JavaTree, translation: Translation) -> Expression:
    text, *separators = translation.children(tree)
    texts = [constant(separator) for separator in separators]
    pairs, values = (patterns.literal_of(text) if isinstance(text, str) else None for text in texts)
    if not pairs or not values:
        refuse(tree, "the separators must be constant texts without operators")
    function = partial(maps.from_text, (pairs, values), rules_of(tree, translation))
    return VectorFunction(function, [text], arrow_type(tree), bool(tree.nullable()))


LAMBDAS = "Lambdas"


def body_of(function: JavaTree, translation: Translation) -> Body:
    """Compile a ``LambdaFunction`` over a batch of the outer columns that it reads and its arguments."""
    arguments = elements(function.arguments())
    own = [expr_id(argument) for argument in arguments]
    read = {expr_id(tree) for tree in preorder(function.function()) if kind(tree) in _VARIABLES} - set(own)
    outer = [identity for identity in translation.ordinals if identity in read]
    ordinals = {identity: position for position, identity in enumerate([*outer, *own])}
    expression = Translation(ordinals, translation.conf, translation.fields)(function.function())
    return Body(expression, [translation.ordinals[identity] for identity in outer], [arrow_type(a) for a in arguments])


_VARIABLES = ("AttributeReference", "NamedLambdaVariable")


@catalyst("NamedLambdaVariable", area=LAMBDAS, forms="a lambda's argument")
def variable(tree: JavaTree, translation: Translation) -> Expression:
    ordinal = translation.ordinals.get(expr_id(tree))
    if ordinal is None:
        refuse(tree, "it is not an argument of a lambda around it")
    return BoundReference(ordinal, arrow_type(tree), bool(tree.nullable()))


_OVER_ELEMENTS: dict[str, Callable[[Expression, Body, pa.DataType, bool], Expression]] = {
    "ArrayTransform": lambdas.Transform, "ArrayFilter": lambdas.Filter, "MapFilter": lambdas.FilterMap,
}  # fmt: skip


@catalyst(*_OVER_ELEMENTS, area=LAMBDAS, forms="`transform`, `filter`, `map_filter`, `array_compact`")
def over_elements(tree: JavaTree, translation: Translation) -> Expression:
    body = body_of(tree.function(), translation)
    argument = translation(tree.argument())
    return _OVER_ELEMENTS[kind(tree)](argument, body, arrow_type(tree), bool(tree.nullable()))


@catalyst("ArrayExists", "ArrayForAll", area=LAMBDAS, forms="`exists`, `forall`")
def any_of(tree: JavaTree, translation: Translation) -> Expression:
    exists = kind(tree) == "ArrayExists"
    if exists and not bool(tree.followThreeValuedLogic()):
        refuse(tree, "unset spark.sql.legacy.followThreeValuedLogicInArrayExists")
    argument, body = translation(tree.argument()), body_of(tree.function(), translation)
    return lambdas.ExistsOrForall(exists, argument, body, bool(tree.nullable()))


@catalyst("ArrayAggregate", area=LAMBDAS, forms="`aggregate`, `reduce`")
def aggregate(tree: JavaTree, translation: Translation) -> Expression:
    return lambdas.Aggregate(
        translation(tree.argument()),
        translation(tree.zero()),
        body_of(tree.merge(), translation),
        body_of(tree.finish(), translation),
        arrow_type(tree),
    )


@catalyst("TransformKeys", "TransformValues", area=LAMBDAS, forms="`transform_keys`, `transform_values`")
def transform_map(tree: JavaTree, translation: Translation) -> Expression:
    return lambdas.TransformMap(
        kind(tree) == "TransformKeys",
        MapRules(translation.conf.last_key_wins, plain_keys=False),
        translation(tree.argument()),
        body_of(tree.function(), translation),
        arrow_type(tree),
        bool(tree.nullable()),
    )


@catalyst("ZipWith", "MapZipWith", area=LAMBDAS, forms="`zip_with`, `map_zip_with`")
def over_two(tree: JavaTree, translation: Translation) -> Expression:
    left, right = translation(tree.left()), translation(tree.right())
    body = body_of(tree.function(), translation)
    make = lambdas.ZipWith if kind(tree) == "ZipWith" else lambdas.ZipMaps
    return make(left, right, body, arrow_type(tree), bool(tree.nullable()))


@catalyst("ArraySort", area=LAMBDAS, forms="`array_sort`", limits="the comparator is an order, and never null")
def array_sort(tree: JavaTree, translation: Translation) -> Expression:
    if bool(tree.allowNullComparisonResult()):
        refuse(tree, "unset spark.sql.legacy.allowNullComparisonResultInArraySort")
    argument, body = translation(tree.argument()), body_of(tree.function(), translation)
    if not pa.types.is_integer(body.data_type):
        refuse(tree, "the comparator must return an integer")
    return lambdas.SortBy(argument, body, arrow_type(tree), bool(tree.nullable()))
