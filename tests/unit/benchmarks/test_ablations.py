"""Ablations: that each replacement replaces what it says, and only as long as it is to; and what the report makes of
the figures. Without Spark."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.reports import ablations as report_ablations
from benchmarks.reports.ablations import DURATION, LINES, RATE, WRITTEN, Line
from benchmarks.suites import ablation_variants, ablations
from benchmarks.suites.ablation_variants import NOTHING, REPLACEMENTS, run_with
from benchmarks.suites.ablations import CHECKPOINTS, RATES, TIME_OUTS
from penstock.model.elements import Alignment, Barrier, Buffer
from penstock.model.ids import BufferId, ChannelId
from penstock.model.manifest import SectionRef
from penstock.network.element_codec import DataDecoder, DataEncoder
from penstock.network.frames import Message
from penstock.protocol.gate import WatermarkRose
from penstock.protocol.input import RowRange
from penstock.protocol.output import OutputChannel, Outputs
from penstock.snapshots.format.sections import SectionWriter, read_content
from penstock.snapshots.store.stores import store_at
from penstock.snapshots.writing.base_index import BaseIndex, BaseIndexes
from penstock.snapshots.writing.inflight_index import DurableRange, InflightIndex
from penstock.worker import slicing
from penstock.worker.payloads import ARROW
from penstock.worker.slicing import FIRST_ROWS, SliceSizer
from simulator.oracles.promptness import Promptness
from simulator.schedule import Task, run_task

CHANNEL = ChannelId(0, 0, 1)
ROWS = pa.RecordBatch.from_pydict({"key": list(range(2_000)), "payload": ["the same again"] * 2_000})
BARRIER = Barrier(1, Alignment.UNALIGNED)


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    yield
    run_with(NOTHING)


def outputs() -> Outputs:
    found = Outputs([OutputChannel(CHANNEL, 1, 1 << 20, 10.0, ARROW)], 1 << 20)
    found.add(CHANNEL, ROWS, 0.0)
    return found


# -- what takes the mechanisms' place ---------------------------------------------------------------------------------


def test_a_barrier_behind_the_queue_captures_nothing_and_comes_last() -> None:
    cases = {NOTHING: (2_000, [Barrier, Buffer]), "barriers stay behind the queues": (0, [Buffer, Barrier])}
    for name, (captured, order) in cases.items():
        run_with(name)
        one = outputs()
        assert sum(part.rows for part in one.overtake(BARRIER)) == captured
        assert [type(element) for _, element in one.pump(0.0)] == order


def test_spilling_writes_every_buffer_once_as_it_enters_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ablation_variants.tempfile, "TemporaryFile", lambda: (tmp_path / "spilled").open("wb"))
    run_with("every buffer is spilled")
    for _ in range(3):
        one = outputs()
        one.overtake(BARRIER)
        one.append(replace(BARRIER, checkpoint=2))  # nothing is sealed again
    run_with(NOTHING)
    outputs().overtake(BARRIER)
    assert (tmp_path / "spilled").read_bytes() == ROWS.serialize().to_pybytes() * 3


def test_rows_in_flight_are_written_again_and_tables_are_still_referred_to() -> None:
    piece = DurableRange(BufferId(1, CHANNEL, 0), 0, 1, 8, SectionRef("a", 0, 8, "i", "x"), 0, (0, 127))
    tables: Any = {"table": "where it lies"}
    indexes = BaseIndexes()
    indexes.add(1, BaseIndex(InflightIndex([piece]), tables))
    written = "all rows in flight are written"
    for name, known in ((NOTHING, 1), (written, 0), (f"{written} with lz4", 0)):
        run_with(name)
        assert len(indexes.for_base(1).inflight._pieces) == known
        assert indexes.for_base(1).tables == tables


def test_a_slice_of_a_whole_buffer_is_one_buffer_and_heeds_what_comes_behind() -> None:
    queued = [RowRange(CHANNEL, ROWS, 2_000, "1"), RowRange(CHANNEL, ROWS, 2_000, "2"), WatermarkRose(7)]
    gate: Any = SimpleNamespace(poll=lambda rows, now: queued.pop(0))
    run_with("slices of whole buffers")
    gathered = [slicing.gather(gate, 1, 0.0) for _ in range(3)]
    assert [len(ranges) for ranges, _ in gathered] == [1, 1, 0]
    assert [behind for _, behind in gathered] == [None, None, WatermarkRose(7)]


def test_fixed_slices_do_not_grow() -> None:
    for name, rows in ((NOTHING, FIRST_ROWS * 4), ("slices of 20 rows", 20)):
        run_with(name)
        sizer = SliceSizer(1 << 20)
        sizer.observe(FIRST_ROWS, 0.1, 0)
        assert sizer.rows == rows


def test_compressed_buffers_arrive_as_they_were_sent() -> None:
    sizes = {}
    for name in (NOTHING, "links compress with lz4"):
        run_with(name)
        decoder = DataDecoder(1, 0)
        for kind, parts in DataEncoder().element(0, Buffer(BufferId(3, CHANNEL, 5), ROWS, 70, 80, 90)):
            body = b"".join(bytes(part) for part in parts)
            received: Any = decoder.decode(Message(kind, 0, pa.py_buffer(body)))
        sizes[name] = len(body)
        buffer = received.element
        assert (buffer.id, buffer.cost, buffer.backlog, buffer.following) == (BufferId(3, CHANNEL, 5), 70, 80, 90)
        assert buffer.payload.equals(ROWS)
    assert sizes["links compress with lz4"] < sizes[NOTHING] / 2


def test_compressed_sections_are_read_as_they_were_written(tmp_path: Path) -> None:
    store = store_at(str(tmp_path), None)
    lengths = {}
    for number, name in enumerate((NOTHING, "all rows in flight are written with lz4")):
        run_with(name)
        with SectionWriter(store, f"data/{number}") as writer:
            ref = writer.append("one", ROWS.schema, [(ROWS, None)])
        assert read_content(store, ref).batches[0].equals(ROWS)
        lengths[name] = ref.length
    assert lengths["all rows in flight are written with lz4"] < lengths[NOTHING] / 2


def test_log_lines_are_of_about_a_hundred_bytes_and_no_two_rows_the_same() -> None:
    lines = ablations.AblatedReader(ablations.TEXT)._batch(ablations.np.random.default_rng(1)).column("payload")
    texts = lines.to_pylist()
    assert len(texts) == 8_192
    assert len(set(texts)) > 8_000
    assert 95 <= sum(map(len, texts)) / len(texts) <= 110


SEEDS = range(3)


def failing_oracles() -> list[str]:
    results = [run_task(Task(seed)) for seed in SEEDS]
    return [result.failure.oracle for result in results if result.failure is not None]


@pytest.mark.simulation
def test_barriers_behind_the_queues_are_late_and_otherwise_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedules with faults, which restore from what was captured: nothing is lost or twice there."""
    run_with("barriers stay behind the queues")
    assert set(failing_oracles()) == {"progress"}
    monkeypatch.setattr(Promptness, "step_ended", lambda self: None)
    assert failing_oracles() == []


@pytest.mark.simulation
@pytest.mark.parametrize("name", ["all rows in flight are written", "slices of whole buffers", "slices of 20 rows"])
def test_other_replacements_keep_every_promise(name: str) -> None:
    run_with(name)
    assert failing_oracles() == []


# -- forms and report -------------------------------------------------------------------------------------------------


def test_every_form_has_a_replacement_that_there_is_and_every_replacement_is_measured() -> None:
    used = {form.replacement for form in (*RATES.values(), *CHECKPOINTS.values())}
    assert used == set(REPLACEMENTS)


def cell(duration_ms: float, written_bytes: int = 1_000_000, unaligned: bool = True) -> dict[str, Any]:
    return {
        "duration_ms": duration_ms,
        "written_bytes": written_bytes,
        "inflight_bytes": 2_000_000,
        "writing_ms": duration_ms / 2,
        "unaligned": unaligned,
    }


def result() -> dict[str, Any]:
    """Two rounds of all, of which everything is alike."""
    facts = {"date": "2026-01-01", "cores": 2, "python": "3.11", "pyspark": "4.3", "pyarrow": "18"}
    pair = {"none": [2e6, 2e6], "process": [1e6, 1e6]}
    size = {"rows": 1_000, "plain": 16_000, "lz4": 4_000}
    return {
        "machine": facts,
        "rows_per_second": {name: [8e6, 8e6] for name in RATES},
        "checkpoints": {name: [[cell(90), cell(30)], [cell(90), cell(30)]] for name in CHECKPOINTS},
        "isolation": {"rows_per_second": pair, "checkpoint_ms": {"none": [900.0, 1_000.0], "process": [30.0, 20.0]}},
        "batch_bytes": {"numbers": size, "text": size},
    }


def test_a_gain_is_how_many_times_better_it_is_with_the_mechanism_round_by_round() -> None:
    found = result()
    found["rows_per_second"] |= {"fast": [8e6, 6e6], "slow": [4e6, 2e6]}
    found["checkpoints"] |= {"short": [[cell(99), cell(10)]], "long": [[cell(99), cell(40)]]}
    assert report_ablations.gains(Line("", RATE, "fast", "slow", ""), found) == [2.0, 3.0]
    assert report_ablations.gains(Line("", DURATION, "short", "long", ""), found) == [4.0]


def test_bytes_written_are_compared_by_their_mean_and_nothing_is_infinitely_better_than_something() -> None:
    found = result()
    some = [cell(1, written) for written in (9_000_000, 0, 0, 3_000_000)]
    found["checkpoints"] |= {"none": [[cell(1, 9), cell(1, 0)]], "some": [some], "all": [[cell(1), cell(1, 4_000_000)]]}
    assert report_ablations.gains(Line("", WRITTEN, "some", "all", ""), found) == [4.0]
    assert report_ablations.gains(Line("", WRITTEN, "none", "all", ""), found) == [math.inf]


def test_it_pays_or_costs_only_if_every_round_says_so() -> None:
    rounds = [1.05, 3], [0.5, 0.95], [1.04, 3], [0.9, 1.2], [3.0]
    assert [report_ablations.verdict(one) for one in rounds] == [
        "pays",
        "costs",
        "neither",
        "neither",
        "one round only",
    ]


def test_the_first_checkpoint_counts_only_where_it_is_aligned() -> None:
    assert report_ablations.later([cell(9), cell(1)]) == [cell(1)]
    assert report_ablations.later([cell(9)]) == [cell(9)]
    aligned = [cell(9, unaligned=False), cell(1)]
    assert report_ablations.later(aligned) == aligned


def test_the_page_has_every_line_and_every_time_out() -> None:
    found = result()
    found["checkpoints"]["time-out never, slow sink"] = [[cell(5_000, 0, False), cell(7_000, 0, False)]]
    found["rows_per_second"]["text, links compress with lz4"] = [4e6, 4e6]
    page = report_ablations.ablations(found)
    assert "| functions in a process of their own | checkpoint, ms, function that holds the GIL | 25.00 (20.00" in page
    assert "| never | 6000 (5000 to 7000) | 0.00 | 0 of 2 | 30 (30 to 30) | 1.00 | 2 of 2 |" in page
    assert "integers become 4.0 times smaller and are no slower even on loopback" in page
    # 4 M rows a second of 16 bytes, a quarter of them each way
    assert "log lines become 4.0 times smaller, which outweighs the CPU on a link below 0.1 Gbit/s" in page
    assert "Spilling wrote 128 MB a second" in page
    assert "wrote 1 MB and took 90 ms, of which 45 ms were spent writing" in page
    assert sum(line.shows in page for line in LINES) == len(LINES)
    assert all(f"\n| {name}" in page for name in TIME_OUTS)
