"""Joins of the stream with a static side. Spark reads the side once, at the start; every slot gets all of its rows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.functions import col, lit

from penstock.catalyst.jvm import frame_of
from penstock.catalyst.trees import (
    JavaTree,
    arrow_schema,
    children,
    elements,
    expr_id,
    kind,
    label,
    preorder,
)
from penstock.connectors.files.nested_arrays import cast_table
from penstock.errors import DataError
from penstock.functions import Expression
from penstock.functions.plan import translate
from penstock.model.job_graph import JobGraph
from penstock.operators.join.static_join import JoinKind, StaticJoinSpec
from penstock.operators.join.static_rows import StaticRows
from penstock.operators.join.static_sides import static_sides
from penstock.planner import unsupported
from penstock.planner.join_condition import Sides, conjuncts_of
from penstock.planner.scope import Scope
from penstock.spark.job import reason
from penstock.spark.staged_frames import with_distinct_fields
from penstock.state.key_index import is_indexable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KINDS = {
    ("Inner", True): JoinKind.INNER,
    ("Inner", False): JoinKind.INNER,
    ("Cross", True): JoinKind.INNER,
    ("Cross", False): JoinKind.INNER,
    ("LeftOuter", True): JoinKind.OUTER,
    ("RightOuter", False): JoinKind.OUTER,
    ("LeftSemi", True): JoinKind.SEMI,
    ("LeftAnti", True): JoinKind.ANTI,
}
"""Spark's join type, and True if the stream is on the left -> Penstock's join kind. Spark refuses most others."""

_NO_COLUMNS = pa.schema([("__row", pa.bool_())])
"""Schema that is read of a static side if only its number of rows matters."""


@dataclass(frozen=True)
class _Key:
    """One equality of a join."""

    stream: Expression
    static: Expression
    null_safe: bool


def add_static_join(scope: Scope, node: JavaTree) -> None:
    """Compile a ``Join`` of the stream with a static side.

    Raises:
        NotSupported: the join type, an expression or a type is not supported.
    """
    left, right = children(node)
    stream_left = bool(left.isStreaming())
    join_kind = _KINDS.get((kind(node.joinType()), stream_left))
    if join_kind is None:
        raise unsupported.JOIN_TYPE.error(f"{kind(node.joinType())} join")
    static = right if stream_left else left
    attributes = elements(static.output())
    sides = Sides(dict(scope.ordinals), {expr_id(each): at for at, each in enumerate(attributes)}, scope.conf)
    found = [(conjunct, _key(sides, conjunct)) for conjunct in conjuncts_of(node)]
    keys = [key for _, key in found if key is not None]
    rest = [conjunct for conjunct, key in found if key is None]
    joins_columns = join_kind in (JoinKind.INNER, JoinKind.OUTER)
    builder = scope.builder
    builder.add(
        StaticJoinSpec(
            operator_id=builder.operator_id("join"),
            name=label(node),
            output_schema=pa.schema([*builder.schema, *(arrow_schema(attributes) if joins_columns else ())]),
            kind=join_kind,
            rows=static_rows(scope.spark, node, static),
            stream_keys=tuple(key.stream for key in keys),
            static_keys=tuple(key.static for key in keys),
            null_safe=tuple(key.null_safe for key in keys),
            static_columns=tuple(range(len(attributes))) if joins_columns else (),
            condition=sides.pair_condition(rest),
        ),
        keeps=builder.unchanged(),
    )
    if joins_columns:
        scope.bind_more(attributes)
    if not stream_left:  # the operator's output begins with the stream's columns
        scope.project(elements(node.output()), "Project (columns of the join)")


def _key(sides: Sides, conjunct: JavaTree) -> _Key | None:
    equality = sides.equality(conjunct)
    if equality is None:
        return None
    stream = translate(equality.first, sides.first, sides.conf)
    if not is_indexable(stream.data_type):
        return None
    return _Key(stream, translate(equality.second, sides.second, sides.conf), equality.null_safe)


def static_rows(spark: SparkSession, node: JavaTree, static: JavaTree) -> StaticRows:
    """Return the rows of a node's static side, which are read when the query starts."""
    leaves = ", ".join(label(tree) for tree in preorder(static) if not children(tree))
    schema = arrow_schema(elements(static.output()))
    name = f"static side of {label(node)}: {leaves}"
    return StaticRows(name, schema if len(schema) else _NO_COLUMNS, partial(_read, spark, static))


def _read(spark: SparkSession, static: JavaTree) -> pa.Table:
    """Return the current rows of an optimized plan, read by Spark.

    Raises:
        DataError: Spark cannot read them.
    """
    try:
        frame = frame_of(spark, static)
        attributes = elements(static.output())
        if not attributes:
            return frame.select(lit(True)).toArrow()
        names = [f"c{position}" for position in range(len(attributes))]  # the columns' own names may repeat
        schema = pa.schema(list(zip(names, arrow_schema(attributes).types, strict=True)))
        rows = frame.toDF(*names)
        distinct = with_distinct_fields(rows.schema)  # PySpark refuses repeated names of fields
        return cast_table(rows.select([col(f.name).cast(f.dataType) for f in distinct]).toArrow(), schema)
    except Exception as problem:
        raise DataError(f"Spark cannot read {label(static)}: {reason(problem)}") from problem


def read_static_sides(graph: JobGraph, max_bytes: int, begun: Collection[str] = ()) -> None:
    """Read the static sides and initial states that the graph's operators need, unless they are already read.

    This is done before the graph is sent to the slots. It takes as long as Spark's jobs, which need slots of the
    session.

    Args:
        max_bytes: limit of each static side.
        begun: ids of operators that are restored from a snapshot. Their initial state is not read.

    Raises:
        NotSupported: a static side is larger than ``max_bytes``.
        DataError: Spark cannot read one.
    """
    for rows in static_sides(graph, begun):
        rows.load(max_bytes)
