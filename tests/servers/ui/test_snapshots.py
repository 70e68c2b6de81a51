"""Snapshot commands in the web UI, over made-up snapshots: questions, requests and results."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from penstock.coordinator.view import ExecutionState
from penstock.rest.server import RestServer
from tests.support.rest.made_up_query import MadeUpQuery
from tests.support.rest.made_up_snapshots import NEWEST, MadeUpSnapshots
from tests.support.ui.browser import DESK, PHONE, OpenTab, Tab, assert_fit

Look = Callable[..., tuple[Tab, MadeUpSnapshots]]
"""``look(place="snapshots", suspended=False, tab={}, **of the snapshots)``, see the fixture."""


@pytest.fixture
def look(
    request: pytest.FixtureRequest, open_tab: OpenTab, same_tab: Tab, server: RestServer, made_up: list[MadeUpQuery]
) -> Look:
    def looked(
        place: str = "snapshots", suspended: bool = False, tab: dict[str, Any] | None = None, **said: Any
    ) -> tuple[Tab, MadeUpSnapshots]:
        state = ExecutionState.SUSPENDED if suspended else ExecutionState.RUNNING
        query = MadeUpQuery(request.node.name, vertices=7, parallelism=2, checkpoints=12, state=state)
        made_up.append(query)
        opened = open_tab(server.url, **tab) if tab else same_tab
        opened.url = server.url
        snapshots = MadeUpSnapshots(**said).of(opened.page)
        page = opened.go(f"#/queries/{query.query_id}/{place}")
        expect(page.locator("section.panel").first).to_be_visible()
        return opened, snapshots

    return looked


def dialog_of(page: Page, button: str) -> Locator:
    page.get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    assert_fit(page)
    return dialog


def done(page: Page, words: str) -> Locator:
    return page.get_by_role("status").filter(has_text=f"{words}: done")


def test_a_snapshot_is_taken_with_what_was_typed_and_followed(look: Look) -> None:
    tab, snapshots = look(outcome={"snapshot": "chk-12"}, polls=1)
    page = tab.page
    dialog = dialog_of(page, "Take a snapshot…")
    dialog.get_by_label("Label").fill("  before the move ")
    dialog.get_by_label("Note").fill("asked for by ops")
    dialog.get_by_label("Format").select_option("portable")
    tab.shot("snapshot-take", whole=False)
    dialog.get_by_role("button", name="Take it").click()
    under_way = page.get_by_role("status").filter(has_text="Snapshot “before the move”…")
    expect(under_way).to_contain_text("Writing (38 %)")
    expect(dialog).to_have_count(0)
    over = done(page, "Snapshot “before the move”")
    expect(over.get_by_role("link", name="chk-12")).to_be_visible()
    (sent,) = snapshots.asked
    assert sent.body == {"label": "before the move", "note": "asked for by ops", "format": "portable"}
    assert len(sent.headers["idempotency-key"]) > 8


def test_work_that_goes_on_is_not_asked_for_while_nobody_looks(look: Look) -> None:
    tab, _ = look(polls=1_000_000, tab={"viewport": DESK})
    page = tab.page
    dialog_of(page, "Take a snapshot…").get_by_role("button", name="Take it").click()
    expect(page.get_by_role("status").filter(has_text="Snapshot…")).to_be_visible()
    page.clock.install()
    with page.expect_response("**/operations/*"):
        pass
    tab.hide(True)
    page.wait_for_load_state("networkidle")
    asked = len(tab.requests)
    page.clock.run_for(60_000)
    assert tab.requests[asked:] == []
    with page.expect_response("**/operations/*"):
        tab.hide(False)


def test_what_was_not_heard_of_is_sent_again_as_the_same(look: Look) -> None:
    tab, snapshots = look(refused={"/snapshots": (0, "")})
    page = tab.page
    lost: list[str] = []

    def lose(route: Any) -> None:
        if route.request.method == "POST" and not lost:
            lost.append(route.request.headers["idempotency-key"])
            route.abort()
        else:
            route.fallback()

    page.route("**/snapshots", lose)
    dialog = dialog_of(page, "Take a snapshot…")
    dialog.get_by_label("Label").fill("kept")
    dialog.get_by_role("button", name="Take it").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Not known whether it was done")
    expect(dialog.get_by_label("Label")).to_have_value("kept")
    dialog.get_by_role("button", name="Take it").click()
    expect(done(page, "Snapshot “kept”")).to_be_visible()
    assert [one.headers["idempotency-key"] for one in snapshots.asked] == lost


def test_a_label_is_given_and_taken_away(look: Look) -> None:
    tab, snapshots = look()
    page = tab.page
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="chk-7", exact=True))
    dialog = dialog_of(page, "Label chk-7")
    dialog.get_by_label("Label").fill("after the fix")
    page.keyboard.press("Enter")
    expect(row).to_contain_text("after the fix")
    assert snapshots.asked[-1].body == {"label": "after the fix"}
    dialog = dialog_of(page, "Label chk-10")
    expect(dialog.get_by_label("Label")).to_have_value("before-upgrade")
    dialog.get_by_label("Label").fill("")
    dialog.get_by_label("Note").fill("")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("before-upgrade")).to_have_count(1)
    assert snapshots.asked[-1].body == {"label": "", "note": ""}


def test_deleting_says_first_what_goes(look: Look) -> None:
    tab, snapshots = look(outcome={"snapshot": "chk-5", "freed_files": 2, "freed_bytes": 941_000})
    page = tab.page
    dialog = dialog_of(page, "Delete chk-5")
    expect(dialog).to_contain_text("919 KiB in 2 files go with it")
    expect(dialog).to_contain_text("Somebody asked for it")
    dialog.get_by_text("Which files").click()
    expect(dialog.get_by_text("snapshots/chk-5/metadata.json")).to_be_visible()
    tab.shot("snapshot-delete", whole=False)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Delete chk-5")).to_be_focused()
    assert not snapshots.asked
    dialog = dialog_of(page, "Delete chk-5")
    dialog.get_by_role("button", name="Delete it").click()
    expect(done(page, "Delete chk-5")).to_contain_text("2 files went with it: 919 KiB.")
    assert (snapshots.asked[0].method, snapshots.asked[0].path.rpartition("/")[2]) == ("DELETE", "chk-5")
    expect(page.get_by_role("link", name="chk-5", exact=True)).to_have_count(0)


def test_deleting_is_not_offered_where_it_is_refused(look: Look) -> None:
    tab, _ = look()
    page = tab.page
    expect(page.get_by_role("button", name="Delete chk-11")).to_be_visible()
    expect(page.get_by_role("button", name="Label chk-12")).to_be_visible()
    expect(page.get_by_role("button", name="Delete chk-12")).to_have_count(0)
    page.get_by_role("link", name="chk-12", exact=True).click()
    expect(page.get_by_text(f"It cannot be deleted now: {NEWEST}.")).to_be_visible()
    expect(page.get_by_role("button", name="Delete chk-12")).to_have_count(0)


def test_what_cannot_be_deleted_any_more_offers_no_button(look: Look) -> None:
    tab, _ = look(refused={"chk-11/deletion": (409, "a checkpoint that is being taken builds on chk-11")})
    page = tab.page
    dialog = dialog_of(page, "Delete chk-11")
    expect(dialog.get_by_role("alert")).to_contain_text("builds on chk-11")
    expect(dialog.get_by_role("button")).to_have_text(["Close"])


def test_one_that_is_deleted_from_its_own_page_leads_back(look: Look) -> None:
    tab, _ = look("snapshots/chk-4")
    page = tab.page
    dialog_of(page, "Delete chk-4").get_by_role("button", name="Delete it").click()
    expect(page.get_by_role("region", name="Snapshots, newest first")).to_be_visible()
    expect(done(page, "Delete chk-4")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize(("kind", "word"), [("exports", "Export"), ("forks", "Fork")])
def test_copies_go_below_the_export_root(kind: str, word: str, look: Look) -> None:
    tab, snapshots = look("snapshots/chk-4", outcome={"location": "/data/exports/mine"}, refused={})
    page = tab.page
    dialog = dialog_of(page, f"{word} chk-4")
    name = dialog.get_by_label("Name of the new folder")
    expect(name).to_have_value(f"orders-by-region-chk-4-{word.lower()}")
    for wrong in ("", "../up", ".hidden", "a/b", "a b"):
        name.fill(wrong)
        assert not name.evaluate("node => node.validity.valid"), wrong
    dialog.get_by_role("button", name=f"{word} it").click()
    assert not snapshots.asked
    name.fill("mine")
    snapshots.refused[kind] = (409, "/data/exports/mine is not empty")
    dialog.get_by_role("button", name=f"{word} it").click()
    expect(dialog.get_by_role("alert")).to_contain_text("is not empty")
    tab.shot(f"snapshot-{word.lower()}", whole=False)
    snapshots.refused.clear()
    dialog.get_by_role("button", name=f"{word} it").click()
    expect(done(page, f"{word} chk-4")).to_contain_text("It is at /data/exports/mine")
    assert snapshots.asked[-1].path.endswith(f"/snapshots/chk-4/{kind}")
    assert snapshots.asked[-1].body == {"name": "mine"}


def test_without_an_export_root_no_copies_are_offered(look: Look) -> None:
    tab, _ = look(export_root=False)
    page = tab.page
    expect(page.get_by_role("button", name="Label chk-4")).to_be_visible()
    expect(page.get_by_role("button", name="Export")).to_have_count(0)
    expect(page.get_by_role("button", name="Fork")).to_have_count(0)
    expect(page.get_by_text("penstock.serve(export_root=…)")).to_be_visible()


def test_a_suspended_query_is_resumed_from_a_chosen_snapshot(look: Look) -> None:
    tab, snapshots = look("configuration", suspended=True)
    page = tab.page
    page.get_by_role("link", name="choose it under Snapshots").click()
    expect(page.get_by_role("button", name="Label chk-4")).to_be_visible()
    expect(page.get_by_role("button", name="Take a snapshot…")).to_have_count(0)
    dialog = dialog_of(page, "Resume from here chk-4")
    expect(dialog.get_by_label("Take them back")).to_be_checked()
    dialog.get_by_label("Keep them").check()
    tab.shot("snapshot-resume", whole=False)
    dialog.get_by_role("button", name="Resume from it").click()
    expect(done(page, "Resume from chk-4")).to_be_visible()
    (sent,) = snapshots.asked
    assert sent.body == {"spec": {"state": "running"}, "resume_from": {"snapshot": "chk-4", "output": "keep"}}
    assert sent.headers["if-match"].startswith('"')


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("device", ["desk", "phone"])
def test_shared_files_are_drawn_and_told(device: str, count: int, look: Look) -> None:
    phone = {"viewport": PHONE, "has_touch": True, "device_scale_factor": 2}
    looks = {"color_scheme": "dark" if count == 3 else "light", **(phone if device == "phone" else {})}
    tab, snapshots = look(tab=looks, count=count)
    page = tab.page
    lines = page.locator(".sharing-line")
    expect(lines).to_have_count(count)
    for name, line in ((f"chk-{count}", lines.first), ("chk-1", lines.last)):
        expect(line).to_have_attribute("href", re.compile(rf"/snapshots/{name}$"))
        users = [one for one in snapshots.sharing()["files"] if name in one["snapshots"]]
        if device == "phone":
            continue  # too narrow for that: small files are drawn wider than they are
        own = sum(one["bytes"] for one in users if len(one["snapshots"]) == 1)
        shared = sum(one["bytes"] for one in users) - own
        assert drawn_bytes(page, line, "own") == pytest.approx(own, rel=0.1, abs=600_000 * count)
        assert drawn_bytes(page, line, "shared") == pytest.approx(shared, rel=0.1, abs=600_000 * count)
    lines.first.focus()
    page.keyboard.press("Tab")
    expect(lines.nth(1)).to_be_focused()
    page.get_by_text("The same as a table").click()
    table = page.get_by_role("region", name="Files by the snapshots that need them, the most bytes first")
    expect(table.locator("tbody tr").first).to_contain_text("state")
    assert_fit(page)
    tab.shot(f"sharing-{count}-{device}")
    asked = snapshots.sharing_asked
    snapshots.rows[-1]["label"] = "seen anew"
    tab.ask()
    expect(page.get_by_text("seen anew")).to_be_visible()
    assert snapshots.sharing_asked == asked, "it changes with the snapshots alone"


def drawn_bytes(page: Page, line: Locator, kind: str) -> float:
    """Return bytes by the widths of the bars."""
    path = line.locator(f".fill-series-{kind}").get_attribute("d") or ""
    wide = sum(map(float, re.findall(r"h([\d.]+)v", path)))
    room = page.locator(".sharing-lines").evaluate("svg => svg.viewBox.baseVal.width") - 92
    total = page.locator("section", has=page.locator(".sharing")).locator("p").first.inner_text()
    number, unit = total.split()[:2]
    return wide / room * float(number.replace(",", "")) * {"MiB": 2**20, "GiB": 2**30}[unit]


def test_the_page_lives_without_the_picture(look: Look) -> None:
    tab, _ = look(refused={"/sharing": (404, "there is no snapshot 'sharing'")})
    page = tab.page
    expect(page.get_by_role("region", name="Snapshots, newest first").locator("tbody tr")).to_have_count(12)
    expect(page.get_by_role("status").filter(has_text="there is no snapshot 'sharing'")).to_be_visible()
