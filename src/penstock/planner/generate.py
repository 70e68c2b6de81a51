"""``explode`` and the other generators: Catalyst's ``Generate``."""

from __future__ import annotations

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_schema, children, elements, expr_id, kind, label
from penstock.functions import Expression, Literal
from penstock.functions.casts.plan import require_known_digits
from penstock.functions.collections.lists import MakeArray
from penstock.functions.core.nested import MakeStruct
from penstock.functions.json.tuple import JsonTuple
from penstock.functions.plan_registry import refuse
from penstock.operators.generate import GenerateSpec
from penstock.planner.scope import Scope

_OF_COLLECTIONS = ("Explode", "PosExplode", "Inline")


def add_generate(scope: Scope, node: JavaTree) -> None:
    """Compile the generator to an expression that returns arrays, and the node to an operator that unpacks them."""
    generator = node.generator()
    collections = generated_elements(scope, generator, elements(node.generatorOutput()))
    for attribute in elements(node.generatorOutput()):
        scope.definitions.define(attribute, generator, part=str(attribute.name()))
    passed = tuple(scope.ordinals[expr_id(attribute)] for attribute in elements(node.requiredChildOutput()))
    output = elements(node.output())
    builder = scope.builder
    builder.add(
        GenerateSpec(
            operator_id=scope.operator_id("generate", node),
            name=label(node),
            output_schema=arrow_schema(output),
            elements=collections,
            passed=passed,
            with_position=kind(generator) == "PosExplode",
            unpacked=kind(generator) in ("Inline", "Stack", "JsonTuple") or pa.types.is_map(collections.data_type),
            outer=bool(node.outer()),
        ),
        keeps={ordinal: position for position, ordinal in enumerate(passed)},
    )
    scope.bind_output(output)


def generated_elements(scope: Scope, generator: JavaTree, outputs: list[JavaTree]) -> Expression:
    """Return the expression of an array or map per row, whose elements become rows."""
    if kind(generator) in _OF_COLLECTIONS:
        return scope.translate(generator.child())
    if kind(generator) == "JsonTuple":
        return _json_tuple(scope, generator, outputs)
    if kind(generator) != "Stack":
        refuse(generator, "only explode, posexplode, inline, stack and json_tuple are; use mapInArrow")
    return _stacked(scope, generator, outputs)


def _json_tuple(scope: Scope, generator: JavaTree, outputs: list[JavaTree]) -> Expression:
    document, *names = [scope.translate(child) for child in children(generator)]
    constants = [name.scalar.as_py() for name in names if isinstance(name, Literal)]
    if len(constants) < len(names):
        refuse(generator, "the names must be constants; use get_json_object")
    require_known_digits(generator)
    return JsonTuple(document, constants, _rows_of(outputs))


def _rows_of(outputs: list[JavaTree]) -> pa.ListType:
    return pa.list_(pa.field("element", pa.struct(list(arrow_schema(outputs))), nullable=False))


def _stacked(scope: Scope, generator: JavaTree, outputs: list[JavaTree]) -> Expression:
    """Return ``stack(n, values...)`` as an array of n structs. Missing values at the end are null."""
    count, *values = [scope.translate(child) for child in children(generator)]
    assert isinstance(count, Literal)  # Spark's analyzer requires it
    rows = int(count.scalar.as_py())
    fields = list(arrow_schema(outputs))
    width = len(fields)
    padded = [*values, *(Literal(None, fields[i % width].type) for i in range(len(values), rows * width))]
    struct = pa.struct(fields)
    structs = [MakeStruct(padded[begin : begin + width], struct) for begin in range(0, rows * width, width)]
    return MakeArray(structs, _rows_of(outputs))
