"""Fixtures of the tests of the kits: those of the state backends."""

from __future__ import annotations

from tests.unit.state.conftest import some_shapes

__all__ = ["some_shapes"]
