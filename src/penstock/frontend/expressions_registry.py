"""The one table of Catalyst expressions that Penstock compiles: class name -> how to build the kernel.

A class is listed only with a test that compares it with Catalyst on edge values (``tests/expressions``); whatever is
not listed is refused by ``translate``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from penstock.errors import NotSupported
from penstock.frontend.catalyst import JavaTree, arrow_type, children, kind
from penstock.operators.expressions import Expression, SessionConf
from penstock.operators.expressions.arithmetic import EvalMode


@dataclass(frozen=True)
class Translation:
    """What a kernel's builder needs besides the Catalyst node: calling it translates a child.

    Attributes:
        ordinals: exprId -> position of the column.
        conf: the session's settings.
    """

    ordinals: Mapping[int, int]
    conf: SessionConf

    def __call__(self, tree: JavaTree) -> Expression:
        entry = REGISTRY.get(kind(tree))
        if entry is None:
            refuse(tree, WAYS_ROUND.get(kind(tree), ""))
        if "collate" in str(tree.dataType().catalogString()):
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

WAYS_ROUND: dict[str, str] = {
    "CurrentTimestamp": "take the time from the data, or use a Python UDF",
    "Rand": "non-deterministic functions would differ after a restart; add the number in the source",
    "Randn": "non-deterministic functions would differ after a restart; add the number in the source",
    "Uuid": "non-deterministic functions would differ after a restart; add the id in the source",
    "Shuffle": "non-deterministic functions would differ after a restart; sort by a hash of the element instead",
    "MonotonicallyIncreasingID": "it depends on Spark's partitions; add an id in the source",
    "DateFormatClass": "cast the date or timestamp to a string, or use a pandas_udf",
    "GetTimestamp": "without a format argument ISO 8601 texts are read; otherwise use a pandas_udf",
    "FromUnixTime": "use timestamp_seconds and cast the result to a string",
    "RegExpReplace": "use replace or translate where they do, otherwise a pandas_udf",
    "RegExpExtract": "use split or substring_index where they do, otherwise a pandas_udf",
    **dict.fromkeys(
        ("Sin", "Cos", "Tan", "Cot", "Sec", "Csc"),
        "the JVM computes it by instructions of the processor, and its last bit may differ; use a pandas_udf",
    ),
}
"""What to write instead of expressions that are refused."""


def catalyst(*names: str, area: str, forms: str, limits: str = "") -> Callable[[Builder], Builder]:
    """Register a builder for Catalyst classes, by simple name."""

    def register(build: Builder) -> Builder:
        for name in names:
            assert name not in REGISTRY, name
            REGISTRY[name] = Entry(area, forms, limits, build)
        return build

    return register


def refuse(tree: JavaTree, why: str = "") -> NoReturn:
    """Refuse an expression by its SQL text and class.

    Raises:
        NotSupported: always.
    """
    message = f"expression {str(tree.toString())[:200]} ({kind(tree)}) is not supported"
    raise NotSupported(f"{message}: {why}" if why else message)


def eval_mode(tree: JavaTree) -> EvalMode:
    """ANSI, legacy or try, as the expression itself says."""
    if "evalContext" in _fields(tree):
        return EvalMode(str(tree.evalContext().evalMode().toString()))
    return EvalMode(str(tree.evalMode().toString()))


def _fields(tree: JavaTree) -> list[str]:
    names = tree.productElementNames().toSeq()
    return [str(names.apply(i)) for i in range(names.size())]


__all__ = [
    "REGISTRY",
    "WAYS_ROUND",
    "Entry",
    "Translation",
    "arrow_type",
    "catalyst",
    "eval_mode",
    "refuse",
]
