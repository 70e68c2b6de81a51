"""The driver of a large job: what is driven is a whole life of checkpoints, and what is told of it was found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.reports import scaling as report_scaling
from benchmarks.suites import coordinator, scaling
from benchmarks.suites.coordinator import Driver, exponent, until_logged_ms
from benchmarks.suites.synthetic_slots import SHAPES, VERTICES, Slots, channels
from penstock.model.manifest import SnapshotMetadata
from penstock.network.messages import ToDriver
from penstock.snapshots.catalog import metadata_path
from penstock.snapshots.store import store


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_a_snapshot_that_the_catalog_takes_and_retention_collects(shape: str, tmp_path: Path) -> None:
    driver = Driver(SHAPES[shape], 2, tmp_path)
    driver.start()
    for _ in range(6):
        driver.checkpoint()
        driver.core.check_invariants()
    assert driver.refused == ""
    assert driver.core.coordinator.committed_epoch == 6
    assert len(driver.effects.view.snapshots) == coordinator.RETAINED
    metadata = msgspec.json.decode((tmp_path / metadata_path(6)).read_bytes(), type=SnapshotMetadata)
    subtasks = [subtask for slot in metadata.slots for subtask in slot.subtasks]
    behind = [subtask for subtask in subtasks if subtask.vertex > 0]
    assert len(subtasks) == 2 * VERTICES
    assert all(len(subtask.states) == SHAPES[shape].deltas + 1 for subtask in behind)
    assert sum(len(s.channel_watermarks) for s in subtasks) == (channels(2) if SHAPES[shape].watermarks else 0)
    assert sum(len(s.inflight) for s in subtasks) == (channels(2) if SHAPES[shape].inflight else 0)
    assert [len(subtask.splits) for subtask in subtasks if subtask.vertex == 0] == [1, 1]


def test_what_slots_say_is_what_the_drivers_decoder_reads(tmp_path: Path) -> None:
    slots = Slots(tmp_path, SHAPES["in flight"], 3, {})
    said = [msgspec.msgpack.decode(data, type=ToDriver) for both in slots.say(7) for data in both]
    assert [type(message).__name__ for message in said] == ["SlotMetrics", "AcknowledgeCheckpoint"] * 3
    assert [message.manifest.slot for message in said[1::2]] == [0, 1, 2]


def test_metadata_that_is_too_large_is_told_as_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.snapshots.catalog.MAX_READ_BYTES", 1_000)
    driver = Driver(SHAPES["state"], 1, tmp_path)
    driver.start()
    driver.checkpoint()
    assert "more than 1000" in driver.refused
    assert driver.metadata_bytes == 0


def test_what_the_store_needs_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock takes a second, so parts add up to the looks between their ends."""
    looks = iter(range(1_000_000))
    driver = Driver(SHAPES["state"], 1, tmp_path)
    monkeypatch.setattr("time.thread_time", lambda: float(next(looks)))
    with driver._part("metadata"):
        driver.store.size("nothing")
    assert driver.cpu_s == {"store": 1.0, "metadata": 2.0}
    with driver._part("collection"):
        driver.store.size("nothing")
    assert driver.cpu_s == {"store": 1.0, "metadata": 2.0, "collection": 3.0}


def test_growth_is_the_exponent() -> None:
    assert exponent((10, 3.0), (1_000, 300.0)) == pytest.approx(1.0)
    assert exponent((10, 3.0), (100, 300.0)) == pytest.approx(2.0)


def test_a_case_of_its_own_process_is_json() -> None:
    code = "import sys, benchmarks.suites.coordinator as c; print(sorted(c.case('state', 1, 1)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "cpu_ms" in said
    assert "kept_bytes" in said


# -- what is told -----------------------------------------------------------------------------------------------------


def spent(**parts: float) -> dict[str, float]:
    return {"messages": 1.0, "metadata": 2.0, "collection": 50.0, "commit": 5.0, **parts}


def case(ms: float, refused: str = "") -> dict[str, Any]:
    return {
        "parallelism": 1,
        "channels": 9,
        "cpu_ms": [spent(machine=ms - 3.0)] * 3,
        "metadata_bytes": 0 if refused else 40_000,
        "refused": refused,
        "peak_bytes": 2_000_000,
        "kept_bytes": 1_000.0,
    }


def cell(scale: float) -> dict[str, Any]:
    return {
        "channels": 3,
        "queued_bytes": 10,
        "gate_bytes": [524_288, 786_432],
        "duration_ms": [20.0 * scale, 30.0 * scale],
        "inflight_bytes": [1_000_000 * scale] * 2,
        "raw_write_ms": [5.0, 5.0],
        "metadata_bytes": [4_000 * scale] * 2,
        "slot_bytes": {"own": [50_000_000] * 2, "resident": [200_000_000] * 2},
        "driver_cpu_ms": 4.0 * scale,
        "driver_idle_cores": 0.01,
        "slot_cores": 0.3,
        "busy_cores": 0.4,
    }


def test_ratios_are_of_medians_over_all_rounds() -> None:
    found = scaling.ratios([cell(1.0)] * 2, [cell(3.0), cell(3.0)])
    assert found == {"duration_ms": 3.0, "inflight_bytes": 3.0, "raw_write_ms": 1.0, "metadata_bytes": 3.0,
                     "slot_own_bytes": 1.0, "driver_cpu_ms": 3.0}  # fmt: skip


FACTS = {"date": "2026-01-01", "cores": 2, "python": "3.11", "pyspark": "4.3", "pyarrow": "18"}


def working(rate: float, cores: float) -> dict[str, float]:
    return {"rows_per_second": rate, "slot_cores": cores, "busy_cores": cores + 0.1}


def test_the_section_has_gates_against_their_budget_and_what_more_slots_give() -> None:
    measured = {"1": [cell(1.0)], "2": [cell(2.0)]}
    result = {
        "machine": FACTS,
        "gate_budget_bytes": 1 << 20,
        "parallelism": measured,
        "ratio_to_1": {number: scaling.ratios(measured["1"], cells) for number, cells in measured.items()},
        "working": {"1": [working(10e6, 1.0)] * 2, "2": [working(18e6, 2.0)] * 2},
    }
    page = report_scaling.scaling(result)
    assert "| 2 | 3 | 50 (40 to 60) | **2.0** | 5 (5 to 5) | 1.0 | 2.0 (2.0 to 2.0) | 2.0 | 0.3 (0.4) |" in page
    assert "| 2 | 0.66 (0.52 to 0.79) | **0.75** | 8 (8 to 8) | 2.0 | 50 (50 to 50) | 1.00 | 200 |" in page
    assert "| 2 | 18.0 (18.0 to 18.0) | 1.80 | **0.90** | 2.0 | 2.1 | 9.0 (9.0 to 9.0) | 0.90 |" in page


def test_the_driver_of_a_large_job_has_growth_and_what_was_refused() -> None:
    shapes = {"state": {"10": case(5.0), "100": case(500.0), "1000": case(5_000.0, "too large")}}
    page = report_scaling.coordinator({"machine": FACTS, "shapes": shapes})
    assert "| state | 100 | 9 | 500.0 (500.0 to 500.0) | 5000 | 10.00 | 2.00 | 0.04 | 0.4 | 2 | 0.00 |" in page
    assert "5000.0 (5000.0 to 5000.0) **refused** | 5000 | 10.00 | 1.00 |  |" in page
    assert f"{store.MAX_READ_BYTES >> 20} MiB; a checkpoint with more fails. It did (state, 1,000: too large)." in page


def test_a_checkpoint_takes_until_its_entry_is_logged() -> None:
    assert until_logged_ms(spent(machine=4.0)) == 7.0
