"""The watermark of a source, and what becomes of it when the parallelism changes."""

from __future__ import annotations

import pyarrow as pa

from penstock.operators.base import RestoredState, ScalarPart
from penstock.operators.watermark import WatermarkOperator, WatermarkSpec

TIMES = pa.schema([("at", pa.timestamp("us"))])
MS = 1_000


def made() -> WatermarkOperator:
    return WatermarkOperator(
        WatermarkSpec(operator_id="w", name="Watermark", output_schema=TIMES, column=0, delay_us=5 * MS)
    )


def read(operator: WatermarkOperator, *millis: int) -> None:
    batch = pa.record_batch([pa.array([ms * MS for ms in millis], pa.timestamp("us"))], schema=TIMES)
    assert [out.num_rows for out in operator.process(batch)] == [len(millis)]


def restored(*before: WatermarkOperator) -> WatermarkOperator:
    operator = made()
    parts = [ScalarPart(index, 0, 127, one.snapshot().scalars) for index, one in enumerate(before)]
    operator.restore(RestoredState({}, parts, rescaled=len(before) > 1))
    return operator


def test_of_several_it_goes_on_from_the_least_and_knows_how_far_event_time_had_come() -> None:
    ahead, behind = made(), made()
    read(ahead, 100)
    read(behind, 40)
    heir = restored(ahead, behind)
    assert (heir.emitted_watermark(), heir.reached_watermark()) == (35 * MS, 95 * MS)
    read(heir, 50)
    assert (heir.emitted_watermark(), heir.reached_watermark()) == (45 * MS, 95 * MS)
    again = restored(heir)
    assert (again.emitted_watermark(), again.reached_watermark()) == (45 * MS, 95 * MS)
    read(again, 200)
    assert (again.emitted_watermark(), again.reached_watermark()) == (195 * MS, 195 * MS)


def test_beside_one_that_has_read_nothing_it_starts_anew() -> None:
    ahead = made()
    read(ahead, 100)
    heir = restored(ahead, made())
    assert (heir.emitted_watermark(), heir.reached_watermark()) == (None, 95 * MS)


def test_while_it_is_held_rows_do_not_raise_it_and_a_restore_holds_on() -> None:
    operator = made()
    read(operator, 10)
    operator.hold_watermark(True)
    read(operator, 500)
    assert (operator.emitted_watermark(), operator.reached_watermark()) == (5 * MS, 495 * MS)
    heir = restored(operator)
    read(heir, 600)
    assert heir.emitted_watermark() == 5 * MS
    heir.hold_watermark(False)
    read(heir, 20)
    assert heir.emitted_watermark() == 15 * MS
