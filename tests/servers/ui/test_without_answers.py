"""The web UI where nobody is let in yet, or nobody answers any more: tests that start and stop a server themselves."""

from __future__ import annotations

from playwright.sync_api import expect

import penstock
from tests.support.rest.made_up_query import MadeUpQuery
from tests.support.ui.browser import OpenTab, assert_fit

TOKEN = "a-token-of-some-length"


def test_the_token_is_asked_for_and_kept_in_this_tab(open_tab: OpenTab, made_up: list[MadeUpQuery]) -> None:
    query = MadeUpQuery(vertices=7, parallelism=2)
    made_up.append(query)
    with penstock.serve(token=TOKEN) as server:
        tab = open_tab(server.url)
        page = tab.go(f"#/queries/{query.query_id}/graph")
        field = page.get_by_label("Token", exact=True)
        expect(field).to_be_visible()
        assert_fit(page)
        tab.shot("token")
        field.fill("not-the-right-token")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("does not take this token")
        field.fill(TOKEN)
        page.get_by_role("button", name="Go in").click()
        expect(page.locator(".vertex")).to_have_count(7)
        assert page.evaluate("sessionStorage.getItem('penstock-token')") == TOKEN
        assert TOKEN not in page.evaluate("JSON.stringify(localStorage) + document.cookie + location.href")
        page.reload()
        expect(page.locator(".vertex")).to_have_count(7)
        page.get_by_role("button", name="Forget token").click()
        expect(field).to_be_visible()
        assert page.evaluate("sessionStorage.length") == 0
        assert all(TOKEN not in one for one in tab.requests)


def test_the_printed_address_signs_a_browser_in(open_tab: OpenTab, made_up: list[MadeUpQuery]) -> None:
    query = MadeUpQuery(vertices=7, parallelism=2)
    made_up.append(query)
    with penstock.serve() as server:
        assert server.token is not None
        tab = open_tab(server.url)
        page = tab.go(server.link.removeprefix(f"{server.url}/"))
        expect(page.get_by_role("link", name=query.name)).to_be_visible()
        assert server.token not in page.evaluate("JSON.stringify(localStorage) + document.cookie + location.href")
        assert all(server.token not in one for one in tab.requests)
        page.evaluate("location.hash = '#token=of-another-service'")
        expect(page.get_by_role("alert")).to_contain_text("does not take this token")
        page.evaluate("token => { location.hash = `#token=${token}`; }", server.token)
        expect(page.get_by_role("link", name=query.name)).to_be_visible()


def test_a_dead_driver_is_told_calmly_and_found_again(open_tab: OpenTab, made_up: list[MadeUpQuery]) -> None:
    query = MadeUpQuery(vertices=7, parallelism=2)
    made_up.append(query)
    with penstock.serve(token="") as server:
        tab = open_tab(server.url)
        page = tab.go(f"#/queries/{query.query_id}/graph")
        expect(page.locator(".vertex")).to_have_count(7)
    tab.ask()
    told = page.get_by_role("status").filter(has_text="The driver does not answer")
    expect(told).to_contain_text("What is shown is from")
    expect(page.locator(".vertex")).to_have_count(7)
    tab.shot("no-answer")
    with penstock.serve(token="", port=int(server.url.rpartition(":")[2])):
        page.get_by_role("button", name="Ask now").click()
        expect(told).to_have_count(0)
        made_up.clear()
        tab.ask()
        expect(page.get_by_role("alert")).to_contain_text("no query")
        page.get_by_role("link", name="Penstock").click()
        expect(page.get_by_text("No query runs in this driver")).to_be_visible()
