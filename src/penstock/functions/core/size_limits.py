"""Limits of the values that the evaluation of one batch creates.

The result of ``sequence``, ``array_repeat`` or ``repeat`` is as large as a value of the row says, and this value can be
large without warning. Therefore such functions are marked (``sized_by``), batches for them have few rows
(``worker.slicing``), and they check a limit before they create values. An operator that can process parts of its batch
evaluates it under ``apply_divisible_limits``. The limit is then lower, and the operator divides a batch that exceeds it
(``SharedExpressions``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from penstock.errors import DataError

Function = TypeVar("Function", bound=Callable[..., Any])

MAX_COLUMN_SIZE = 2**31 - 1
"""Maximum number of array elements, or of bytes of texts, in one column of a batch: Arrow's offsets have 32 bits."""

MAX_ELEMENTS_OF_DIVISIBLE_BATCH = 1 << 20
"""Maximum number of array elements if the batch can be divided. To create them takes about 10 ms."""

MAX_BYTES_OF_DIVISIBLE_BATCH = 1 << 24
"""Maximum number of bytes of texts if the batch can be divided."""

_SIZED_BY = "penstock_sized_by"


def sized_by(*children: int) -> Callable[[Function], Function]:
    """Mark a function whose result size depends on the values of some children, given by position."""

    def mark(function: Function) -> Function:
        setattr(function, _SIZED_BY, children)
        return function

    return mark


def sizing_children(function: object) -> tuple[int, ...]:
    """Return the positions given to ``sized_by`` for a function, or for the function of a partial; empty if none."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, _SIZED_BY, ())


class BatchTooLarge(DataError):
    """The evaluation of a batch would exceed a size limit."""


class _Mode(threading.local):
    is_divisible = False


_mode = _Mode()


@contextmanager
def apply_divisible_limits() -> Iterator[None]:
    """Apply the lower limits in this thread, because the caller can evaluate the batch in parts."""
    _mode.is_divisible = True
    try:
        yield
    finally:
        _mode.is_divisible = False


def require_elements(total: int) -> None:
    """Check a number of array elements before they are created.

    Raises:
        BatchTooLarge: they exceed the limit.
    """
    _require(total, MAX_ELEMENTS_OF_DIVISIBLE_BATCH, "arrays", "elements", "smaller")


def require_bytes(total: int) -> None:
    """Check a number of bytes of texts before they are created.

    Raises:
        BatchTooLarge: they exceed the limit.
    """
    _require(total, MAX_BYTES_OF_DIVISIBLE_BATCH, "texts", "bytes", "shorter")


def _require(total: int, divisible_limit: int, subject: str, unit: str, remedy: str) -> None:
    if total > (divisible_limit if _mode.is_divisible else MAX_COLUMN_SIZE):
        raise BatchTooLarge(
            f"the {subject} of one batch have {total} {unit}, and {MAX_COLUMN_SIZE} is the most; make them {remedy}, "
            "or let the source read fewer rows at once"
        )
