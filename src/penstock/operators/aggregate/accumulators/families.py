"""Factory of accumulators."""

from __future__ import annotations

from dataclasses import replace

from penstock.operators.aggregate.accumulators.base import Accumulator
from penstock.operators.aggregate.accumulators.bits import Bitmaps, Bits
from penstock.operators.aggregate.accumulators.count_sketch import CountSketch
from penstock.operators.aggregate.accumulators.covariances import Covariance
from penstock.operators.aggregate.accumulators.distinct_sketch import DistinctSketch
from penstock.operators.aggregate.accumulators.extremes import BestRow, BestRows, Extreme, FirstOrLast
from penstock.operators.aggregate.accumulators.frequencies import Mode, Percentile
from penstock.operators.aggregate.accumulators.listagg import ListAgg
from penstock.operators.aggregate.accumulators.lists import DistinctValues, Lists
from penstock.operators.aggregate.accumulators.moments import Moments
from penstock.operators.aggregate.accumulators.quantiles import Quantiles
from penstock.operators.aggregate.accumulators.sums import Count, Sum
from penstock.operators.aggregate.calls import FUNCTIONS, AggregateCall, Family

_CLASSES: dict[Family, type[Accumulator]] = {
    Family.COUNT: Count,
    Family.EXTREME: Extreme,
    Family.SUM: Sum,
    Family.MOMENTS: Moments,
    Family.COVARIANCE: Covariance,
    Family.FIRST: FirstOrLast,
    Family.MIN_MAX_BY: BestRow,
    Family.BITS: Bits,
    Family.LISTS: Lists,
    Family.DISTINCT_SKETCH: DistinctSketch,
    Family.QUANTILES: Quantiles,
    Family.PERCENTILE: Percentile,
    Family.MODE: Mode,
    Family.LISTAGG: ListAgg,
    Family.MIN_MAX_BY_K: BestRows,
    Family.BITMAPS: Bitmaps,
    Family.COUNT_SKETCH: CountSketch,
}


def create_accumulator(call: AggregateCall) -> Accumulator:
    """Create the accumulator of a call."""
    if call.distinct:
        return DistinctValues(call, create_accumulator(replace(call, distinct=False)))
    return _CLASSES[FUNCTIONS[call.function]](call)
