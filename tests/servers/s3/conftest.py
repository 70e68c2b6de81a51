"""Fixtures of the tests with an S3 server: those of the end-to-end tests and of the dataflow."""

from __future__ import annotations

from tests.integration.conftest import inbox, out, start
from tests.integration.dataflow.conftest import launcher

__all__ = ["inbox", "launcher", "out", "start"]
