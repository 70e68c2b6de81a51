"""Exponentials, logarithms, powers and arcs: where Spark calls ``StrictMath``, or a ``Math`` that does no more."""

from __future__ import annotations

from functools import partial

from pyspark import SparkContext

from penstock.catalyst.jvm import java_class
from penstock.catalyst.trees import JavaTree, arrow_type, kind
from penstock.functions import Expression
from penstock.functions.core.strict import Vectorised
from penstock.functions.numbers import strict_math
from penstock.functions.plan_registry import Translation, catalyst, refuse

AREA = "Exponentials, logarithms, arcs"
LAST_STRICT_JAVA = 21
"""Later JVMs have ``cbrt``, ``sinh`` and ``tanh`` of their own, which are not those of ``StrictMath``."""


def require_strict(tree: JavaTree) -> None:
    """Refuse what ``Math`` computes in another way than ``StrictMath`` on this JVM."""
    context = SparkContext._active_spark_context
    assert context is not None
    version = str(java_class(context, "java.lang.System").getProperty("java.specification.version"))
    if int(version) > LAST_STRICT_JAVA:
        refuse(tree, f"Java {version} may compute it in a way of its own; use a pandas_udf")


def of_doubles(tree: JavaTree, translation: Translation) -> Expression:
    if kind(tree) in strict_math.OF_MATH:
        require_strict(tree)
    function = partial(strict_math.compute, strict_math.FUNCTIONS[kind(tree)][0])
    return Vectorised(function, translation.children(tree), arrow_type(tree), bool(tree.nullable()))


for _name, (_, _forms) in strict_math.FUNCTIONS.items():
    catalyst(_name, area=AREA, forms=_forms,
             limits="on Java 17 to 21" if _name in strict_math.OF_MATH else "")(of_doubles)  # fmt: skip


def logarithm(tree: JavaTree, translation: Translation) -> Expression:
    function, limit, _ = strict_math.LOGARITHMS[kind(tree)]
    operands = translation.children(tree)
    return Vectorised(partial(strict_math.above, function, limit), operands, arrow_type(tree))


for _name, (_function, _limit, _forms) in strict_math.LOGARITHMS.items():
    catalyst(_name, area=AREA, forms=_forms)(logarithm)
