"""Fixtures of the tests with a Kafka broker: those of the end-to-end tests."""

from __future__ import annotations

from tests.integration.conftest import inbox, out, start

__all__ = ["inbox", "out", "start"]
