"""How much one evaluation may make of one batch.

``sequence``, ``array_repeat`` or ``repeat`` make as much of a row as a value says, and the value may suddenly be large.
Therefore such functions are marked (``sized_by``), batches for them have few rows (``runtime.slicing``), and they ask
for room before they make values. An operator that can work on a part of its batch evaluates ``divisible``: then the
limit is a low one, and the operator divides a batch that exceeds it (``SharedExpressions``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from penstock.errors import DataError

Function = TypeVar("Function", bound=Callable[..., Any])

MOST = 2**31 - 1
"""What Arrow's 32-bit offsets can reach, in all arrays or texts of one column of a batch together."""

MOST_OF_SEVERAL_ROWS = 1 << 20
"""Elements, while the batch can be divided: their making takes some 10 ms."""

MOST_BYTES_OF_SEVERAL_ROWS = 1 << 24
"""Of texts, while the batch can be divided."""


_SIZED_BY = "penstock_sized_by"


def sized_by(*children: int) -> Callable[[Function], Function]:
    """Mark a function: the values of these children of its expression, by position, say how much it makes of a row."""

    def mark(function: Function) -> Function:
        setattr(function, _SIZED_BY, children)
        return function

    return mark


def sizing_children(function: object) -> tuple[int, ...]:
    """Return what ``sized_by`` says of a function, or of a partial of it; nothing if it is not marked."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, _SIZED_BY, ())


class TooMuch(DataError):
    """One evaluation would make more than there is room for."""


class _Mode(threading.local):
    divisible = False


_mode = _Mode()


@contextmanager
def divisible() -> Iterator[None]:
    """Meanwhile, in this thread, less is too much: the caller evaluates fewer rows then."""
    _mode.divisible = True
    try:
        yield
    finally:
        _mode.divisible = False


def require_elements(total: int) -> None:
    """To be called before so many elements of arrays are made.

    Raises:
        TooMuch: they are more than a batch can hold, or than several rows should give.
    """
    if total > (MOST_OF_SEVERAL_ROWS if _mode.divisible else MOST):
        raise TooMuch(
            f"the arrays of one batch have {total} elements, and {MOST} is the most; make them smaller, or let the "
            "source read fewer rows at once"
        )


def require_bytes(total: int) -> None:
    """To be called before texts of so many bytes are made.

    Raises:
        TooMuch: they are more than a batch can hold, or than several rows should give.
    """
    if total > (MOST_BYTES_OF_SEVERAL_ROWS if _mode.divisible else MOST):
        raise TooMuch(
            f"the texts of one batch have {total} bytes, and {MOST} is the most; make them shorter, or let the source "
            "read fewer rows at once"
        )
