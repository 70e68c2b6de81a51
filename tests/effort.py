"""How much a run of the tests tries: ``make test`` a part of all examples and seeds, ``make fuzz`` every one.

``PENSTOCK_EFFORT`` is the part. What a test must try at least, so that it notices broken code, it says itself.
"""

from __future__ import annotations

import os

EFFORT = float(os.environ.get("PENSTOCK_EFFORT", "0.3"))
LEAST = 10
"""Fewer examples of a property show little."""


def some(full: int, least: int = LEAST) -> int:
    """Of so many examples or seeds those that this run has time for."""
    return max(min(full, least), round(full * EFFORT))
