"""The web UI over made-up facts that a test moves on by hand: what is shown is what was told, to the digit."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from penstock.config import OPTION_NAMES, parse_options
from penstock.coordinator.view import ExecutionState, RequestedState
from penstock.model.metrics import SubtaskReport
from penstock.rest.server import RestServer
from penstock.snapshots.history.segment_writer import SegmentWriter
from penstock.snapshots.store.store import LocalStore
from tests.support.rest.made_up_query import WATERMARK_US, MadeUpQuery
from tests.support.rest.rest_client import Client
from tests.support.snapshots.history_kit import entry
from tests.support.ui.browser import OpenTab, assert_fit

SECOND_US = 1_000_000


def figures(index: int, rows: int, busy: float, blocked: float, idle: float, watermark: int | None) -> SubtaskReport:
    return SubtaskReport(
        vertex=0,
        index=index,
        rows_in=rows,
        rows_out=rows * 4 // 5,
        busy_ms=busy,
        backpressured_ms=blocked,
        idle_ms=idle,
        input_queued_bytes=0,
        output_queued_bytes=0,
        recovered_rows_left=0,
        watermark_us=watermark,
    )


def tell(query: MadeUpQuery, rows: int, times: tuple[float, float, float], *watermarks: int | None) -> None:
    """Set the metrics of both subtasks of the first vertex."""
    for index, watermark in enumerate(watermarks):
        query.told[0, index] = figures(index, rows, *times, watermark)


def test_a_vertex_has_the_rates_between_two_looks_and_the_least_watermark(
    open_tab: OpenTab, server: RestServer, made_up: list[MadeUpQuery]
) -> None:
    query = MadeUpQuery(vertices=2, parallelism=2)
    made_up.append(query)
    tell(query, 100_000, (2000.0, 1000.0, 7000.0), WATERMARK_US, WATERMARK_US + 60 * SECOND_US)
    tab = open_tab(server.url)
    page = tab.go(f"#/queries/{query.query_id}/graph")
    box = page.locator(".vertex").first
    expect(box).to_contain_text("in 20 k/s   out 16 k/s")  # means since the Generation began
    expect(box).to_contain_text("busy 20 % · blocked 10 %")
    expect(box).to_contain_text("watermark 2025-11-23 12:13:20")
    tell(query, 100_150, (2100.0, 1300.0, 7600.0), WATERMARK_US + 5 * SECOND_US, WATERMARK_US + 60 * SECOND_US)
    tab.ask()
    expect(box).to_contain_text("in 300/s   out 240/s")  # 150 rows and 120 of each, in its second
    expect(box).to_contain_text("busy 10 % · blocked 30 %")
    expect(box).to_contain_text("watermark 2025-11-23 12:13:25")
    row = page.get_by_role("region", name="Vertices, from the sources to the sinks").locator("tbody tr").first
    assert row.locator("td").all_inner_texts()[2:] == ["10 %", "10 %", "30 %", "300/s", "240/s", "2"]
    box.click()
    subtask = page.get_by_role("region", name="Subtasks", exact=True).locator("tbody tr").nth(1)
    expect(subtask).to_contain_text("2025-11-23 12:14:20")
    expect(subtask).to_contain_text("150/s")
    tell(query, 100_150, (2100.0, 1300.0, 7600.0), WATERMARK_US + 5 * SECOND_US, None)
    tab.ask()
    expect(box).to_contain_text("no watermark")
    expect(box).to_contain_text("in 300/s   out 240/s")  # nothing new was told


def test_a_query_on_its_way_says_what_it_does(
    open_tab: OpenTab, server: RestServer, made_up: list[MadeUpQuery]
) -> None:
    query = MadeUpQuery(vertices=7, parallelism=2, requested=RequestedState(4, 10_000, "auto"))
    made_up.append(query)
    tab = open_tab(server.url)
    page = tab.go(f"#/queries/{query.query_id}/configuration")
    notice = page.get_by_role("status").filter(has_text="On its way")
    status = Client(server.url).get(f"/api/v1/queries/{query.query_id}").json["status"]
    assert not status["converged"]
    expect(notice).to_contain_text(status["message"])
    expect(page.locator(".query-head")).to_contain_text("2 → 4")
    query.parallelism = 4
    tab.ask()
    expect(notice).to_have_count(0)


def test_checkpoints_of_another_run_are_told_apart(
    open_tab: OpenTab, server: RestServer, made_up: list[MadeUpQuery], tmp_path: Path
) -> None:
    before = 40
    SegmentWriter(LocalStore(tmp_path)).append([entry(number, generation=2) for number in range(1, before + 1)])
    query = MadeUpQuery(
        vertices=2, parallelism=2, checkpoints=70, first_generation=3, earlier_run=before, location=str(tmp_path)
    )
    made_up.append(query)
    tab = open_tab(server.url)
    page = tab.go(f"#/queries/{query.query_id}/checkpoints")
    rows = page.get_by_role("region", name="Checkpoints, newest first").locator("tbody tr")
    expect(rows).to_have_count(50)
    assert generations(page) == [*["3"] * 30, *["2 (earlier run)"] * 20]
    expect(page.get_by_text("20,000 newest of all runs")).to_be_visible()
    heads = page.locator("thead th").all_inner_texts()
    assert "Captured" in heads, "recovered rows have no part in the bytes"
    assert "In flight" not in heads
    assert_fit(page)
    tab.shot("checkpoints-of-two-runs")
    rows.nth(29).get_by_role("link").click()
    expect(page.get_by_role("heading", name="Checkpoint 41")).to_be_visible()
    expect(page.locator("details.breakdown").first).to_contain_text(query.shape().vertices[0].name)
    tab.go(f"#/queries/{query.query_id}/checkpoints/40")
    expect(page.get_by_role("heading", name="Checkpoint 40")).to_be_visible()
    expect(page.get_by_text("2 (earlier run)")).to_be_visible()
    expect(page.get_by_text("Vertices are called by number")).to_be_visible()
    expect(page.locator("details.breakdown strong")).to_have_text(["vertex 0"])


def generations(page: Page) -> list[str]:
    heads = page.locator("thead th").all_inner_texts()
    return page.locator(f"tbody td:nth-child({heads.index('Generation') + 1})").all_inner_texts()


def test_every_option_is_shown_with_when_it_can_be_changed(
    open_tab: OpenTab, server: RestServer, made_up: list[MadeUpQuery]
) -> None:
    said = {"parallelism": "2", "state.backend": "rocksdb", "checkpoint.interval": "10s", "snapshots.retained": "5"}
    query = MadeUpQuery(
        vertices=7, parallelism=2, options=parse_options(said), requested=RequestedState(2, 4_500, "auto")
    )
    made_up.append(query)
    tab = open_tab(server.url)
    page = tab.go(f"#/queries/{query.query_id}/configuration")
    own = page.get_by_role("region", name="Options that differ from their defaults").locator("tbody tr")
    expect(own).to_have_count(4)
    assert [" ".join(row.split()) for row in own.all_inner_texts()] == [
        "checkpoint.interval 4500ms started with 10s 10s now, on this page",
        "parallelism 2 none now, on this page",
        "snapshots.retained 5 3 at its next start",
        "state.backend rocksdb memory at its next start",
    ]
    others = page.get_by_role("region", name="Options at their defaults").locator("tbody tr")
    expect(others.first).to_be_hidden()
    page.get_by_text(f"{len(OPTION_NAMES) - 4} options at their defaults").click()
    expect(others).to_have_count(len(OPTION_NAMES) - 4)
    expect(others.filter(has_text="maxParallelism")).to_contain_text("never at this location")
    assert_fit(page)
    query.state = ExecutionState.STOPPED
    tab.ask()
    expect(own.first).to_contain_text("at its next start")
