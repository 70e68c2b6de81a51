"""A Python function of a Python function. Imported in the slots, hence free of everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

UserFunction = Callable[..., Any]


class Composed:
    """``outer(inner(...))``: Spark runs a chain of functions as one, without conversions in between."""

    def __init__(self, outer: UserFunction, inner: UserFunction) -> None:
        self.outer = outer
        self.inner = inner

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.outer(self.inner(*arguments, **named))
