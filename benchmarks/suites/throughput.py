"""Cost of checkpoints without backpressure: a checkpoint every second against none, in paired rounds.

source -> hash -> keyed count and sum -> noop. Each round runs all three forms, and begins with another one each time,
so that a slow period of the machine affects all of them. Only the ratios within a round are used.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence

from pyspark.sql import SparkSession

from benchmarks.lib import harness
from benchmarks.suites import exchange
from penstock.coordinator.view import CheckpointState
from penstock.queries.streaming_query import StreamingQuery

ROUNDS = 20
WARM_UP_S = 1.5
MEASURED_S = 4.0
BASE = "none"
TARGET = 0.93
"""Of the rows per second without checkpoints."""
FORMS = {
    BASE: {"checkpoint.interval": "1h"},
    "aligned": {"checkpoint.interval": "1s", "checkpoint.alignment": "aligned"},
    "unaligned": {"checkpoint.interval": "1s", "checkpoint.alignment": "unaligned"},
}
# One-sided 95 % quantiles of Student's t with 1, 2, ... degrees of freedom; with more, the last is an upper bound.
_T95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
_T95 += (1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729)
_T95 += (1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699)


def one(spark: SparkSession, form: str) -> tuple[float, int]:
    """Source rows per second in the steady state, and the checkpoints completed meanwhile."""
    with harness.running(exchange.exchanged(spark), mode="update", **FORMS[form]) as query:
        harness.wait_for("the first row", lambda: harness.rows_in(query, 0) > 0)
        time.sleep(WARM_UP_S)
        before = _completed(query)
        rate = harness.rate(query, 0, MEASURED_S)
        return rate, _completed(query) - before


def _completed(query: StreamingQuery) -> int:
    return sum(c.state is CheckpointState.COMPLETE for c in query.view().checkpoints)


def bound(ratios: Sequence[float]) -> dict[str, float]:
    """Mean and its lower one-sided 95 % bound by Student's t: the ratios of rounds are taken as independent."""
    mean, deviation = statistics.mean(ratios), statistics.stdev(ratios)
    quantile = _T95[min(len(ratios) - 2, len(_T95) - 1)]
    lower = mean - quantile * deviation / math.sqrt(len(ratios))
    return {"rounds": len(ratios), "mean": mean, "deviation": deviation, "lower_bound": lower}


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    rates: dict[str, list[float]] = {form: [] for form in FORMS}
    checkpoints: dict[str, list[int]] = {form: [] for form in FORMS}
    one(spark, BASE)  # the first query of a session pays for it
    for number in range(3 if quick else ROUNDS):
        order = list(FORMS)
        for form in order[number % len(order) :] + order[: number % len(order)]:
            rate, completed = one(spark, form)
            rates[form].append(rate)
            checkpoints[form].append(completed)
        print(f"  round {number + 1}: " + ", ".join(f"{f} {r[-1] / 1e6:.1f}" for f, r in rates.items()), flush=True)
    ratios = {
        form: [with_them / without for with_them, without in zip(rates[form], rates[BASE], strict=True)]
        for form in FORMS
        if form != BASE
    }
    return {
        "rows_per_second": rates,
        "checkpoints": checkpoints,
        "ratios": ratios,
        "summary": {form: bound(values) for form, values in ratios.items()},
    }
