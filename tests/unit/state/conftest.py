"""Tables that the conformance kit tries."""

from __future__ import annotations

import pytest

from penstock.testing import table_kit
from penstock.testing.table_kit import CHECKS, SHAPES
from tests.support.effort import EFFORT

STRUCTURES = 9
"""The first shapes differ in more than the type of a column."""
EVERY = 1 if EFFORT >= 1 else 5


@pytest.fixture
def some_shapes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every structure, and of the types of columns one in so many: other ones for the next check."""
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    first = CHECKS.index(params["check"]) % EVERY if "check" in params else 0
    monkeypatch.setattr(table_kit, "SHAPES", SHAPES[:STRUCTURES] + SHAPES[STRUCTURES + first :: EVERY])
