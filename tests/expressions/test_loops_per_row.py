"""Built-in expressions work on whole columns or on distinct values: for more rows they take no more steps of Python."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from expression_groups import GROUPS

import penstock
from penstock.errors import EvaluationError
from penstock.operators.expressions import Expression, SessionConf

if TYPE_CHECKING:
    from expression_oracle import Relation

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PACKAGE = str(Path(penstock.__file__).parent)
EVERY = int(os.environ.get("PENSTOCK_LOOPS_EVERY", "3"))
"""One case in so many."""
FEW, MANY = 1, 16
"""Copies of each group's rows."""
MORE = 1.2
"""Times the steps: hashing and sorting go by size a little."""
ALWAYS = 100
LISTED = re.compile(
    r"to_json|to_csv|to_avro|from_json|get_json_object|"  # documents one by one
    r"^try_|"  # what raises is evaluated again without the row that did
    r"hash\(.*(_big|decimal)|"  # decimals that are longer than a word
    r"_i64|"  # products of longs that may be too large are looked at exactly
    r"^sequence|timestampadd"  # some of those near the ends of their type
)
"""What loops over some rows, and why."""


def steps(expression: Expression, batch: pa.RecordBatch) -> int:
    """Lines of this package that are executed."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        expression.evaluate(batch)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("group", GROUPS)
def test_no_built_in_loops_per_row(relation: Callable[[str], Relation], group: str) -> None:
    edges = relation(group)
    edges.spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        cases = edges.compile(GROUPS[group].cases[::EVERY], SessionConf(False, "UTC"))
    finally:
        edges.spark.conf.set("spark.sql.ansi.enabled", "true")
    few, many = (pa.concat_batches([edges.batch] * copies) for copies in (FEW, MANY))
    looping, raising = [], 0
    for case in cases:
        try:
            taken = steps(case.ours, few), steps(case.ours, many)
        except EvaluationError:
            raising += 1
            continue
        if taken[1] > taken[0] * MORE + ALWAYS and not LISTED.search(case.sql):
            looping.append((case.sql, *taken))
    assert not looping
    assert raising < max(len(cases), 2), "most raise under ANSI mode only"
