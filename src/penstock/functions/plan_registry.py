"""Registry of the Catalyst expressions that Penstock compiles: class name -> builder of the kernel.

A class is registered only if a test compares it with Catalyst on edge values (``tests/integration/functions``).
``translate`` refuses all other classes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from penstock.catalyst.trees import JavaTree, arrow_type, children, data_type, data_type_json, kind
from penstock.catalyst.types import repeated_fields
from penstock.errors import NotSupported
from penstock.functions import Expression, Literal, SessionConf
from penstock.functions.numbers.arithmetic import EvalMode


@dataclass(frozen=True)
class Translation:
    """Context of a kernel's builder, besides the Catalyst node. Calling it compiles a child.

    Attributes:
        ordinals: exprId -> position of the column.
        conf: the session's settings.
        fields: exprId of a struct column of which only some fields are read -> ordinals of these fields.
    """

    ordinals: Mapping[int, int]
    conf: SessionConf
    fields: Mapping[int, Sequence[int]]

    def __call__(self, tree: JavaTree) -> Expression:
        name = entry_name(tree)
        entry = REGISTRY.get(name)
        if entry is None:
            refuse(tree, WORKAROUNDS.get(name, ""))
        if _is_collated(tree):
            refuse(tree, "only UTF8_BINARY strings are supported")
        return entry.build(tree, self)

    def children(self, tree: JavaTree) -> list[Expression]:
        return [self(child) for child in children(tree)]


Builder = Callable[[JavaTree, Translation], Expression]


@dataclass(frozen=True)
class Entry:
    """Registered Catalyst class: its builder, and its area, SQL forms and limits for the documentation."""

    area: str
    forms: str
    limits: str
    build: Builder


REGISTRY: dict[str, Entry] = {}

_TEXT = re.compile("string|char")
_IN_CONTEXT: dict[str, bool] = {}
"""Per class: True if the evaluation mode is in ``evalContext``, False if it is an attribute of the expression."""

SPLIT = "StringSplitSQL"
"""Class that splits a text by a text. Catalyst creates it only for ``split_part``, as the child of ``ElementAt``."""

WORKAROUNDS: dict[str, str] = {
    "CurrentTimestamp": "take the time from the data, or use a Python UDF",
    "Rand": "non-deterministic functions would differ after a restart; add the number in the source",
    "Randn": "non-deterministic functions would differ after a restart; add the number in the source",
    "Uuid": "non-deterministic functions would differ after a restart; add the id in the source",
    "Shuffle": "non-deterministic functions would differ after a restart; sort by a hash of the element instead",
    "MonotonicallyIncreasingID": "it depends on Spark's partitions; add an id in the source",
    **dict.fromkeys(
        ("Sin", "Cos", "Tan", "Cot", "Sec", "Csc"),
        "the JVM computes it by instructions of the processor, and its last bit may differ; use a pandas_udf",
    ),
}
"""Workarounds for expressions that are refused, by class."""


def catalyst(*names: str, area: str, forms: str, limits: str = "") -> Callable[[Builder], Builder]:
    """Register a builder for Catalyst classes, by simple name, or for Java methods (see ``entry_name``)."""

    def register(build: Builder) -> Builder:
        for name in names:
            assert name not in REGISTRY, name
            REGISTRY[name] = Entry(area, forms, limits, build)
        return build

    return register


def entry_name(tree: JavaTree) -> str:
    """Return the name of an expression in the registry.

    The name is the expression's class. A Java method that Catalyst calls (``StaticInvoke``, ``Invoke``) is named
    ``Class.method``. ``ElementAt`` of ``StringSplitSQL`` has a name of its own.
    """
    name = kind(tree)
    if name == "ElementAt" and kind(children(tree)[0]) == SPLIT:
        return f"{name}({SPLIT})"
    if name == "StaticInvoke":
        return f"{_simple(tree.staticObject().getName())}.{tree.functionName()}"
    if name == "Invoke":
        target = tree.targetObject()
        owner = target.value().getClass().getName() if kind(target) == "Literal" else "UTF8String"
        return f"{_simple(owner)}.{tree.functionName()}"
    return name


def _is_collated(tree: JavaTree) -> bool:
    """Return True if a type in the expression's data type has a collation.

    The JSON form of a type does not contain the collation, but shows quickly that most types cannot have one.
    """
    return _TEXT.search(data_type_json(tree)) is not None and "collate" in str(data_type(tree).catalogString())


def _simple(class_name: str) -> str:
    return str(class_name).rpartition(".")[2].rstrip("$")


def refuse(tree: JavaTree, reason: str = "") -> NoReturn:
    """Raise NotSupported with the SQL text and the class of an expression.

    Raises:
        NotSupported: always.
    """
    message = f"expression {str(tree.toString())[:200]} ({entry_name(tree)}) is not supported"
    raise NotSupported(f"{message}: {reason}" if reason else message)


def refuse_repeated(tree: JavaTree, records: JavaTree) -> None:
    """Refuse an expression that reads or writes records by field name if a record has two fields of one name.

    Args:
        tree: the expression that is refused.
        records: the expression that has the type of the records.
    """
    for path, name in repeated_fields("the record", json.loads(data_type_json(records))):
        refuse(tree, f"{path} has more than one field {name}: rename them")


def eval_mode(tree: JavaTree) -> EvalMode:
    """Return the evaluation mode of the expression: ANSI, legacy or try."""
    name = kind(tree)
    if name not in _IN_CONTEXT:
        _IN_CONTEXT[name] = "evalContext" in str(tree.productElementNames().mkString(",")).split(",")
    holder = tree.evalContext() if _IN_CONTEXT[name] else tree
    return EvalMode(str(holder.evalMode().toString()))


def constant(expression: Expression) -> object:
    """Return the value of a literal; None for a null literal and for any other expression."""
    return expression.scalar.as_py() if isinstance(expression, Literal) else None


__all__ = [
    "REGISTRY",
    "WORKAROUNDS",
    "Entry",
    "Translation",
    "arrow_type",
    "catalyst",
    "constant",
    "entry_name",
    "eval_mode",
    "refuse",
    "refuse_repeated",
]
