"""Catalyst trees, read over py4j: the few accessors that the planner and ``functions/*/plan.py`` need.

Everything Java that they touch is typed ``JavaTree``.
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
"""Metadata that ``withWatermark`` leaves on its column, and ``window()`` hands on to its struct."""

SESSION_KEY = "spark.sessionWindow"
"""Metadata that ``session_window()`` leaves on its struct."""

_MAX_FIELDS = 25
_MAX_LINE = 400
_MAX_LABEL = 80
_EXPR_ID = re.compile(r"#\d+L?")
_WATERMARK_SUFFIX = re.compile(r"-T\d+ms")
_SECRETS = re.compile(r"\bkafka\.(?:sasl|ssl)\..*(?=\], \[)", re.IGNORECASE)
"""Matches to the end of a relation's options. Spark masks only what it recognizes as a password."""


def elements(seq: JavaTree) -> list[JavaTree]:
    """The elements of a Scala ``Seq``."""
    return [seq.apply(i) for i in range(seq.size())]


def _cached(tree: JavaTree, name: str, read: Callable[[JavaTree], Any]) -> Any:
    """Return a constant property of a tree, read from the JVM once per handle.

    A call of the JVM takes a tenth of a millisecond, and a plan needs thousands.
    """
    known = tree.__dict__
    if name not in known:
        known[name] = read(tree)
    return known[name]


def children(tree: JavaTree) -> list[JavaTree]:
    return list(_cached(tree, "_penstock_children", lambda it: elements(it.children())))


def kind(tree: JavaTree) -> str:
    """The simple class name: ``Project``, ``AttributeReference``, ``Sum``..."""
    return str(_cached(tree, "_penstock_kind", lambda it: str(_simple_name(it._gateway_client)(it)).rstrip("$")))


@lru_cache(1)
def _simple_name(client: GatewayClient) -> JavaMember:
    """Return Java's method that gives an object's simple class name in one call.

    The way over the class would take two calls, and leave a handle that a third releases. It is a bare member because
    py4j looks a class up in the JVM each time that it is named.
    """
    return JavaMember("getSimpleName", None, f"{STATIC_PREFIX}org.apache.commons.lang3.ClassUtils", client)


def preorder(tree: JavaTree) -> Iterator[JavaTree]:
    """Yield a node and all below it; of a plan the nodes only, not their expressions."""
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
    """Return ``plan_line`` for users: without expression ids and watermark suffixes."""
    return _shortened(_WATERMARK_SUFFIX.sub("", _EXPR_ID.sub("", plan_line(node))).lstrip("~"), _MAX_LABEL)


def expr_id(attribute: JavaTree) -> int:
    return int(_cached(attribute, "_penstock_id", lambda it: it.exprId().id()))


def ids_in(expression: JavaTree) -> list[int]:
    """The ids of the attributes that an expression reads, each once."""
    return [expr_id(attribute) for attribute in elements(expression.references().toSeq())]


def attributes_in(expression: JavaTree) -> list[JavaTree]:
    """The attributes that an expression reads, in order."""
    return [tree for tree in preorder(expression) if kind(tree) == "AttributeReference"]


def unaliased(expression: JavaTree) -> JavaTree:
    """The expression under its ``Alias``, if it has one."""
    return expression.child() if kind(expression) == "Alias" else expression


def has_metadata(expression: JavaTree, key: str) -> bool:
    """Return True if a named expression carries this metadata key."""
    return kind(expression) in ("AttributeReference", "Alias") and bool(expression.metadata().contains(key))


def is_event_time(named: JavaTree) -> bool:
    """Return True if the column carries the watermark: the event time itself or a window over it."""
    return has_metadata(named, WATERMARK_KEY)


def data_type(tree: JavaTree) -> JavaTree:
    """The Catalyst type of an expression."""
    return _cached(tree, "_penstock_type", lambda it: it.dataType())


def data_type_json(tree: JavaTree) -> str:
    """The Catalyst type of an expression, as JSON text."""
    return str(_cached(data_type(tree), "_penstock_json", lambda it: it.json()))


def arrow_type(tree: JavaTree) -> pa.DataType:
    """The Arrow type of an expression.

    Raises:
        NotSupported: the type has no column format here; the message names the expression.
    """
    try:
        return to_arrow_type(json.loads(data_type_json(tree)))
    except NotSupported as error:
        raise NotSupported(f"{tree.toString()}: {error}") from None


def arrow_field(named: JavaTree) -> pa.Field:
    """The column of a named expression. All columns are nullable, as Spark makes the columns of its sources."""
    return pa.field(str(named.name()), arrow_type(named))


def arrow_schema(attributes: Sequence[JavaTree]) -> pa.Schema:
    return pa.schema([arrow_field(attribute) for attribute in attributes])


def option(scala_option: JavaTree) -> JavaTree | None:
    return scala_option.get() if scala_option.isDefined() else None
