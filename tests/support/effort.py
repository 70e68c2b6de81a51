"""Effort of a test run: ``make test`` runs a part of all cases, examples and seeds, ``make fuzz`` all of them.

``PENSTOCK_EFFORT`` is the part. Each test states the least number that it needs to notice broken code. With
``PENSTOCK_EFFORT=1 pytest FILE`` a file runs in full.
"""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")

EFFORT = float(os.environ.get("PENSTOCK_EFFORT", "0.1"))
FULL = EFFORT >= 1
"""Every case of every test runs."""
LEAST = 10
"""Fewer examples of a property show little."""


def some(full: int, least: int = LEAST) -> int:
    """Return the part of these examples or seeds that this run has time for."""
    return max(min(full, least), round(full * EFFORT))


def one_in(number: int, cases: Sequence[T]) -> Sequence[T]:
    """Return one case in so many, always the same ones; all of them in a full run."""
    return cases if FULL else cases[::number]


def left_out(items: Sequence[pytest.Item]) -> set[str]:
    """Return the ids of cases that this run leaves out: it has one in so many of a test marked ``one_in(number)``.

    The same ones always stay, spread over the values of all parameters, in whichever order the tests come.
    """
    cases = defaultdict(list)
    for item in items if not FULL else ():
        if mark := item.get_closest_marker("one_in"):
            cases[item.nodeid.partition("[")[0], *mark.args].append(item.nodeid)
    found: set[str] = set()
    for (_, number), names in cases.items():
        found.update(sorted(names, key=lambda name: zlib.crc32(name.encode()))[-(-len(names) // number) :])
    return found
