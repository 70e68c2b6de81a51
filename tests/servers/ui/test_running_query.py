"""The web UI over a query that runs: every page, and everything that can be done from one."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import expect
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

import penstock
from penstock.coordinator.view import CheckpointState, ExecutionState
from penstock.logs import about, get_logger
from penstock.queries.streaming_query import StreamingQuery
from penstock.rest.server import RestServer
from tests.support.queries.query_running import Inbox, eventually
from tests.support.rest.rest_client import Client
from tests.support.ui.browser import OpenTab, Tab, assert_fit

pytestmark = pytest.mark.spark

NAME = "late <b>orders</b> & returns"
ROWS = 400_000
"""More than are processed while these tests run."""
PARALLELISM = 2
LABEL = "before the upgrade"


@dataclass
class Running:
    """``slow`` has rows in flight, waits in front of a Python function, and has a snapshot of that. ``exports``: where
    the service may write to."""

    server: RestServer
    slow: StreamingQuery
    snapshot: str
    exports: Path

    def page(self, place: str = "graph") -> str:
        return f"#/queries/{self.slow.id}/{place}"


@pytest.fixture(scope="module")
def running(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    def dawdle(value: int) -> int:
        time.sleep(0.0005)
        return value + 1

    home = tmp_path_factory.mktemp("ui")
    inbox = Inbox(home / "in")
    for first in range(0, ROWS, 10_000):
        inbox.add([(n % 97, n, n / 100) for n in range(first, first + 10_000)])
    df = inbox.stream(spark).withWatermark("at", "1 hour").dropDuplicates(["value", "at"])
    df = df.select(F.udf(dawdle, "bigint", useArrow=False)("value").alias("x"), "at")
    query = penstock.writeStream(df).start(
        format="noop",
        queryName=NAME,
        checkpointLocation=str(home / "checkpoint"),
        parallelism=PARALLELISM,
        **{"checkpoint.interval": "2s", "exchange.memoryPerGate": "256k", "exchange.exclusiveWindow": "32k"},
    )
    try:
        eventually(lambda: query.view().inflight_bytes > 100_000, "rows to pile up", 60)
        taken = query.snapshot(label=LABEL, alignment="unaligned")
        exports = home / "exports"
        exports.mkdir()
        with penstock.serve(token="", export_root=exports) as server:
            yield Running(server, query, taken.id, exports)
    finally:
        query.stop()


@pytest.fixture
def tab(open_tab: OpenTab, running: Running) -> Tab:
    return open_tab(running.server.url)


def test_the_list_leads_to_the_query(tab: Tab, running: Running) -> None:
    page = tab.go()
    card = page.locator(".card").filter(has_text=running.slow.id)
    expect(card).to_contain_text("running")
    assert_fit(page)
    tab.shot("running-queries")
    card.get_by_role("link", name=NAME).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(NAME)
    expect(page).to_have_title(f"{NAME} · Penstock")
    expect(page.locator(".query-head")).to_contain_text("Last safe")
    expect(page.locator(".query-head")).to_contain_text("ago (")


def test_the_dataflow_shows_where_rows_wait(tab: Tab, running: Running) -> None:
    page = tab.go(running.page())
    expect(page.locator(".vertex")).to_have_count(2)
    source, slow = page.locator(".vertex").nth(0), page.locator(".vertex").nth(1)
    expect(slow).to_have_class("vertex busy")
    expect(source).to_have_class("vertex blocked")
    expect(page.locator(".edge-kind")).to_contain_text("hash")
    expect(page.locator(".edge-queue")).to_contain_text("KiB")
    slow.click()
    rows = page.get_by_role("region", name="Subtasks", exact=True).locator("tbody tr")
    expect(rows).to_have_count(running.slow.parallelism)
    pids = [slot.pid for slot in running.slow.view().slots]
    expect(rows.nth(1)).to_contain_text(f"pid {pids[1]}")
    expect(rows.nth(1)).to_contain_text("KiB (")
    expect(page.locator(".vertex-panel")).to_contain_text("sink")
    assert_fit(page)
    tab.shot("running-graph")


def test_checkpoints_are_told_with_every_subtask(tab: Tab, running: Running) -> None:
    page = tab.go(running.page("checkpoints"))
    row = page.locator("tbody tr").filter(has_text=LABEL)
    rows = page.locator("tbody tr")
    expect(rows.first).to_be_visible()
    while not row.count():  # newer checkpoints may have filled the first pages
        first = rows.first.inner_text()
        page.get_by_role("button", name="Older").click()
        expect(rows.first).not_to_have_text(first)
    expect(row).to_contain_text("unaligned (")
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", name=f"Checkpoint {running.snapshot.removeprefix('chk-')}")).to_be_visible()
    expect(page.locator("details.breakdown")).to_have_count(2)
    page.locator("summary").first.click()
    expect(page.locator("details[open] tbody tr")).to_have_count(PARALLELISM)
    assert_fit(page)
    tab.shot("running-checkpoint")
    page.get_by_role("link", name=running.snapshot).click()
    expect(page.get_by_role("heading", name="Rows in flight")).to_be_visible()


def test_a_snapshot_shows_tables_and_rows_in_flight(tab: Tab, running: Running) -> None:
    page = tab.go(running.page("snapshots"))
    row = page.locator("tbody tr").filter(has_text=LABEL)
    expect(row).to_contain_text("requested")
    assert_fit(page)
    tab.shot("running-snapshots")
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", name=LABEL)).to_be_visible()
    expect(page.get_by_role("region", name="Tables of state")).to_contain_text("value")
    shown = Client(running.server.url).get(f"/api/v1/queries/{running.slow.id}/snapshots/{running.snapshot}").json
    filled = [one for edge in shown["edges"] for one in edge["channels"] if one["rows"]]
    assert filled, "the snapshot was to hold rows in flight"
    expect(page.locator(".heat-cell")).to_have_count(len(filled))
    most = max(filled, key=lambda one: one["rows"])
    words = f"producer {most['producer']} → consumer {most['consumer']}: {most['rows']:,} rows"
    darkest = page.locator(".heat-cell").filter(has=page.locator("title", has_text=words))
    expect(darkest).to_have_attribute("fill-opacity", "1.00")
    expect(page.get_by_role("region", name="The fullest channels").locator("tbody tr").first).to_contain_text(
        f"{most['producer']} → {most['consumer']}"
    )
    assert_fit(page)
    tab.shot("running-snapshot")


def test_a_snapshot_is_taken_and_deleted(tab: Tab, running: Running) -> None:
    page = tab.go(running.page("snapshots"))
    page.get_by_role("button", name="Take a snapshot…").click()
    page.get_by_role("dialog").get_by_label("Label").fill("from the page")
    page.get_by_role("dialog").get_by_label("Alignment").select_option("unaligned")
    page.get_by_role("button", name="Take it").click()
    done = page.get_by_role("status").filter(has_text="Snapshot “from the page”: done")
    expect(done).to_be_visible(timeout=60_000)
    taken = done.get_by_role("link").inner_text()
    row = page.locator("tbody tr").filter(has=page.get_by_role("link", name=taken, exact=True))
    expect(row.filter(has_text="from the page")).to_contain_text("requested")
    eventually(lambda: checkpoints_since(running, taken) > 1, "newer checkpoints", 60)
    page.get_by_role("button", name=f"Delete {taken}").click()
    expect(page.get_by_role("dialog")).to_contain_text("go with it")
    page.get_by_role("button", name="Delete it").click()
    over = page.get_by_text(f"Delete {taken}: ")
    expect(over).to_be_visible(timeout=60_000)
    expect(over).to_have_text(f"Delete {taken}: done")
    expect(row).to_have_count(0)


def test_a_snapshot_is_labelled_and_noted(tab: Tab, running: Running) -> None:
    page = tab.go(running.page(f"snapshots/{running.snapshot}"))
    page.get_by_role("button", name=f"Label {running.snapshot}").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Label")).to_have_value(LABEL)
    dialog.get_by_label("Note").fill("asked for by ops")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    expect(page.locator("section").first).to_contain_text("asked for by ops")
    assert page.get_by_role("heading", name=LABEL).count() == 1


def test_what_snapshots_share_is_drawn(tab: Tab, running: Running) -> None:
    eventually(lambda: checkpoints_since(running, running.snapshot) > 1, "newer checkpoints", 60)
    page = tab.go(running.page("snapshots"))
    shared = Client(running.server.url).get(f"/api/v1/queries/{running.slow.id}/snapshots/sharing").json
    assert running.snapshot in shared["snapshots"]
    line = page.locator(".sharing-line").last
    expect(line).to_have_attribute("href", running.page(f"snapshots/{running.snapshot}"))
    expect(line).to_have_attribute(
        "aria-label", re.compile(rf"{running.snapshot}: .* of it .* for itself and .* shared")
    )
    assert_fit(page)
    tab.shot("running-sharing")


@pytest.mark.parametrize("word", ["Export", "Fork"])
def test_a_snapshot_is_written_below_the_export_root(word: str, tab: Tab, running: Running) -> None:
    page = tab.go(running.page(f"snapshots/{running.snapshot}"))
    for again in (False, True):
        page.get_by_role("button", name=f"{word} {running.snapshot}", exact=True).click()
        name = page.get_by_label("Name of the new folder").input_value()
        page.get_by_role("button", name=f"{word} it").click()
        if again:
            expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text(name)
        else:
            done = page.get_by_role("status").filter(has_text=f"{word} {running.snapshot}: done")
            expect(done).to_contain_text(str(running.exports / name), timeout=60_000)
            assert any((running.exports / name).iterdir())


def checkpoints_since(running: Running, snapshot: str) -> int:
    """Complete ones: the newest snapshot cannot be deleted, nor one that a checkpoint under way builds on."""
    known = running.slow.view().checkpoints
    newer = [one for one in known if one.checkpoint > int(snapshot.removeprefix("chk-"))]
    return sum(one.state is CheckpointState.COMPLETE for one in newer)


def test_exceptions_of_a_sound_query(tab: Tab, running: Running) -> None:
    page = tab.go(running.page("exceptions"))
    expect(page.get_by_text("None: the query has not failed.")).to_be_visible()
    expect(page.get_by_text("None: no Generation of this run has been lost.")).to_be_visible()
    tab.shot("running-exceptions")


def test_what_was_logged_about_the_query_is_shown(tab: Tab, running: Running) -> None:
    with about(query=NAME, query_id=str(running.slow.id)):
        get_logger("penstock.coordinator.query_execution").warning("slot 1 is short of memory")
    page = tab.go(running.page("logs"))
    newest = page.get_by_role("list", name="Log lines, newest first").locator("> li").first
    expect(newest).to_contain_text("slot 1 is short of memory")
    expect(newest).to_contain_text("warning")
    assert_fit(page)
    tab.shot("running-logs")
    page.get_by_label("Show").select_option("error")
    expect(page.get_by_text("slot 1 is short of memory")).to_have_count(0)


def test_checkpoints_and_parallelism_are_changed(tab: Tab, running: Running) -> None:
    page = tab.go(running.page("configuration"))
    apply = page.get_by_role("button", name="Apply")
    expect(apply).to_be_disabled()
    page.get_by_label("Checkpoint interval").fill("4500")
    page.get_by_label("Alignment").select_option("unaligned")
    with page.expect_response(f"**/api/v1/queries/{running.slow.id}"):
        tab.ask()  # what is typed outlives updates of the page
    expect(page.get_by_label("Checkpoint interval")).to_have_value("4500")
    apply.click()
    expect(page.get_by_role("status").filter(has_text="Changed")).to_be_visible()
    wanted = running.slow.facts().requested
    assert (wanted.checkpoint_interval_ms, wanted.alignment) == (4500, "unaligned")
    expect(apply).to_be_disabled()
    page.get_by_label("Parallelism").fill("3")
    apply.click()
    done = page.get_by_role("status").filter(has_text="Rescale to 3")
    expect(done.first).to_be_visible()
    expect(done.filter(has_text="done")).to_be_visible()
    assert running.slow.parallelism == 3
    expect(page.get_by_text("Slot 2")).to_be_visible()
    options = page.get_by_role("region", name="Options that differ from their defaults").locator("tbody tr")
    expect(options.filter(has_text="checkpoint.interval")).to_contain_text("started with 2s")
    expect(options.filter(has_text="checkpoint.alignment")).to_contain_text("unaligned")
    expect(options.filter(has_text="exchange.memoryPerGate")).to_contain_text("256k")
    assert_fit(page)
    tab.shot("running-configuration")
    page.get_by_role("button", name="Dismiss").click()
    expect(done).to_have_count(0)


def test_what_cannot_be_is_refused_in_words(tab: Tab, running: Running) -> None:
    page = tab.go(running.page("configuration"))
    page.get_by_label("Parallelism").fill("99")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("alert")).to_contain_text("Rescale to 99: failed")
    expect(page.get_by_role("alert")).to_contain_text("ResourceError")
    page.get_by_label("Checkpoint interval").fill("")
    page.get_by_role("button", name="Apply").click()
    assert page.get_by_label("Checkpoint interval").evaluate("node => node.validity.valueMissing")


def test_nobody_is_overruled(tab: Tab, running: Running) -> None:
    page = tab.go(running.page("configuration"))
    page.get_by_label("Checkpoint interval").fill("7000")
    running.slow.setCheckpoints(interval="8s")  # by somebody else
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("alert").or_(page.get_by_role("status")).filter(has_text="Somebody else")).to_be_visible()
    assert running.slow.facts().requested.checkpoint_interval_ms == 8000
    page.get_by_role("button", name="Start from what it is now").click()
    expect(page.get_by_label("Checkpoint interval")).to_have_value("8000")
    page.get_by_label("Checkpoint interval").fill("9000")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("status").filter(has_text="Changed")).to_be_visible()
    assert running.slow.facts().requested.checkpoint_interval_ms == 9000


def test_a_query_is_suspended_resumed_and_stopped(
    tab: Tab, running: Running, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("stopped")
    inbox = Inbox(home / "in")
    query = penstock.writeStream(inbox.stream(spark)).start(
        format="noop", queryName="short", checkpointLocation=str(home / "checkpoint"), parallelism=1
    )
    try:
        page = tab.go(f"#/queries/{query.id}/configuration")
        page.get_by_role("button", name="Suspend the query").click()
        expect(page.get_by_role("status").filter(has_text="Suspend: done")).to_be_visible(timeout=30_000)
        resume = page.get_by_role("button", name="Resume the query")
        expect(resume).to_be_visible()
        assert query.view().state is ExecutionState.SUSPENDED
        resume.click()
        expect(page.get_by_role("button", name="Suspend the query")).to_be_visible(timeout=30_000)
        eventually(lambda: query.view().state is ExecutionState.RUNNING, "it to run again", 30)
        page.get_by_role("button", name="Suspend the query").click()
        page.get_by_role("link", name="choose it under Snapshots").click(timeout=30_000)
        oldest = page.get_by_role("region", name="Snapshots, newest first").locator("tbody tr").last
        expect(oldest.get_by_role("link")).to_have_text("chk-1")
        oldest.get_by_role("button", name="Resume from here").click()
        page.get_by_role("button", name="Resume from it").click()
        expect(page.get_by_role("status").filter(has_text="Resume from chk-1: done")).to_be_visible(timeout=30_000)
        eventually(lambda: query.view().state is ExecutionState.RUNNING, "it to run again", 30)
        expect(page.get_by_role("button", name="Resume from here")).to_have_count(0)
        page.get_by_role("link", name="Configuration").click()
        page.get_by_role("button", name="Stop the query").click()
        page.get_by_role("button", name="Keep it running").click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert query.isActive
        page.get_by_role("button", name="Stop the query").click()
        expect(page.get_by_role("heading", name="Stop short?")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.get_by_role("button", name="Stop the query").click()
        page.get_by_role("button", name="Stop it", exact=True).click()
        expect(page.get_by_role("status").filter(has_text="It has ended")).to_be_visible()
        expect(page.get_by_role("status").filter(has_text="Stop: done")).to_be_visible()
        assert not query.isActive
        expect(page.get_by_role("button", name="Apply")).to_have_count(0)
        for place in ("graph", "checkpoints", "snapshots", "exceptions"):
            tab.go(f"#/queries/{query.id}/{place}")
            expect(page.locator("section.panel").first).to_be_visible()
            assert_fit(page)
    finally:
        query.stop()
    assert json.dumps(query.id) in Client(running.server.url).get("/api/v1/queries").text
