"""Fixtures of the tests of the REST service over queries that do not run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
for folder in ("query", "ui", "snapshot", "cli"):
    sys.path.insert(0, str(TESTS / folder))

from made_up_query import MadeUpQuery  # noqa: E402 - the path comes first
from rest_client import Client  # noqa: E402
from test_requests_cli import location  # noqa: E402, F401 - the fixture

import penstock  # noqa: E402
from penstock.queries.active_queries import ACTIVE_QUERIES  # noqa: E402


@pytest.fixture
def known_query(location: Path, monkeypatch: pytest.MonkeyPatch) -> str:  # noqa: F811
    """The id of a query that the service knows, whose driver has ended at ``location``."""
    facts = replace(MadeUpQuery(vertices=2, parallelism=1).facts(), location=str(location))
    monkeypatch.setattr(ACTIVE_QUERIES, "known", lambda: [facts])
    return facts.id


@pytest.fixture
def client(known_query: str) -> Iterator[Client]:
    with penstock.serve(token="") as server:
        yield Client(server.url)
