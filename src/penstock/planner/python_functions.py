"""Python functions in a plan: the user's own objects, as Spark pickled them in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.util import PythonEvalType

from penstock.catalyst.trees import JavaTree, arrow_type, children, data_type_json, kind
from penstock.errors import NotSupported, NotYet
from penstock.functions import SessionConf
from penstock.functions.plan import translate
from penstock.operators.python.composition import Composed, UserFunction
from penstock.operators.python.udf_calls import UdfCall, UdfKind

_KINDS = {
    PythonEvalType.SQL_BATCHED_UDF: UdfKind.PYTHON,
    PythonEvalType.SQL_ARROW_BATCHED_UDF: UdfKind.ARROW_PYTHON,
    PythonEvalType.SQL_SCALAR_PANDAS_UDF: UdfKind.PANDAS,
    PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF: UdfKind.PANDAS_ITERATOR,
    PythonEvalType.SQL_SCALAR_ARROW_UDF: UdfKind.ARROW,
    PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF: UdfKind.ARROW_ITERATOR,
}


def load_python(python_function: JavaTree, subject: str) -> Any:
    """Return the Python object of a JVM ``PythonFunction``.

    Args:
        subject: name of the function in error messages.

    Raises:
        NotSupported: it uses a Spark broadcast variable, or is so large that Spark broadcasts it.
    """
    broadcasts = python_function.broadcastVars()
    if broadcasts is not None and not broadcasts.isEmpty():
        raise NotSupported(
            f"{subject} uses a Spark broadcast variable, or its closure is so large that Spark broadcasts it; "
            "load the data inside the function, from a file"
        )
    return CloudPickleSerializer().loads(bytes(python_function.command().unsafeArray()))


def load_function(python_udf: JavaTree) -> UserFunction:
    """Return the user's function of a ``PythonUDF`` expression."""
    function: UserFunction = load_python(python_udf.func(), f"function {python_udf.name()}")[0]
    return function


def udf_call(python_udf: JavaTree, ordinals: Mapping[int, int], conf: SessionConf) -> UdfCall:
    """Return a scalar function call of an ``ArrowEvalPython`` or ``BatchEvalPython`` node.

    Raises:
        NotSupported: an argument or the function itself is not supported.
    """
    function, arguments = _with_arguments(python_udf)
    values = [argument.value() if _is_named(argument) else argument for argument in arguments]
    return UdfCall(
        kind=_udf_kind(python_udf),
        function=function,
        arguments=tuple(translate(value, ordinals, conf) for value in values),
        return_type=arrow_type(python_udf),
        spark_return_type_json=data_type_json(python_udf),
        name=str(python_udf.name()),
        deterministic=bool(python_udf.udfDeterministic()),
        keyword_names=tuple(str(argument.key()) for argument in arguments if _is_named(argument)),
    )


def _udf_kind(python_udf: JavaTree) -> UdfKind:
    eval_type = int(python_udf.evalType())
    if eval_type not in _KINDS:
        raise NotYet(f"function {python_udf.name()} is of a kind (eval type {eval_type}) that is not run yet")
    return _KINDS[eval_type]


def _with_arguments(python_udf: JavaTree) -> tuple[UserFunction, list[JavaTree]]:
    """Return the function and its argument expressions. ``f(g(x))`` is one call if it is one in Spark's plan."""
    function = load_function(python_udf)
    arguments = children(python_udf)
    if len(arguments) == 1 and kind(arguments[0]) == "PythonUDF":
        inner, innermost = _with_arguments(arguments[0])
        return Composed(function, inner), innermost
    return function, arguments


def _is_named(argument: JavaTree) -> bool:
    return kind(argument) == "NamedArgumentExpression"
