"""Fixtures of the protocol's tests."""

from __future__ import annotations

import hand_driven
import pytest

from penstock.runtime import slicing


@pytest.fixture(autouse=True)
def _first_slices_of_several_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if hasattr(request.module, "HandDriven"):
        monkeypatch.setattr(slicing, "FIRST_ROWS", hand_driven.FIRST_ROWS)
