"""The one table of Catalyst expressions that Penstock compiles: class name -> how to build the kernel.

A class is listed only with a test that compares it with Catalyst on edge values (``tests/integration/functions``);
whatever is not listed is refused by ``translate``.
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
    """Context of a kernel's builder besides the Catalyst node. Calling it compiles a child.

    Attributes:
        ordinals: exprId -> position of the column.
        conf: the session's settings.
        fields: exprId of a struct's column that has only some of its fields -> their ordinals.
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
    """One Catalyst class: its area, its SQL forms and its limits for the documentation, and its builder."""

    area: str
    forms: str
    limits: str
    build: Builder


REGISTRY: dict[str, Entry] = {}

_TEXT = re.compile("string|char")
_IN_CONTEXT: dict[str, bool] = {}
"""Classes whose evaluation mode is in a context (True) or in the expression."""

SPLIT = "StringSplitSQL"
"""Class that splits by a text. Catalyst makes it for ``split_part`` only, as the child of what takes the part."""

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
"""Alternatives to expressions that are refused."""


def catalyst(*names: str, area: str, forms: str, limits: str = "") -> Callable[[Builder], Builder]:
    """Register a builder for Catalyst classes, by simple name, or for Java methods, see ``entry_name``."""

    def register(build: Builder) -> Builder:
        for name in names:
            assert name not in REGISTRY, name
            REGISTRY[name] = Entry(area, forms, limits, build)
        return build

    return register


def entry_name(tree: JavaTree) -> str:
    """An expression's name in the registry: its class, or ``Class.method`` of the Java method that Catalyst put in its
    place (``StaticInvoke``, ``Invoke``), or what two classes in one another stand for."""
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
    """Return True if a type has a collation. JSON has no collations, but tells most types that cannot have one."""
    return _TEXT.search(data_type_json(tree)) is not None and "collate" in str(data_type(tree).catalogString())


def _simple(class_name: str) -> str:
    return str(class_name).rpartition(".")[2].rstrip("$")


def refuse(tree: JavaTree, reason: str = "") -> NoReturn:
    """Refuse an expression by its SQL text and class.

    Raises:
        NotSupported: always.
    """
    message = f"expression {str(tree.toString())[:200]} ({entry_name(tree)}) is not supported"
    raise NotSupported(f"{message}: {reason}" if reason else message)


def refuse_repeated(tree: JavaTree, records: JavaTree) -> None:
    """Refuse an expression that reads or writes records by field name if some names are equal.

    Args:
        records: the expression whose type the records have.
    """
    for path, name in repeated_fields("the record", json.loads(data_type_json(records))):
        refuse(tree, f"{path} has more than one field {name}: rename them")


def eval_mode(tree: JavaTree) -> EvalMode:
    """ANSI, legacy or try, as the expression itself says."""
    name = kind(tree)
    if name not in _IN_CONTEXT:
        _IN_CONTEXT[name] = "evalContext" in str(tree.productElementNames().mkString(",")).split(",")
    holder = tree.evalContext() if _IN_CONTEXT[name] else tree
    return EvalMode(str(holder.evalMode().toString()))


def constant(expression: Expression) -> object:
    """A literal's value; None for anything else and for null."""
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
