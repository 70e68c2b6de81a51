"""Fixtures of the tests of the REST service over queries that do not run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.queries.active_queries import ACTIVE_QUERIES
from tests.support.rest.made_up_query import MadeUpQuery
from tests.support.rest.rest_client import Client
from tests.unit.cli.test_requests_cli import location  # noqa: F401 - the fixture


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
