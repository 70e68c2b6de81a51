"""Composition of Python functions. Slots unpickle these objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

UserFunction = Callable[..., Any]


class Composed:
    """``outer(inner(...))``. Spark runs a chain of functions as one, without conversions between them."""

    def __init__(self, outer: UserFunction, inner: UserFunction) -> None:
        self.outer = outer
        self.inner = inner

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.outer(self.inner(*arguments, **named))
