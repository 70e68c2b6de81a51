"""The web UI's page of log lines, over lines that Penstock's own logger really wrote."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from penstock.queries.query_logs import QUERY_LOGS
from penstock.rest.server import RestServer
from tests.support.rest.made_up_query import MadeUpQuery
from tests.support.ui.browser import PHONE, OpenTab, assert_fit

ILL = "<b>ill</b> & meant"
LINES = 120
LOGGER = "penstock.coordinator.service"


@pytest.fixture
def logged(made_up: list[MadeUpQuery], request: pytest.FixtureRequest) -> Iterator[MadeUpQuery]:
    """A query with 120 lines of info, and behind them a warning and an error with its traceback."""
    query = MadeUpQuery(query_id=f"6f1c8a52-{request.node.name}", vertices=7, parallelism=2)
    made_up.append(query)
    log = logging.getLogger(LOGGER)
    before = log.level
    log.setLevel(logging.INFO)
    QUERY_LOGS.listen()
    about = {"query_id": query.query_id, "generation": 3}
    try:
        for number in range(1, LINES + 1):
            log.info("checkpoint %d is complete", number, extra=about)
        log.warning("slot 3 is slow: %s", ILL, extra={**about, "slot": 3})
        try:
            raise OSError(f"the store is gone {ILL}")
        except OSError:
            log.exception("a checkpoint was given up", extra={"query_id": query.query_id})
        yield query
    finally:
        log.setLevel(before)


def lines(page: Page) -> Locator:
    return page.get_by_role("list", name="Log lines, newest first").locator("> li")


def test_lines_are_filtered_by_level_and_paged(open_tab: OpenTab, server: RestServer, logged: MadeUpQuery) -> None:
    tab = open_tab(server.url)
    page = tab.go(f"#/queries/{logged.query_id}/logs")
    expect(lines(page)).to_have_count(100)
    newest = lines(page).first
    expect(newest).to_contain_text("a checkpoint was given up")
    expect(lines(page).nth(1)).to_contain_text(f"slot 3 is slow: {ILL}")
    expect(lines(page).nth(1).locator(".log-where")).to_contain_text("Generation 3slot 3")
    expect(newest.locator(".log-where")).not_to_contain_text("slot")
    expect(newest.locator("pre")).to_be_hidden()
    newest.locator("summary").click()
    expect(newest.locator("pre")).to_contain_text("Traceback (most recent call last)")
    expect(newest.locator("summary")).to_have_text(f"OSError: the store is gone {ILL}")
    page.get_by_role("button", name="Older").click()
    expect(lines(page)).to_have_count(LINES + 2 - 100)
    expect(lines(page).last).to_contain_text("checkpoint 1 is complete")
    expect(page.get_by_role("button", name="Older")).to_be_disabled()
    page.get_by_label("Show").select_option("warning")
    expect(lines(page)).to_have_count(2)  # from the newest on
    page.get_by_label("Show").select_option("error")
    expect(lines(page)).to_have_count(1)
    expect(page.locator(".pager")).to_have_count(0)  # there is but one page
    assert_fit(page)
    log = logging.getLogger(LOGGER)
    log.error("and another one", extra={"query_id": logged.query_id})
    tab.ask()
    expect(lines(page)).to_have_count(2)
    expect(lines(page).first).to_contain_text("and another one")


def test_nothing_logged_is_said_so(open_tab: OpenTab, server: RestServer, made_up: list[MadeUpQuery]) -> None:
    query = MadeUpQuery(query_id="nothing-logged", vertices=7, parallelism=2)
    made_up.append(query)
    page = open_tab(server.url).go(f"#/queries/{query.query_id}/logs")
    expect(page.get_by_text("Nothing has been logged about this query.")).to_be_visible()
    page.get_by_label("Show").select_option("error")
    expect(page.get_by_text("Nothing of this level has been logged.")).to_be_visible()
    assert_fit(page)


@pytest.mark.parametrize(("device", "scheme"), [("desk", "dark"), ("phone", "light")])
def test_lines_fit_a_phone(
    device: str, scheme: str, open_tab: OpenTab, server: RestServer, logged: MadeUpQuery
) -> None:
    phone = {"viewport": PHONE, "has_touch": True, "device_scale_factor": 2}
    tab = open_tab(server.url, color_scheme=scheme, **(phone if device == "phone" else {}))
    page = tab.go(f"#/queries/{logged.query_id}/logs")
    lines(page).first.locator("summary").click()
    expect(lines(page).first.locator("pre")).to_be_visible()
    page.get_by_label("Show").select_option("warning")
    expect(lines(page)).to_have_count(2)
    here = page.locator(".tabs [aria-current]").bounding_box()
    assert here is not None
    assert here["x"] + here["width"] <= page.evaluate("innerWidth"), "the tab of this page is to be seen"
    assert_fit(page)
    tab.shot(f"{device}-{scheme}-logs-of-a-failure")
