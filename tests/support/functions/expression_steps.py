"""Count of Python steps of an expression, to check that it does not grow with the number of rows."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

import penstock
from penstock.errors import EvaluationError
from penstock.functions import Expression
from tests.support.functions.expression_oracle import Compiled

PACKAGE = str(Path(penstock.__file__).parent)
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


def looping(cases: Sequence[Compiled], batch: pa.RecordBatch) -> tuple[list[tuple[str, int, int]], int]:
    """The cases that loop per row and are not listed, with their steps for few rows and for many, and how many cases
    raise."""
    few, many = (pa.concat_batches([batch] * copies) for copies in (FEW, MANY))
    found, raising = [], 0
    for case in cases:
        try:
            taken = steps(case.ours, few), steps(case.ours, many)
        except EvaluationError:
            raising += 1
            continue
        if taken[1] > taken[0] * MORE + ALWAYS and not LISTED.search(case.sql):
            found.append((case.sql, *taken))
    return found, raising
