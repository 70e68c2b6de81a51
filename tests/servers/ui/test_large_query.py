"""The web UI over made-up facts: 50 vertices of 16 subtasks, names that are meant ill, failures, and no answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.sync_api import expect

from penstock.config import parse_options
from penstock.coordinator.view import ExecutionState, RestartView
from penstock.rest.server import RestServer
from tests.support.rest.made_up_query import MadeUpQuery
from tests.support.ui.browser import PHONE, OpenTab, assert_fit

ILL = '<img src=x onerror="window.hurt=1"><script>window.hurt=1</script>'
OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll('.vertex-box')].map((node) => node.getBoundingClientRect());
  let found = 0;
  for (const [n, a] of boxes.entries()) for (const b of boxes.slice(n + 1))
    if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) found += 1;
  return [boxes.length, found];
}"""


def test_fifty_vertices_are_drawn_apart_and_say_what_the_query_waits_for(
    open_tab: OpenTab, server: RestServer, made_up: list[MadeUpQuery]
) -> None:
    query = MadeUpQuery()
    made_up.append(query)
    page = open_tab(server.url).go(f"#/queries/{query.query_id}/graph")
    expect(page.locator(".vertex")).to_have_count(query.vertices)
    expect(page.locator(".edge")).to_have_count(len(query.shape().edges))
    assert page.evaluate(OVERLAPS) == [50, 0]
    assert_fit(page)
    slow = query.shape().vertices[25].name
    expect(page.get_by_role("status").filter(has_text="is what the query waits for")).to_contain_text(slow)
    expect(page.locator(".vertex.busy")).to_have_count(1)
    expect(page.locator(".vertex.blocked")).to_have_count(2)
    expect(page.locator(".edge.full").first).to_be_attached()
    page.get_by_role("link", name="Its subtasks").click()
    panel = page.get_by_role("region", name="Subtasks", exact=True)
    expect(panel.locator("tbody tr")).to_have_count(16)
    expect(panel.locator("tbody tr").first).to_contain_text("worker-1.example.org, pid 4000")
    expect(panel.locator("tbody tr").first).to_contain_text("97 %")


def test_a_drawing_in_motion_keeps_focus_and_is_operated_by_keys(
    open_tab: OpenTab, server: RestServer, made_up: list[MadeUpQuery]
) -> None:
    query = MadeUpQuery(vertices=12, parallelism=4)
    made_up.append(query)
    tab = open_tab(server.url)
    page = tab.go(f"#/queries/{query.query_id}/graph")
    vertex = page.locator(".vertex").nth(3)
    expect(vertex).to_be_visible()
    vertex.focus()
    before = vertex.get_attribute("aria-label")
    query.began_s -= 500  # figures move on at once
    tab.ask()
    expect(vertex).not_to_have_attribute("aria-label", str(before))
    expect(vertex).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{server.url}/#/queries/{query.query_id}/graph/3")
    expect(vertex).to_be_focused()
    expect(page.get_by_role("heading", level=2, name=query.shape().vertices[3].name)).to_be_visible()
    page.get_by_role("button", name="Larger").click()
    page.get_by_role("button", name="Fit").click()
    page.keyboard.press("Shift+Tab")
    expect(page.get_by_role("button", name="Larger")).to_be_focused()


def test_the_keyboard_reaches_everything_in_the_order_it_is_seen(
    open_tab: OpenTab, server: RestServer, made_up: list[MadeUpQuery]
) -> None:
    query = MadeUpQuery(vertices=7, parallelism=2)
    made_up.append(query)
    page = open_tab(server.url).go(f"#/queries/{query.query_id}/graph")
    expect(page.locator(".vertex").first).to_be_visible()
    reached = []
    for _ in range(13):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.trim()"))
    assert reached[:2] == ["Skip to the content", "Penstock"]
    tabs = ["Queries", "Dataflow", "Checkpoints", "Snapshots", "Exceptions", "Logs", "Configuration"]
    assert [one for one in reached if one in tabs] == tabs
    page.keyboard.press("Control+Home")
    page.get_by_role("link", name="Skip to the content").focus()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    assert page.url.endswith("/graph")


def test_history_goes_back_in_pages(open_tab: OpenTab, server: RestServer, made_up: list[MadeUpQuery]) -> None:
    query = MadeUpQuery(vertices=7, parallelism=3, checkpoints=120)
    made_up.append(query)
    tab = open_tab(server.url)
    page = tab.go(f"#/queries/{query.query_id}/checkpoints")
    rows = page.get_by_role("region", name="Checkpoints, newest first").locator("tbody tr")
    expect(rows).to_have_count(50)
    first = rows.first.get_by_role("link")
    expect(first).to_have_text("120")
    expect(rows.filter(has_text="before-upgrade").first).to_contain_text("unaligned")
    failed = rows.filter(has_text="failed").first
    expect(failed).to_contain_text("its sink could not reach the store")
    expect(page.locator(".chart")).to_have_count(2)
    page.get_by_role("button", name="Older").click()
    expect(first).to_have_text("70")
    page.get_by_role("button", name="Older").click()
    expect(rows).to_have_count(20)
    expect(page.get_by_role("button", name="Older")).to_be_disabled()
    page.get_by_role("button", name="Newer").click()
    expect(first).to_have_text("70")
    page.get_by_role("button", name="Newest").click()
    expect(first).to_have_text("120")
    first.click()
    expect(page.get_by_role("heading", name="Checkpoint 120")).to_be_visible()
    vertex = page.locator("details.breakdown").first
    vertex.locator("summary").click()
    expect(vertex.locator("tbody tr")).to_have_count(3)
    expect(vertex.get_by_role("columnheader", name="Processed meanwhile")).to_be_visible()
    expect(vertex.locator("tbody tr").nth(2)).to_contain_text("4 KiB")
    with page.expect_response(lambda answer: answer.url.endswith("/checkpoints/120")):
        tab.ask()
    expect(vertex).to_have_attribute("open", "")
    assert_fit(page)


def test_names_are_text_whatever_they_are(open_tab: OpenTab, server: RestServer, made_up: list[MadeUpQuery]) -> None:
    failure = f"line one {ILL}\nline two"
    query = MadeUpQuery(
        name=ILL, vertices=8, parallelism=2, state=ExecutionState.FAILED, error_kind="FunctionError", error_text=failure
    )
    shape = query.shape()
    ill = tuple(
        replace(v, name=ILL, operators=tuple(replace(o, text=ILL, name=ILL) for o in v.operators))
        for v in shape.vertices
    )
    query.shape = lambda: replace(shape, vertices=ill)  # type: ignore[method-assign]
    query.restarts = (RestartView(1, 2, ILL, query.began_ms, query.began_ms + 900, 900.0, 12, "chk-7"),)
    made_up.append(query)
    tab = open_tab(server.url)
    page = tab.go()
    expect(page.get_by_role("heading", level=2)).to_contain_text(ILL)
    for place in ("graph", "graph/0", "checkpoints", "exceptions", "configuration"):
        page = tab.go(f"#/queries/{query.query_id}/{place}")
        expect(page.get_by_role("heading", level=1)).to_contain_text(ILL)
        assert page.evaluate("window.hurt") is None
        assert page.locator("img").count() == 1  # the brand's
    page = tab.go(f"#/queries/{query.query_id}/exceptions")
    expect(page.locator("pre")).to_have_text(failure)
    expect(page.locator("tbody tr")).to_contain_text(ILL)
    assert_fit(page)


def test_markup_would_be_refused_by_the_browser_itself(open_tab: OpenTab, server: RestServer) -> None:
    """Were a later hand to write text as markup, the policy stops it."""
    tab = open_tab(server.url)
    page = tab.go()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    said = page.evaluate(
        "() => { try { document.body.innerHTML = '<b>x</b>'; return 'written'; } catch (e) { return e.name; } }"
    )
    assert said == "TypeError"
    said = page.evaluate("() => fetch('http://127.0.0.1:9/').then(() => 'let out', (e) => e.name)")
    assert said == "TypeError"
    assert any("Content Security Policy" in one for one in tab.wrong)
    tab.wrong.clear()
    tab.foreign.clear()


def test_a_failed_query_says_so_on_every_page(
    open_tab: OpenTab, server: RestServer, made_up: list[MadeUpQuery]
) -> None:
    query = MadeUpQuery(vertices=7, parallelism=2, state=ExecutionState.FAILED, error_kind="SinkError", error_text="no")
    made_up.append(query)
    tab = open_tab(server.url)
    page = tab.go(f"#/queries/{query.query_id}/graph")
    expect(page.get_by_role("alert")).to_contain_text("It failed: SinkError")
    expect(page.get_by_text("On its way")).to_have_count(0)
    expect(page.locator(".vertex.off")).to_have_count(7)
    page.get_by_role("link", name="Why it failed").click()
    expect(page.get_by_role("heading", name="Failure")).to_be_visible()
    page.get_by_role("link", name="Configuration").click()
    expect(page.get_by_text("it is started again in its program")).to_be_visible()
    expect(page.get_by_role("button", name="Apply")).to_have_count(0)


def test_an_answer_that_makes_no_sense_takes_nothing_along(
    open_tab: OpenTab, server: RestServer, made_up: list[MadeUpQuery]
) -> None:
    query = MadeUpQuery(vertices=7, parallelism=2)
    made_up.append(query)
    tab = open_tab(server.url)
    tab.page.route("**/graph", lambda route: route.fulfill(json={"vertices": None}))
    page = tab.go(f"#/queries/{query.query_id}/graph")
    expect(page.get_by_role("alert")).to_contain_text("This page has a fault")
    page.get_by_role("link", name="Penstock").click()
    page.get_by_role("link", name=query.name).click()
    expect(page.get_by_role("alert")).to_contain_text("This page has a fault")
    tab.page.unroute("**/graph")
    page.get_by_role("button", name="Ask now").click()
    expect(page.locator(".vertex")).to_have_count(7)
    assert tab.wrong
    tab.wrong.clear()
    tab.page.route("**/api/v1/queries", lambda route: route.fulfill(body="<html>a proxy's page", status=502))
    page = tab.go()
    expect(page.get_by_role("alert")).to_contain_text("answered 502")


def test_a_hidden_tab_asks_nothing(open_tab: OpenTab, server: RestServer, made_up: list[MadeUpQuery]) -> None:
    query = MadeUpQuery(vertices=7, parallelism=2)
    made_up.append(query)
    tab = open_tab(server.url)
    tab.page.clock.install()
    for place in ("#/", *(f"#/queries/{query.query_id}/{page}" for page in ("graph", "snapshots", "logs"))):
        page = tab.go(place)
        expect(page.get_by_text("Live")).to_be_visible()
        tab.hide(True)
        page.wait_for_load_state("networkidle")
        asked = len(tab.requests)
        page.clock.run_for(600_000)
        assert tab.requests[asked:] == [], place
        with page.expect_response("**/api/v1/queries**"):
            tab.hide(False)
        with page.expect_response("**/api/v1/queries**"):
            page.clock.run_for(10_000)  # the clock is not what keeps it quiet


def test_unknown_addresses_lead_back(open_tab: OpenTab, server: RestServer) -> None:
    tab = open_tab(server.url)
    for address in ("#/nothing", "#/queries/a/b/c/d", "#/queries/x/pages"):
        page = tab.go(address)
        expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
    page = tab.go("#/queries/unknown/graph")
    expect(page.get_by_role("heading", name="Not here")).to_be_visible()
    page.get_by_role("link", name="All queries").click()
    expect(page.get_by_role("heading", name="Queries")).to_be_visible()


SHOWN = {
    "": ".card",
    "graph": ".vertex",
    "graph/25": ".vertex-panel tbody tr",
    "checkpoints": ".chart",
    "checkpoints/120": "details",
    "exceptions": "h2:text('Recoveries')",
    "logs": "h2:text('Logs')",
    "configuration": "form",
}
"""What is there once a page of a query is; the first is all queries."""


TRACEBACK = """Traceback (most recent call last):
  File "/opt/app/shipments.py", line 41, in <module>
    client.send(rows)
ConnectionError: the warehouse does not answer; the sink 'late-shipments' gave up after 10 attempts in 4 minutes"""
GROUNDS = {"light": "rgb(244, 246, 249)", "dark": "rgb(14, 19, 26)"}


@pytest.mark.parametrize("device", ["desk", "phone"])
def test_light_dark_and_phone(device: str, open_tab: OpenTab, server: RestServer, made_up: list[MadeUpQuery]) -> None:
    """Screenshots for people; what a machine can see of them is checked."""
    failed = ExecutionState.FAILED
    large, query = MadeUpQuery(), MadeUpQuery("of-other-pages", vertices=12, parallelism=4)
    failing = MadeUpQuery("another", "late-shipments", 9, 2, state=failed, error_kind="SinkError", error_text=TRACEBACK)
    lost = "slot 1 was lost: its executor ended (exit code 137: killed, perhaps for memory)"
    failing.restarts = (RestartView(1, 2, lost, failing.began_ms, failing.began_ms + 900, 900.0, 1200, "chk-7"),)
    query.options = parse_options({"state.backend": "rocksdb", "state.memory": "256m", "restart.strategy": "fixed"})
    made_up.extend([large, query, failing])
    phone = {"viewport": PHONE, "has_touch": True, "device_scale_factor": 2}
    tab = open_tab(server.url, **(phone if device == "phone" else {}))
    for place, selector in SHOWN.items():
        shown = large if place.startswith("graph") else failing if place == "exceptions" else query
        page = tab.go(f"#/queries/{shown.query_id}/{place}" if place else "#/")
        expect(page.locator(selector).first).to_be_visible()
        assert_fit(page)
        for scheme in GROUNDS:
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == GROUNDS[scheme]
            if scheme == "light" or device == "desk":
                tab.shot(f"{device}-{scheme}-{place.replace('/', '-') or 'queries'}")


def test_the_theme_can_be_chosen_and_stays(open_tab: OpenTab, server: RestServer) -> None:
    page = open_tab(server.url, color_scheme="light").go()
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(244, 246, 249)"
    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: light").click()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert page.evaluate(ground) == "rgb(14, 19, 26)"
    page.reload()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert page.evaluate(ground) == "rgb(14, 19, 26)"
