"""Effort of a test run: ``make test`` runs a part of all cases, examples and seeds, ``make fuzz`` all of them.

``PENSTOCK_EFFORT`` is the part. Each test states the least number that it needs to notice broken code. With
``PENSTOCK_EFFORT=1 pytest FILE`` a file runs in full.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

EFFORT = float(os.environ.get("PENSTOCK_EFFORT", "0.2"))
FULL = EFFORT >= 1
"""Every case of every test runs."""
LEAST = 10
"""Fewer examples of a property show little."""


def some(full: int, least: int = LEAST) -> int:
    """Return the part of these examples or seeds that this run has time for."""
    return max(min(full, least), round(full * EFFORT))


def one_in(number: int, cases: Sequence[T]) -> Sequence[T]:
    """Return one case in so many, always the same ones; all of them if every example is tried, too."""
    return cases if FULL else cases[::number]
