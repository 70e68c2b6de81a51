"""Which accumulator computes which function."""

from __future__ import annotations

from dataclasses import replace

from penstock.operators.accumulators.base import Accumulator
from penstock.operators.accumulators.best_of import BestOf
from penstock.operators.accumulators.bitmaps import Bitmaps
from penstock.operators.accumulators.bits import Bits
from penstock.operators.accumulators.chosen import Best, FirstOrLast
from penstock.operators.accumulators.count_sketch import CountSketch
from penstock.operators.accumulators.counts import Count
from penstock.operators.accumulators.covariances import Covariance
from penstock.operators.accumulators.distinct_sketch import DistinctSketch
from penstock.operators.accumulators.distinct_values import DistinctValues
from penstock.operators.accumulators.extremes import Extreme
from penstock.operators.accumulators.joined import Joined
from penstock.operators.accumulators.lists import Lists
from penstock.operators.accumulators.moments import Moments
from penstock.operators.accumulators.quantiles import Quantiles
from penstock.operators.accumulators.sums import Sum
from penstock.operators.accumulators.tallies import Mode, Percentile
from penstock.operators.aggregate_calls import FUNCTIONS, AggregateCall, Family

_CLASSES: dict[Family, type[Accumulator]] = {
    Family.COUNT: Count,
    Family.EXTREME: Extreme,
    Family.SUM: Sum,
    Family.MOMENTS: Moments,
    Family.COVARIANCE: Covariance,
    Family.FIRST: FirstOrLast,
    Family.BEST: Best,
    Family.BITS: Bits,
    Family.LISTS: Lists,
    Family.SKETCH: DistinctSketch,
    Family.QUANTILES: Quantiles,
    Family.PERCENTILE: Percentile,
    Family.MODE: Mode,
    Family.JOINED: Joined,
    Family.BEST_OF: BestOf,
    Family.BITMAPS: Bitmaps,
    Family.COUNT_SKETCH: CountSketch,
}


def create_accumulator(call: AggregateCall) -> Accumulator:
    """The accumulator of a call."""
    if call.distinct:
        return DistinctValues(call, create_accumulator(replace(call, distinct=False)))
    return _CLASSES[FUNCTIONS[call.function]](call)
