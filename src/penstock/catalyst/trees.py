"""Catalyst trees, read over py4j: the accessors that the planner and ``functions/*/plan.py`` need.

Java objects are typed ``JavaTree``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
from py4j.java_gateway import GatewayClient, JavaMember
from py4j.protocol import STATIC_PREFIX

from penstock.catalyst.types import to_arrow_type
from penstock.errors import NotSupported

JavaTree = Any
"""A py4j handle of a Catalyst plan node or expression."""

WATERMARK_KEY = "spark.watermarkDelayMs"
"""Metadata key that ``withWatermark`` sets on its column. ``window()`` copies it to its struct."""

SESSION_KEY = "spark.sessionWindow"
"""Metadata key that ``session_window()`` sets on its struct."""

_MAX_FIELDS = 25
_MAX_LINE = 400
_MAX_LABEL = 80
_EXPR_ID = re.compile(r"#\d+L?")
_WATERMARK_SUFFIX = re.compile(r"-T\d+ms")
_SECRETS = re.compile(r"\bkafka\.(?:sasl|ssl)\..*(?=\], \[)", re.IGNORECASE)
"""Matches to the end of a relation's options, because Spark masks only options that it recognizes as passwords."""


def elements(seq: JavaTree) -> list[JavaTree]:
    """Return the elements of a Scala ``Seq``."""
    return [seq.apply(i) for i in range(seq.size())]


def _cached(tree: JavaTree, name: str, read: Callable[[JavaTree], Any]) -> Any:
    """Return a constant property of a tree, read from the JVM once per handle.

    A call to the JVM takes 0.1 ms, and a plan would need thousands of them.
    """
    known = tree.__dict__
    if name not in known:
        known[name] = read(tree)
    return known[name]


def children(tree: JavaTree) -> list[JavaTree]:
    return list(_cached(tree, "_penstock_children", lambda it: elements(it.children())))


def kind(tree: JavaTree) -> str:
    """Return the simple class name, for example ``Project``, ``AttributeReference`` or ``Sum``."""
    return str(_cached(tree, "_penstock_kind", lambda it: str(_simple_name(it._gateway_client)(it)).rstrip("$")))


@lru_cache(1)
def _simple_name(client: GatewayClient) -> JavaMember:
    """Return Java's method that gives an object's simple class name in one call.

    Going through the class object would take two calls, and a third to release its handle. This is a bare member,
    because py4j looks a class up in the JVM each time it is named.
    """
    return JavaMember("getSimpleName", None, f"{STATIC_PREFIX}org.apache.commons.lang3.ClassUtils", client)


def preorder(tree: JavaTree) -> Iterator[JavaTree]:
    """Yield a node and its descendants. For a plan these are plan nodes only, not expressions."""
    yield tree
    for child in children(tree):
        yield from preorder(child)


def plan_line(node: JavaTree) -> str:
    """Return Spark's own line for a plan node, as ``explain`` prints it, without secrets."""
    line = " ".join(str(node.simpleString(_MAX_FIELDS)).split())
    return _shortened(_SECRETS.sub("(not shown)", line), _MAX_LINE)


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def label(node: JavaTree) -> str:
    """Return ``plan_line`` without expression ids and watermark suffixes, shortened for users."""
    return _shortened(_WATERMARK_SUFFIX.sub("", _EXPR_ID.sub("", plan_line(node))).lstrip("~"), _MAX_LABEL)


def expr_id(attribute: JavaTree) -> int:
    return int(_cached(attribute, "_penstock_id", lambda it: it.exprId().id()))


def ids_in(expression: JavaTree) -> list[int]:
    """Return the ids of the attributes that an expression reads, without repetition."""
    return [expr_id(attribute) for attribute in elements(expression.references().toSeq())]


def attributes_in(expression: JavaTree) -> list[JavaTree]:
    """Return the attributes in an expression, in order of occurrence."""
    return [tree for tree in preorder(expression) if kind(tree) == "AttributeReference"]


def unaliased(expression: JavaTree) -> JavaTree:
    """Return the expression without its outer ``Alias``, if it has one."""
    return expression.child() if kind(expression) == "Alias" else expression


def has_metadata(expression: JavaTree, key: str) -> bool:
    """Return True if a named expression carries this metadata key."""
    return kind(expression) in ("AttributeReference", "Alias") and bool(expression.metadata().contains(key))


def is_event_time(named: JavaTree) -> bool:
    """Return True if the column carries the watermark: the event time itself or a window over it."""
    return has_metadata(named, WATERMARK_KEY)


def data_type(tree: JavaTree) -> JavaTree:
    """Return the Catalyst type of an expression."""
    return _cached(tree, "_penstock_type", lambda it: it.dataType())


def data_type_json(tree: JavaTree) -> str:
    """Return the Catalyst type of an expression as JSON text."""
    return str(_cached(data_type(tree), "_penstock_json", lambda it: it.json()))


def arrow_type(tree: JavaTree) -> pa.DataType:
    """Return the Arrow type of an expression.

    Raises:
        NotSupported: the type is not supported as a column; the message names the expression.
    """
    try:
        return to_arrow_type(json.loads(data_type_json(tree)))
    except NotSupported as error:
        raise NotSupported(f"{tree.toString()}: {error}") from None


def arrow_field(named: JavaTree) -> pa.Field:
    """Return the column of a named expression. All columns are nullable, like those of Spark's sources."""
    return pa.field(str(named.name()), arrow_type(named))


def arrow_schema(attributes: Sequence[JavaTree]) -> pa.Schema:
    return pa.schema([arrow_field(attribute) for attribute in attributes])


def option(scala_option: JavaTree) -> JavaTree | None:
    return scala_option.get() if scala_option.isDefined() else None
