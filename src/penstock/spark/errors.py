"""Errors of the hierarchy in ``penstock.errors`` that are PySpark errors, too.

Penstock raises them where PySpark raises its own for the same mistake, so programs that catch PySpark's classes and
read ``getCondition()`` and ``getMessageParameters()`` work unchanged. They are not in ``penstock.errors`` because
programs that do not need PySpark import that module, and the import of PySpark takes 0.1 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    PySparkAttributeError,
    PySparkException,
    PySparkTypeError,
    PySparkValueError,
)

from penstock.config import LONGEST_MS
from penstock.errors import ConfigError, LocationError, NotSupported, NotYet, PenstockError, SinkError


class _AlsoPySparks(PySparkException):  # type: ignore[misc]  # PySpark is not typed here
    """Base class of the errors in this module.

    Args:
        message: Penstock's text.
        condition: Spark's error condition, for example ``VALUE_NOT_POSITIVE``; None if Spark has none.
        parameters: values in Spark's message of this condition.
    """

    def __init__(self, message: str, condition: str | None = None, parameters: Mapping[str, str] | None = None) -> None:
        PySparkException.__init__(self, message, condition, None if parameters is None else dict(parameters))
        self.args = (message, condition, parameters)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return type(self), self.args


class ArgumentError(_AlsoPySparks, ConfigError, PySparkValueError):  # type: ignore[misc]
    """An argument is out of range."""


class ArgumentTypeError(_AlsoPySparks, ConfigError, PySparkTypeError):  # type: ignore[misc]
    """An argument is of the wrong type."""


class NotCallable(_AlsoPySparks, ConfigError, PySparkAttributeError):  # type: ignore[misc]
    """An object lacks a method that PySpark's interface needs."""


class WrongSetting(_AlsoPySparks, ConfigError, IllegalArgumentException, ValueError):  # type: ignore[misc]
    """An option, an output mode, an interval or a name is unknown or cannot be used."""


class WrongPlan(_AlsoPySparks, ConfigError, AnalysisException):  # type: ignore[misc]
    """Settings of a query contradict each other, or do not fit the columns of the DataFrame."""


class NoLocation(_AlsoPySparks, LocationError, AnalysisException):  # type: ignore[misc]
    """The query has no checkpoint location."""


class NoTable(_AlsoPySparks, SinkError, AnalysisException):  # type: ignore[misc]
    """The catalog refuses to create a table."""


class UnsupportedPlan(_AlsoPySparks, NotSupported, AnalysisException):  # type: ignore[misc]
    """Spark's check or Penstock refuses the plan, its sink or its output mode."""


class NotYetSupported(_AlsoPySparks, NotYet, AnalysisException):  # type: ignore[misc]
    """A later release is planned to run the plan."""


_PYSPARKS: dict[type[PenstockError], Callable[..., PenstockError]] = {
    ConfigError: WrongSetting,
    NotSupported: UnsupportedPlan,
    NotYet: NotYetSupported,
}


@contextmanager
def pysparks_refusals() -> Iterator[None]:
    """Convert refusals raised by modules without PySpark to errors that are PySpark errors, too.

    For methods that users call. Also usable as a decorator.
    """
    try:
        yield
    except (ConfigError, NotSupported) as error:
        kind = _PYSPARKS.get(type(error))
        if kind is None:
            raise
        raise kind(*error.args).with_traceback(error.__traceback__) from error.__cause__


def empty_text(name: str, value: object, hint: str = "") -> ArgumentError:
    """Return the error for an argument that must be a non-empty string."""
    parameters = {"arg_name": name, "arg_value": str(value)}
    return ArgumentError(
        f"{name} must be a non-empty string, not {value!r}{hint}", "VALUE_NOT_NON_EMPTY_STR", parameters
    )


def wrong_type(name: str, value: object, expected: str) -> ArgumentTypeError:
    """Return the error for an argument of a wrong type. ``expected``: for example ``a string``."""
    parameters = {"arg_name": name, "expected_type": expected, "arg_type": type(value).__name__}
    return ArgumentTypeError(f"{name} must be {expected}, not {type(value).__name__}", "NOT_EXPECTED_TYPE", parameters)


def check_texts(**arguments: object) -> None:
    """Raise ArgumentTypeError for an argument that is neither a string nor None."""
    for name, value in arguments.items():
        if not isinstance(value, str | None):
            raise wrong_type(name, value, "a string")


def check_flags(**arguments: object) -> None:
    """Raise ArgumentTypeError for an argument that is not True or False."""
    for name, value in arguments.items():
        if not isinstance(value, bool):
            raise wrong_type(name, value, "a bool")


def check_numbers(**arguments: object) -> None:
    """Raise ArgumentTypeError for an argument that is not an integer."""
    for name, value in arguments.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong_type(name, value, "an int")


def check_seconds(timeout: object, zero: bool = False) -> None:
    """Check a time-out in seconds; None is valid.

    Raises:
        ArgumentError: the value is not a number, is negative, is zero while ``zero`` is False, or is above
            ``LONGEST_MS``.
    """
    if timeout is None:
        return
    if isinstance(timeout, int | float) and (0 < timeout <= LONGEST_MS / 1000 or (zero and timeout == 0)):
        return
    parameters = {"arg_name": "timeout", "arg_value": type(timeout).__name__}
    least = "that is not negative" if zero else "above zero"
    raise ArgumentError(
        f"timeout must be a number of seconds {least}, at most 100 years, not {timeout!r}",
        "VALUE_NOT_POSITIVE",
        parameters,
    )
