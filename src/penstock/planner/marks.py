"""The user's marks in a plan. They are aliases: the analyzed plan has them, and the optimizer drops them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyspark.sql import DataFrame

from penstock.catalyst.jvm import frame_of
from penstock.catalyst.trees import JavaTree, elements, expr_id, kind, preorder
from penstock.planner.checks import check_dataframe
from penstock.planner.stream_line import stream_line
from penstock.spark.errors import ArgumentError, WrongPlan

NAMED = "__penstock_named__"
LATE = "__penstock_late__"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_RELATIONS = ("StreamingRelation", "StreamingRelationV2")
_DEDUPLICATING = ("Deduplicate", "DeduplicateWithinWatermark")
_NAMEABLE = ("Aggregate", *_DEDUPLICATING, "MapInArrow", "MapInPandas", "TransformWithStateInPySpark", *_RELATIONS)


def named(df: DataFrame, operator_id: str) -> DataFrame:
    """Return the same DataFrame, with ``operator_id`` as the id of its last operator and of that operator's state.

    Otherwise the id is the operator's kind and number (``aggregate-0``). This is sufficient as long as no other
    operator of the kind is added before it. Operators with state or a user function can be named: an aggregation, a
    deduplication, a source, ``transformWithState``, ``mapInArrow`` or ``mapInPandas``. Filters, projections and joins
    with static sides on top of it are skipped, because the optimizer merges and moves them.

    Args:
        df: a streaming DataFrame that ends with this operator.
        operator_id: letters, digits, ``_``, ``.`` and ``-``; unique in the query.

    Raises:
        ConfigError: ``df`` is not a streaming DataFrame, or ``operator_id`` is not a valid name.
    """
    check_dataframe(df)
    if not isinstance(operator_id, str) or not _NAME.fullmatch(operator_id):
        raise ArgumentError(
            f"{operator_id!r} is no name for an operator: up to 100 letters, digits, _, . and -, for example "
            "'orders-by-user'"
        )
    return df.alias(NAMED + operator_id)


def late(df: DataFrame) -> DataFrame:
    """Return the rows that the aggregation of ``df`` drops because they are late.

    Without an aggregation, return the rows that the last ``dropDuplicates`` or ``dropDuplicatesWithinWatermark`` of
    ``df`` drops as late.

    The rows have the columns of the operator's input, including ``window`` if ``df`` is grouped by one. A row that is
    late for two sliding windows appears twice. A deduplication in front of an aggregation drops late rows first; for
    these, pass the deduplicated DataFrame. Start the result together with ``df``:
    ``penstock.start([penstock.writeStream(df)..., penstock.writeStream(penstock.late(df))...])``.

    Args:
        df: a streaming DataFrame with a watermark, and an aggregation by event time or a deduplication.

    Raises:
        ConfigError: ``df`` is not a streaming DataFrame, or has neither an aggregation nor a deduplication.
    """
    check_dataframe(df)
    line = stream_line(analyzed(df))
    dropping = [node for kinds in (("Aggregate",), _DEDUPLICATING) for node in line if kind(node) in kinds]
    if not dropping:
        raise WrongPlan(
            "penstock.late needs a DataFrame that drops late rows: groupBy(window(...)) or dropDuplicates, with a "
            "watermark"
        )
    spark = df.sparkSession
    return frame_of(spark, dropping[0].child()).alias(LATE + _identity(dropping[0]))


def analyzed(df: DataFrame) -> JavaTree:
    """Return Spark's analyzed plan."""
    return df._jdf.queryExecution().analyzed()


def late_of(node: JavaTree) -> str | None:
    """Return the identity of the operator of a ``late`` mark, for ``is_late_of``; None for other nodes."""
    return _marked(node, LATE)


def is_late_of(node: JavaTree, identity: str) -> bool:
    """Return True for the aggregation or deduplication of a ``late`` mark."""
    return (kind(node) == "Aggregate" or kind(node) in _DEDUPLICATING) and _identity(node) == identity


def names_in(tree: JavaTree) -> Iterator[tuple[JavaTree, str]]:
    """Yield every node that has a name, with its name."""
    for node in preorder(tree):
        name = _marked(node, NAMED)
        if name is not None:
            yield _ends_with(node), name


def name_key(node: JavaTree) -> str:
    """Return the key that identifies a named node in the optimized plan, among the nodes of one line."""
    if kind(node) in _RELATIONS:
        return f"source {expr_id(node.output().head())}"
    if kind(node) == "Aggregate":
        return "Aggregate"
    if kind(node) in _DEDUPLICATING:  # its columns are pruned
        return f"{kind(node)} {', '.join(str(key.name()) for key in elements(node.keys()))}"
    return f"{kind(node)} {expr_id(node.output().head())}"


def _ends_with(mark: JavaTree) -> JavaTree:
    *above, last = stream_line(mark)
    return next((node for node in above if kind(node) in _NAMEABLE), last)


def _marked(node: JavaTree, prefix: str) -> str | None:
    alias = str(node.alias()) if kind(node) == "SubqueryAlias" else ""
    return alias[len(prefix) :] if alias.startswith(prefix) else None


def _identity(node: JavaTree) -> str:
    """Return the identity of an aggregation or deduplication.

    For an aggregation it is the highest id of its columns: columns that it creates have higher ids than columns that it
    passes on. A deduplication creates no columns, so its keys and its distance from the source identify it.
    """
    if kind(node) in _DEDUPLICATING:
        keys = ".".join(str(expr_id(key)) for key in elements(node.keys()))
        return f"{kind(node)}.{len(stream_line(node))}.{keys}"
    return str(max(expr_id(attribute) for attribute in elements(node.output())))
