"""``exchange.inflightTarget`` of a second against none: less is in flight before a slow stage to begin with.

The job of ``backpressure`` with the sleeping stage and gates of 20 MB; the two forms alternate.
"""

from __future__ import annotations

import time

from pyspark.sql import SparkSession

from benchmarks.lib import harness
from benchmarks.suites import backpressure

ROUNDS = 2
CHECKPOINTS = 20
MEASURED_S = 10.0
LAST_VERTEX = 2
FORMS: dict[str, dict[str, str]] = {"off": {}, "1s": {"exchange.inflightTarget": "1s"}}


def one(spark: SparkSession, form: str, checkpoints: int) -> dict[str, object]:
    options = {"exchange.memoryPerGate": str(20 << 20), **FORMS[form]}
    with harness.running(backpressure.job(spark, "sleeping"), **options) as query:
        began = time.perf_counter()
        queued = backpressure.fill(query)
        filled_s = time.perf_counter() - began
        return {
            "queued_bytes": queued,
            "filled_s": filled_s,
            "rows_per_second": harness.rate(query, LAST_VERTEX, MEASURED_S),
            "unaligned": backpressure.unaligned(query, checkpoints),
            "aligned": backpressure.aligned(query),
        }


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    cells: dict[str, list[dict[str, object]]] = {form: [] for form in FORMS}
    for _ in range(1 if quick else ROUNDS):
        for form, rounds in cells.items():
            rounds.append(one(spark, form, 5 if quick else CHECKPOINTS))
            print(f"  {form}: {rounds[-1]}", flush=True)
    return {"forms": cells}
