"""``checkpoint.maxInflightBytes``: what limits of several sizes change, beside no limit. Two slots, default queues.

Under backpressure (the job of ``backpressure`` with the sleeping stage): bytes in queues, and unaligned checkpoints.
Without (the job of ``throughput``): rows per second as a ratio to no limit in the same round, each round beginning with
another form.
"""

from __future__ import annotations

import statistics
import time

from pyspark.sql import SparkSession

from benchmarks.lib import harness
from benchmarks.suites import backpressure, exchange

ROUNDS = 8
CHECKPOINTS = 10
WARM_UP_S = 1.5
MEASURED_S = 4.0
BASE = "none"
FORMS = {
    form: {} if form == BASE else {"checkpoint.maxInflightBytes": form} for form in (BASE, "64m", "16m", "4m", "1m")
}


def under_pressure(spark: SparkSession, form: str, checkpoints: int) -> dict[str, object]:
    with harness.running(backpressure.job(spark, "sleeping"), **FORMS[form]) as query:
        began = time.perf_counter()
        queued = backpressure.fill(query)
        filled_s = time.perf_counter() - began
        return {"queued_bytes": queued, "filled_s": filled_s, "unaligned": backpressure.unaligned(query, checkpoints)}


def speed(spark: SparkSession, form: str) -> float:
    """Source rows per second in the steady state."""
    with harness.running(exchange.exchanged(spark), mode="update", **FORMS[form]) as query:
        harness.wait_for("the first row", lambda: harness.rows_in(query, 0) > 0)
        time.sleep(WARM_UP_S)
        return harness.rate(query, 0, MEASURED_S)


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    pressure = {form: under_pressure(spark, form, 3 if quick else CHECKPOINTS) for form in FORMS}
    for form, cell in pressure.items():
        print(f"  {form}: {cell}", flush=True)
    speed(spark, BASE)  # the first query of a session pays for it
    rates: dict[str, list[float]] = {form: [] for form in FORMS}
    for number in range(2 if quick else ROUNDS):
        order = list(FORMS)
        first = number % len(order)
        for form in order[first:] + order[:first]:
            rates[form].append(speed(spark, form))
        print(f"  round {number + 1}: " + ", ".join(f"{f} {r[-1] / 1e6:.2f}" for f, r in rates.items()), flush=True)
    ratios = {f: [one / base for one, base in zip(r, rates[BASE], strict=True)] for f, r in rates.items() if f != BASE}
    return {
        "pressure": pressure,
        "ratios": ratios,
        "medians": {form: statistics.median(values) for form, values in ratios.items()},
    }
