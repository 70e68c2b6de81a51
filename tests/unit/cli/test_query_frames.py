"""Frames of ``penstock query watch``: text, rates between two polls, and a service that restarts."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from penstock.cli.query import sampling
from penstock.cli.query.frames import frame
from penstock.cli.query.sampling import Sampler
from penstock.cli.query.service import service_at
from penstock.cli.query.watching import watched
from penstock.cli.texts import exact_text, rate_text, short_vertex, time_text
from tests.support.cli.calling import query
from tests.support.cli.fake_service import ID, QUERY, FakeService, Reply, fake_service, query_document

NAMES = ["Parquet source -> Filter x -> PartialAggregate (key)", "Aggregate (key) -> Sink [noop]"]


def figures(index: int, rows: int, busy_ms: float, backpressured_ms: float, idle_ms: float) -> dict[str, Any]:
    return {
        "index": index, "rows_in": rows, "rows_out": rows // 2, "busy_ms": busy_ms,
        "backpressured_ms": backpressured_ms, "idle_ms": idle_ms, "input_queued_bytes": 1 << 20,
        "output_queued_bytes": 512 << 10, "recovered_rows_left": 0, "watermark_us": 1_600_000_000_000_000 + index,
    }  # fmt: skip


def checkpoint(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "checkpoint": number, "generation": 3, "state": "complete", "alignment": "auto", "requested": False,
        "label": "", "triggered_at_ms": int(time.time() * 1000) - 5000, "duration_ms": 85.0, "reason": "",
        "inflight_bytes": 3 << 20, "state_bytes": 4 << 10, "state_total_bytes": 5 << 30, **changes,
    }  # fmt: skip


class Watched:
    """The routes of one query that is watched."""

    def __init__(self, service: FakeService) -> None:
        self.service = service
        self.query = query_document()
        self.graph: dict[str, Any] = {"generation": 3, "parallelism": 2, "vertices": [], "edges": []}
        self.tell(0, 0.0, 0.0, 0.0)
        self.checkpoints = [
            checkpoint(12, state="pending"),
            checkpoint(11, label="mine", requested=True),
            *(checkpoint(number) for number in range(10, 0, -1)),
        ]
        restart = {
            "failed_generation": 2, "generation": 3, "cause": "slot 0 was lost\nmore", "restored_from": "chk-9",
            "detected_at_ms": int(time.time() * 1000) - 30_000, "duration_ms": 512.0,
        }  # fmt: skip
        self.exceptions: dict[str, Any] = {"failure": None, "restarts": [restart]}
        service.routes |= {
            "GET /api/v1/queries": lambda _: Reply({"queries": [self.query]}),
            f"GET {QUERY}": lambda _: Reply(self.query),
            f"GET {QUERY}/graph": lambda _: Reply(self.graph),
            f"GET {QUERY}/checkpoints": lambda _: Reply({"checkpoints": self.checkpoints, "next": None}),
            f"GET {QUERY}/exceptions": lambda _: Reply(self.exceptions),
        }

    def tell(self, rows: int, busy_ms: float, backpressured_ms: float, idle_ms: float, vertices: int = 2) -> None:
        """The same of both subtasks of every vertex."""
        self.graph["vertices"] = [
            {
                "id": number,
                "name": NAMES[number % 2],
                "operators": [],
                "subtasks": [figures(index, rows, busy_ms, backpressured_ms, idle_ms) for index in range(2)],
            }
            for number in range(vertices)
        ]

    def sampler(self) -> Sampler:
        self.now_s = 100.0
        return Sampler(service_at(self.service.url), ID, lambda: self.now_s)


@pytest.fixture
def seen() -> Iterator[Watched]:
    with fake_service() as service:
        yield Watched(service)


def text_of(sampler: Sampler, width: int = 80, height: int | None = None, notice: str = "") -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(frame(sampler.take(), width, height, notice))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_frame_has_everything_on_80_columns(seen: Watched) -> None:
    sampler = seen.sampler()
    sampler.take()
    seen.tell(20_000, 500.0, 250.0, 250.0)
    lines = text_of(sampler)
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for part in [
        "sums (5b0c1f2e)  generation 3  parallelism 2  restarts 1", "running: Processing new data",
        "watermark 2020-09-13 12:26:40  epoch 1,234 committed  3.0 MiB in flight",
        "checkpoints: every 1s, auto; 1,234 complete, 1 failed",
        " s ago, back after 512 ms, from chk-9: slot 0 was lost",
    ]:  # fmt: skip
        assert part in text, text
    source = next(line for line in lines if line.startswith("Parquet"))
    assert re.search(r"40\.0k +20\.0k +██████▒▒▒··· +50% +25% +3\.0 MiB", source)
    assert re.search(r"^checkpoint +state +age +took +captured +written +all state", text, re.MULTILINE)
    assert re.search(r"^11 mine auto +complete +\d s +85 ms +3\.0 MiB +4\.0 KiB +5\.0 GiB", text, re.MULTILINE)
    assert re.search(r"^12 auto +pending +\d s +85 ms +- +- +-", text, re.MULTILINE)
    assert "2020-09-13 12:26:40" in next(line for line in text_of(sampler, 130) if line.startswith("Aggregate"))


@pytest.mark.parametrize("holder", ["source", "consumer"])
def test_event_time_that_a_silent_subtask_holds_is_not_shown_as_advancing(seen: Watched, holder: str) -> None:
    sampler = seen.sampler()
    seen.graph["edges"] = [{"producer": 0, "consumer": 1, "kind": "hash", "keys": ["key"]}]
    source, consumer = (vertex["subtasks"] for vertex in seen.graph["vertices"])
    source[1]["watermark_us"] = None
    for subtask in consumer:
        subtask["watermark_us"] = None if holder == "source" else subtask["watermark_us"]
    text = text_of(sampler, 130)
    head = next(line for line in text if "epoch 1,234 committed" in line)
    assert ("2020-09-13" in head) == (holder == "consumer")
    assert "2020-09-13" not in next(line for line in text if line.startswith("Parquet"))


def test_a_frame_keeps_to_the_height_of_the_window(seen: Watched) -> None:
    seen.tell(0, 0.0, 0.0, 0.0, vertices=40)
    sampler = seen.sampler()
    for height in (16, 24, 30, 48):
        lines = text_of(sampler, 80, height, "a notice")
        assert len(lines) <= height, f"{height}: {lines}"
        shown = sum(line.startswith(("Parquet", "Aggregate")) for line in lines)
        assert f"and {40 - shown} more, for which the window is too small" in "\n".join(lines)
    assert sum(line.startswith(("Parquet", "Aggregate")) for line in text_of(sampler)) == 40
    seen.tell(0, 0.0, 0.0, 0.0)
    assert len(text_of(sampler, 80, 24)) <= 24
    assert "more, for which" not in "\n".join(text_of(sampler, 80, 24))


def test_rates_are_of_the_time_between_two_looks(seen: Watched) -> None:
    sampler = seen.sampler()
    seen.tell(1_000_000, 1000.0, 0.0, 0.0)
    assert sampler.take().rates == {}
    seen.tell(1_000_100, 1100.0, 300.0, 600.0)
    rate = sampler.take().rates[0]
    assert (rate.rows_in, rate.busy, rate.backpressured) == (200.0, 0.1, 0.3)  # both subtasks, a second each
    seen.now_s += 1
    assert sampler.take().rates[0] == rate, "nothing new was told, and it is not old yet"


def test_subtasks_that_tell_nothing_new_move_no_rows(seen: Watched) -> None:
    sampler = seen.sampler()
    seen.tell(0, 0.0, 0.0, 0.0)
    sampler.take()
    seen.tell(100, 500.0, 0.0, 500.0)
    idle = seen.graph["vertices"][0]["subtasks"][1]
    idle |= figures(1, 0, 0.0, 0.0, 0.0) | {"input_queued_bytes": 0, "output_queued_bytes": 0}
    seen.now_s += sampling.QUIET_S + 0.1
    rate = sampler.take().rates[0]
    assert (rate.rows_in, rate.busy, rate.backpressured) == (100.0, 0.25, 0.0), "one of two is idle"
    seen.now_s += sampling.QUIET_S + 0.1
    rate = sampler.take().rates[1]
    assert (rate.rows_in, rate.busy) == (0.0, None), "something waits in front of both: a long step, perhaps"
    last = next(line for line in text_of(sampler) if line.startswith("Aggregate"))
    assert last.split()[3:] == ["0", "0", "-", "-", "-", "3.0", "MiB"]


def test_a_new_generation_counts_from_its_beginning(seen: Watched) -> None:
    sampler = seen.sampler()
    seen.tell(1_000, 1000.0, 0.0, 0.0)
    sampler.take()
    seen.graph["generation"] = 4
    seen.tell(2_000, 3000.0, 0.0, 0.0)
    assert sampler.take().rates == {}
    seen.tell(2_500, 3500.0, 0.0, 500.0)
    assert sampler.take().rates[1].rows_in == 1000.0


def test_one_frame_where_stdout_is_no_terminal(seen: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "SETTLE_S", 0.0)
    for words in ([], ["--once"]):
        code, out, err = query("watch", "sums", *words, PENSTOCK_URL=seen.service.url)
        assert (code, err) == (0, "")
        assert "Aggregate > Sink" in out
        assert "\x1b" not in out
    told = json.loads(query("watch", "sums", "--json", PENSTOCK_URL=seen.service.url)[1])
    assert (told["id"], told["rates"], len(told["checkpoints"])) == (ID, {}, 12)
    seen.query = query_document(state="failed", error="FunctionError", message="Terminated")
    seen.exceptions["failure"] = {"kind": "FunctionError", "text": "user code raised\nTraceback"}
    code, out, _ = query("watch", "sums", PENSTOCK_URL=seen.service.url)
    assert code == 1
    assert "FunctionError: user code raised\n" in out


def test_a_service_that_goes_away_and_comes_back_is_watched_on(seen: Watched) -> None:
    console = Console(width=80, height=24, file=io.StringIO(), force_terminal=True, color_system=None)
    screens: list[str] = []

    def step() -> None:
        whole = console.file.getvalue()  # type: ignore[attr-defined]
        screens.append(whole[sum(map(len, screens)) :])
        if len(screens) == 2:
            seen.service.end()
        elif len(screens) == 4:
            seen.query = query_document(generation=7, id=ID)
            seen.service.begin()
        elif len(screens) == 6:
            seen.query = query_document(state="stopped", message="Stopped")

    last = watched(console, seen.sampler(), step)
    assert last.query.status.state == "stopped"
    assert ["as it was" in screen for screen in screens] == [False, False, True, True, False, False]
    assert "generation 3" in screens[3], "the last that was told stays"
    assert "generation 7" in screens[4]
    after = console.file.getvalue().rpartition("\x1b[?1049l")[2]  # type: ignore[attr-defined]
    assert "stopped: Stopped" in after, "the last frame stays where the screen was left"


def test_ctrl_c_ends_watching_in_peace(seen: Watched) -> None:
    console = Console(width=80, height=24, file=io.StringIO(), force_terminal=True, color_system=None)

    def interrupted() -> None:
        raise KeyboardInterrupt

    assert watched(console, seen.sampler(), interrupted).query.id == ID


def test_numbers_are_short() -> None:
    rates = {0: "0", 0.26: "0.3", 9.96: "10", 950: "950", 999.6: "1.0k", 12_345: "12.3k", 99_960: "100k", 4.2e9: "4.2G"}
    assert {value: rate_text(value) for value in rates} == rates
    times = {0.4: "0 ms", 85: "85 ms", 999.6: "1.0 s", 65_000: "65.0 s", 150_000: "2.5 min", 9e6: "2.5 h"}
    assert {value: time_text(value) for value in times} == times
    exact = {1: "1ms", 1500: "1500ms", 10_000: "10s", 120_000: "2m", 7_200_000: "2h"}
    assert {value: exact_text(value) for value in exact} == exact
    assert short_vertex("Watermark (at, 1 hour) -> Project [a] -> Filter x") == "Watermark > Filter"
    assert short_vertex("Project [a]") == "Project"
