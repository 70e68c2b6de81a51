"""Fixtures of the web UI's tests. One browser serves all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext

import penstock
from penstock.queries.active_queries import ACTIVE_QUERIES
from penstock.rest.server import RestServer
from tests.support.rest.made_up_query import MadeUpQuery
from tests.support.ui.browser import OpenTab, Tab, context_of, launched


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with launched() as running:
        yield running


@pytest.fixture(scope="session")
def context(browser: Browser) -> BrowserContext:
    """Browser context of all tabs that need none of their own; they share its cache."""
    return context_of(browser)


@pytest.fixture
def open_tab(browser: Browser, context: BrowserContext) -> Iterator[OpenTab]:
    """Opens tabs, with arguments in a browser context of their own. All are closed at the end of the test, which fails
    if a page did something that no page may do."""
    tabs: list[Tab] = []
    own: list[BrowserContext] = []

    def open_one(url: str, **said: Any) -> Tab:
        if said:
            own.append(context_of(browser, **said))
        tabs.append(Tab(own[-1] if said else context, url))
        return tabs[-1]

    yield open_one
    try:
        for tab in tabs:
            tab.close()
    finally:
        for one in own:
            one.close()


@pytest.fixture(scope="module")
def tab_of_the_file(context: BrowserContext) -> Iterator[Tab]:
    tab = Tab(context, "")
    yield tab
    tab.close()


@pytest.fixture
def same_tab(tab_of_the_file: Tab) -> Iterator[Tab]:
    """One for all tests of a file, which goes from page to page without loading anew. Its ``url`` has to be said."""
    yield tab_of_the_file
    tab_of_the_file.leave()


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> list[MadeUpQuery]:
    """The driver's queries; tests add made-up ones."""
    queries: list[MadeUpQuery] = []
    monkeypatch.setattr(ACTIVE_QUERIES, "known", lambda: [query.facts() for query in queries])
    return queries


@pytest.fixture(scope="module")
def server() -> Iterator[RestServer]:
    with penstock.serve(token="") as running:
        yield running
