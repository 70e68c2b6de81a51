"""Project, filter, expand and watermark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.functions import BoundReference, Literal
from penstock.operators.batches import first_rows
from penstock.operators.expand import ExpandSpec
from penstock.operators.filter import FilterSpec
from penstock.operators.project import ProjectSpec
from penstock.operators.watermark import WatermarkSpec
from tests.support.operators.harness import UTC_STAMP, WINDOW, opened, rows_of, run, stored

SCHEMA = pa.schema([("keep", pa.bool_()), ("v", pa.int64())])
BATCH = pa.RecordBatch.from_pydict({"keep": [True, None, False, True], "v": [1, 2, 3, 4]}, schema=SCHEMA)
V = BoundReference(1, pa.int64())
MINUTE = 60_000_000


def test_project_evaluates_into_the_declared_schema() -> None:
    schema = pa.schema([("b", pa.int64()), ("one", pa.string())])
    spec = ProjectSpec(operator_id="p", name="p", output_schema=schema, expressions=(V, Literal("x", pa.string())))
    (out,) = run(opened(spec), [BATCH.slice(1)])
    assert out.schema == schema
    assert out.to_pydict() == {"b": [2, 3, 4], "one": ["x", "x", "x"]}


def test_project_to_no_columns_keeps_the_rows() -> None:
    spec = ProjectSpec(operator_id="p", name="p", output_schema=pa.schema([]), expressions=())
    (out,) = run(opened(spec), [BATCH])
    assert (out.num_rows, out.num_columns) == (4, 0)


def test_filter_keeps_what_is_true_in_order() -> None:
    spec = FilterSpec(operator_id="f", name="f", output_schema=SCHEMA, condition=BoundReference(0, pa.bool_()))
    operator = opened(spec)
    assert [row["v"] for row in rows_of(operator.process(BATCH))] == [1, 4]
    assert list(operator.process(BATCH.slice(1, 2))) == [], "an empty batch is not yielded"
    whole = BATCH.slice(3)
    assert next(operator.process(whole)) is whole


def test_filter_on_a_batch_without_columns() -> None:
    spec = FilterSpec(operator_id="f", name="f", output_schema=pa.schema([]), condition=Literal(False, pa.bool_()))
    assert list(opened(spec).process(BATCH.select([]))) == []


def test_expand_yields_every_projection_of_every_row_at_once() -> None:
    schema = pa.schema([("v", pa.int64()), ("n", pa.int32())])
    spec = ExpandSpec(
        operator_id="e",
        name="e",
        output_schema=schema,
        projections=tuple((V, Literal(n, pa.int32())) for n in (0, 1, 2)),
    )
    (out,) = opened(spec).process(BATCH)
    assert sorted((row["v"], row["n"]) for row in out.to_pylist()) == [(v, n) for v in (1, 2, 3, 4) for n in (0, 1, 2)]


def times(*values: int | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, UTC_STAMP)], names=["at"])


def watermark(kind: pa.DataType = UTC_STAMP, delay_us: int = MINUTE) -> WatermarkSpec:
    return WatermarkSpec(
        operator_id="w", name="w", output_schema=pa.schema([("at", kind)]), column=0, delay_us=delay_us
    )


def test_the_watermark_is_the_largest_time_less_the_delay_and_only_rises() -> None:
    operator = opened(watermark())
    assert operator.emitted_watermark() is None
    batch = times(5 * MINUTE, None, 2 * MINUTE)
    assert list(operator.process(batch)) == [batch]
    assert operator.emitted_watermark() == 4 * MINUTE
    list(operator.process(times(MINUTE)))
    assert operator.emitted_watermark() == 4 * MINUTE
    list(operator.process(times(None, None)))
    assert operator.emitted_watermark() == 4 * MINUTE


@pytest.mark.parametrize(("latest", "expected"), [(1_999, 1_000), (-1, -1_000), (-1_000, -1_000)])
def test_event_times_are_floored_to_milliseconds(latest: int, expected: int) -> None:
    operator = opened(watermark(delay_us=0))
    list(operator.process(times(latest)))
    assert operator.emitted_watermark() == expected


def test_a_window_counts_with_its_end() -> None:
    operator = opened(watermark(WINDOW, delay_us=0))
    batch = pa.RecordBatch.from_arrays([pa.array([{"start": 0, "end": MINUTE}, None], WINDOW)], names=["at"])
    list(operator.process(batch))
    assert operator.emitted_watermark() == MINUTE


def test_the_watermark_survives_a_restore_and_rises_when_sources_run_dry() -> None:
    operator = opened(watermark())
    list(operator.process(times(3 * MINUTE)))
    again = opened(watermark())
    again.restore(stored(operator.snapshot()))
    assert again.emitted_watermark() == 2 * MINUTE
    again.advance_generated(7 * MINUTE)
    again.advance_generated(6 * MINUTE)
    assert again.emitted_watermark() == 7 * MINUTE
    fresh = opened(watermark())
    fresh.restore(stored(opened(watermark()).snapshot()))
    assert fresh.emitted_watermark() is None


def test_first_rows_are_cut_by_bytes() -> None:
    texts = pa.record_batch({"s": ["x" * 10] * 1000 + ["x" * 100_000] * 10 + ["y"] * 1000})
    assert first_rows(texts, 3_000, 1 << 30) == (texts, texts.nbytes)
    assert first_rows(texts, 7, 1 << 30) == (texts.slice(0, 7), 7 * 14)
    for most in (1, 20, 1_000, 14_000, 150_000, 900_000):
        rest, sizes = texts, []
        while rest.num_rows:
            head, size = first_rows(rest, 3_000, most)
            assert size == head.nbytes
            assert head.num_rows == 1 or size <= most
            sizes.append(head.num_rows)
            rest = rest.slice(head.num_rows)
        assert sum(sizes) == texts.num_rows
        assert len(sizes) < 3 * texts.nbytes / most + 20 or most == 1
