"""Benchmark of the engine's mechanisms: each as it is, and switched off or replaced by the plain alternative.

Small jobs on two slots. *Rates*: a saturated exchange, source rows per second in the steady state. *Checkpoints*: one
at a time, of source -> hash -> stage -> hash -> a stage that sleeps 1 ms a row, with full queues. Every round runs each
form once; a ratio is that of two forms of the same round. ``replacements`` replaces what no option switches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

from benchmarks.lib import harness
from benchmarks.lib.max_rate_source import MaxRateReader
from benchmarks.suites import backpressure, isolation
from benchmarks.suites.ablation_variants import FIXED_ROWS, NOTHING, AblatedReader, AblatedSource, compressed
from penstock.queries.streaming_query import StreamingQuery

Cell = dict[str, Any]
Job = Callable[[DataFrame], DataFrame]

RATE_ROUNDS = 3
CHECKPOINT_ROUNDS = 2
WARM_UP_S = 1.5
MEASURED_S = 3.0
LIMIT_S = 60.0
MANY_KEYS = 1_000_000
"""A batch of 65,536 rows has hardly two of the same."""
PAYLOAD_BYTES = 100
NUMBERS_BYTES = 16
"""Of a row without payload."""
SHORT = {"exchange.memoryPerGate": "512k"}
"""Queues that drain in some seconds: for forms that wait for that."""
LONG = {"exchange.memoryPerGate": "8m", "exchange.exclusiveWindow": "256k"}
"""Queues that take a while to be written: for forms that differ in what they write. With small windows rows move on a
few at a time, else nothing would in most of the time between two checkpoints."""

# -- the jobs ---------------------------------------------------------------------------------------------------------


def summed(rows: DataFrame) -> DataFrame:
    """Every row crosses the exchange."""
    return partially_summed(rows.repartition("key"))


def partially_summed(rows: DataFrame) -> DataFrame:
    """Return sums as a user writes them; they are aggregated by batch before the exchange."""
    return rows.groupBy("key").agg(F.count("*").alias("rows"), F.sum("value").alias("total"))


def handed_on(rows: DataFrame) -> DataFrame:
    return rows.repartition("key").mapInArrow(backpressure.middle, rows.schema)


def slowed(rows: DataFrame) -> DataFrame:
    """Return rows after a slow stage, as in ``backpressure.job_with``."""
    keyed = handed_on(rows).withColumn("key", (F.col("key") * 31) % 10_007)
    return keyed.repartition("key").mapInArrow(backpressure.sleeping, rows.schema)


@dataclass(frozen=True)
class Form:
    """A job, and what it runs with.

    Attributes:
        replacement: of ``replacements.REPLACEMENTS``.
        source: options of the source.
        options: of the query.
        alignment: of its checkpoints.
        count: checkpoints to take; of unaligned ones the first is told apart, as it alone can refer to none.
        pause_s: from one to the next.
    """

    job: Job
    replacement: str = NOTHING
    source: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    alignment: str = "unaligned"
    count: int = 6
    pause_s: float = 0.3


TEXT = {"payloadBytes": str(PAYLOAD_BYTES), "batchRows": "8192", "text": "true"}
NEARLY_DISTINCT = {"keys": str(MANY_KEYS)}
EVERY_SECOND = {"checkpoint.interval": "1s", "checkpoint.alignment": "unaligned"}
RATES: dict[str, Form] = {
    "as it is": Form(summed),
    "a checkpoint a second": Form(summed, options=EVERY_SECOND),
    "every buffer is spilled": Form(summed, "every buffer is spilled"),
    "partial aggregation": Form(partially_summed),
    "many keys": Form(summed, source=NEARLY_DISTINCT),
    "many keys, partial aggregation": Form(partially_summed, source=NEARLY_DISTINCT),
    "links compress with lz4": Form(summed, "links compress with lz4"),
    "text": Form(handed_on, source=TEXT),
    "text, links compress with lz4": Form(handed_on, "links compress with lz4", TEXT),
    "slices of whole buffers": Form(summed, "slices of whole buffers"),
    f"slices of {FIXED_ROWS} rows": Form(summed, f"slices of {FIXED_ROWS} rows"),
}
TIME_OUTS = {"0": "0ms", "50 ms": "50ms", "200 ms": "200ms", "1 s": "1s", "never": None}
"""By name, ``checkpoint.alignmentTimeout``; None: strictly aligned. 200 ms is the default."""


def _with_time_out(form: Form, text: str | None, count: int) -> Form:
    if text is None:
        return replace(form, alignment="aligned", count=count)
    options = {**form.options, "checkpoint.alignmentTimeout": text}
    return replace(form, options=options, alignment="auto", count=count)


_SHORT_QUEUES = Form(slowed, source=TEXT, options=SHORT)
_LONG_QUEUES = Form(slowed, source=TEXT, options=LONG, pause_s=1.0)
CHECKPOINTS: dict[str, Form] = {
    "as it is": _SHORT_QUEUES,
    "barriers stay behind the queues": replace(_SHORT_QUEUES, replacement="barriers stay behind the queues", count=2),
    "slices of whole buffers": replace(_SHORT_QUEUES, replacement="slices of whole buffers"),
    "long queues": _LONG_QUEUES,
    **{
        name: replace(_LONG_QUEUES, replacement=name)
        for name in ("all rows in flight are written", "all rows in flight are written with lz4")
    },
    **{
        f"time-out {name}, slow sink": _with_time_out(_SHORT_QUEUES, text, 4 if text else 2)
        for name, text in TIME_OUTS.items()
    },
    **{f"time-out {name}, saturated": _with_time_out(Form(summed), text, 6) for name, text in TIME_OUTS.items()},
}
ISOLATED = {"rows_per_second": "light", "checkpoint_ms": "holding"}
"""What is measured of ``function.isolation``, and with which stage of ``isolation``."""
ISOLATED_COUNT = 4

# -- one run of a form ------------------------------------------------------------------------------------------------


def started(spark: SparkSession, form: Form) -> AbstractContextManager[StreamingQuery]:
    reader = spark.readStream.format(AblatedSource.name()).option("with", form.replacement)
    for name, value in form.source.items():
        reader = reader.option(name, value)
    mode = "update" if form.job in (summed, partially_summed) else "append"
    return harness.running(form.job(reader.load()), mode=mode, **form.options)


def rate(spark: SparkSession, form: Form, measured_s: float) -> float:
    """Source rows per second in the steady state."""
    with started(spark, form) as query:
        harness.wait_for("the first rows", lambda: harness.rows_in(query, 0) > 0)
        time.sleep(WARM_UP_S)
        return harness.rate(query, 0, measured_s)


def checkpoints(spark: SparkSession, form: Form, count: int) -> list[Cell]:
    """One at a time, in the order in which they were taken."""
    with started(spark, form) as query:
        if form.job is slowed:
            backpressure.fill(query)
        else:
            harness.wait_for("the first rows", lambda: harness.rows_in(query, 0) > 0)
            time.sleep(WARM_UP_S)
        return [_checkpoint(query, form) for _ in range(count)]


def _checkpoint(query: StreamingQuery, form: Form) -> Cell:
    query.snapshot(alignment=form.alignment, timeout=LIMIT_S)
    done = query.view().checkpoints[-1]
    time.sleep(form.pause_s)
    return {
        "duration_ms": done.duration_ms,
        "inflight_bytes": done.inflight_bytes,
        "written_bytes": done.inflight_persisted_bytes,
        "writing_ms": max(subtask.async_ms for subtask in done.subtasks),
        "unaligned": done.unaligned,
    }


# -- all of them, in turns --------------------------------------------------------------------------------------------


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    spark.dataSource.register(AblatedSource)
    measured_s = 1.0 if quick else MEASURED_S
    rate_rounds, rounds = (1, 1) if quick else (RATE_ROUNDS, CHECKPOINT_ROUNDS)
    rate(spark, RATES["as it is"], measured_s)  # the first query of a session pays for it
    return {
        "rows_per_second": rounds_of("rows/s", RATES, rate_rounds, lambda form: rate(spark, form, measured_s)),
        "checkpoints": rounds_of(
            "checkpoints", CHECKPOINTS, rounds, lambda form: checkpoints(spark, form, 2 if quick else form.count)
        ),
        "isolation": isolated(spark, rounds, 1 if quick else ISOLATED_COUNT),
        "batch_bytes": {"numbers": sizes(MaxRateReader({})), "text": sizes(AblatedReader(TEXT))},
    }


def rounds_of(what: str, forms: dict[str, Form], count: int, measure: Callable[[Form], Any]) -> dict[str, list[Any]]:
    """Return the results of each round by form; every other round runs in reverse order, because the machine's speed
    varies."""
    found: dict[str, list[Any]] = {name: [] for name in forms}
    for number in range(count):
        for name in list(forms) if number % 2 == 0 else list(forms)[::-1]:
            found[name].append(measure(forms[name]))
            print(f"  {what}, {name}: {found[name][-1]}", flush=True)
    return found


def isolated(spark: SparkSession, rounds: int, count: int) -> dict[str, dict[str, list[Any]]]:
    """Return the results by measure and ``function.isolation``; ``count`` checkpoints in each round."""
    found: dict[str, dict[str, list[Any]]] = {measure: {form: [] for form in isolation.FORMS} for measure in ISOLATED}
    for number in range(rounds):
        for form in isolation.FORMS if number % 2 == 0 else isolation.FORMS[::-1]:
            rows = isolation.rows_per_second(spark, ISOLATED["rows_per_second"], form)
            took = isolation.checkpoints(spark, ISOLATED["checkpoint_ms"], form, count)
            found["rows_per_second"][form].append(rows)
            found["checkpoint_ms"][form].append(took["median"])
            print(f"  functions, {form}: {rows:.0f} rows/s, checkpoints of {took['median']:.0f} ms", flush=True)
    return found


def sizes(reader: MaxRateReader) -> dict[str, int]:
    """Return the size of a batch of the source on a link, plain and with lz4."""
    batch: pa.RecordBatch = reader._batch(np.random.default_rng(0))
    return {"rows": batch.num_rows, "plain": batch.serialize().size, "lz4": compressed(batch).size}
