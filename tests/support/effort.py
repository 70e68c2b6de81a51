"""How much a run of the tests tries: ``make test`` a part of all examples and seeds, ``make fuzz`` every one.

``PENSTOCK_EFFORT`` is the part. What a test must try at least, so that it notices broken code, it says itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

EFFORT = float(os.environ.get("PENSTOCK_EFFORT", "0.2"))
LEAST = 10
"""Fewer examples of a property show little."""


def some(full: int, least: int = LEAST) -> int:
    """Of so many examples or seeds those that this run has time for."""
    return max(min(full, least), round(full * EFFORT))


def one_in(number: int, cases: Sequence[T]) -> Sequence[T]:
    """Of all cases one in so many, always the same ones; all of them if every example is tried, too."""
    return cases if EFFORT >= 1 else cases[::number]
