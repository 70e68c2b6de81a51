"""Running operations on a query: a reloaded page shows them again."""

from __future__ import annotations

import threading

from playwright.sync_api import expect

from penstock.coordinator.view import ExecutionState
from penstock.queries.operations import OPERATIONS, Outcome, Verb
from penstock.rest.server import RestServer
from tests.support.rest.made_up_query import MadeUpQuery
from tests.support.ui.browser import OpenTab


def test_a_page_that_is_loaded_anew_follows_what_is_under_way(
    open_tab: OpenTab, server: RestServer, made_up: list[MadeUpQuery]
) -> None:
    query = MadeUpQuery(query_id="6f1c8a52-0000-4000-8000-00000000000f", vertices=7, parallelism=2)
    made_up.append(query)
    go_on = threading.Event()

    def fork() -> Outcome:
        assert go_on.wait(60)
        return Outcome("chk-7", location="/exports/there")

    try:
        begun = OPERATIONS.begin_snapshots(Verb.FORK_SNAPSHOT, query.query_id, query.facts().run_id, fork, key="there")
        assert begun is not None
        page = open_tab(server.url).go(f"#/queries/{query.query_id}/graph")
        told = page.get_by_role("status").filter(has_text="Fork a snapshot")
        expect(told).to_contain_text("Forking a snapshot")
        page.get_by_role("link", name="Checkpoints", exact=True).click()
        page.reload()
        expect(told).to_have_count(1)
        go_on.set()
        expect(told).to_contain_text("Fork a snapshot: done")
        expect(told).to_contain_text("/exports/there")
        told.get_by_role("button", name="Dismiss").click()
        expect(told).to_have_count(0)
    finally:
        go_on.set()


def test_a_query_on_its_way_says_what_it_does_and_one_that_failed_is_on_none(
    open_tab: OpenTab, server: RestServer, made_up: list[MadeUpQuery]
) -> None:
    query = MadeUpQuery(vertices=7, parallelism=2, state=ExecutionState.STARTING)
    made_up.append(query)
    tab = open_tab(server.url)
    page = tab.go(f"#/queries/{query.query_id}/graph")
    on_its_way = page.get_by_text("On its way")
    expect(page.get_by_role("status").filter(has=on_its_way)).to_contain_text(
        "Starting at parallelism 2: 0 of 2 slots run"
    )
    query.state, query.error_kind, query.error_text = ExecutionState.FAILED, "UserCodeError", "ValueError: no"
    tab.ask()
    expect(page.get_by_text("It failed: UserCodeError")).to_be_visible()
    expect(on_its_way).to_have_count(0)
