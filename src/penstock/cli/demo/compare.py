"""Comparison of two tables as multisets of rows. It is exact, except for doubles (relative tolerance 1e-9)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DOUBLE_TOLERANCE = 1e-9
"""Relative tolerance of doubles: each engine and each run sums them in another order."""
SHOWN_DIFFERENCES = 3


@dataclass(frozen=True)
class Verdict:
    """Result of a comparison. ``differences``: texts of the first few; empty if the tables are identical."""

    rows: int
    reference_rows: int
    differences: tuple[str, ...]

    @property
    def identical(self) -> bool:
        return not self.differences


def compare(result: pa.Table, reference: pa.Table) -> Verdict:
    """Compare two tables as multisets. Columns are matched by name and cast to the types of the reference."""
    if sorted(result.column_names) != sorted(reference.column_names):
        found = f"columns {result.column_names}, Spark has {reference.column_names}"
        return Verdict(result.num_rows, reference.num_rows, (found,))
    reference = reference.select(result.column_names)
    exact = [field.name for field in reference.schema if not pa.types.is_floating(field.type)]
    floating = [name for name in reference.column_names if name not in exact]
    try:
        left = result.cast(reference.schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        return Verdict(result.num_rows, reference.num_rows, (f"types differ: {error}",))
    order = [(name, "ascending") for name in exact + floating]
    left, right = left.sort_by(order), reference.sort_by(order)
    return Verdict(left.num_rows, right.num_rows, tuple(_differences(left, right, exact, floating)))


def _differences(left: pa.Table, right: pa.Table, exact: list[str], floating: list[str]) -> list[str]:
    if left.num_rows != right.num_rows:
        return [f"{left.num_rows} rows, Spark has {right.num_rows}"]
    same = np.ones(left.num_rows, dtype=bool)
    for name in exact:
        equal = pc.fill_null(pc.equal(left[name], right[name]), False)
        both_null = pc.and_(pc.is_null(left[name]), pc.is_null(right[name]))
        same &= pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
    for name in floating:
        a, b = (table[name].to_numpy(zero_copy_only=False) for table in (left, right))
        nulls = pc.equal(pc.is_null(left[name]), pc.is_null(right[name])).to_numpy(zero_copy_only=False)
        same &= np.isclose(a, b, rtol=DOUBLE_TOLERANCE, atol=0.0, equal_nan=True) & nulls
    wrong = np.flatnonzero(~same)
    examples = [f"{left.slice(row, 1).to_pylist()[0]} where Spark has {right.slice(row, 1).to_pylist()[0]}"
             for row in wrong[:SHOWN_DIFFERENCES].tolist()]  # fmt: skip
    return examples + ([f"... and {len(wrong) - len(examples)} more rows"] if len(wrong) > len(examples) else [])
