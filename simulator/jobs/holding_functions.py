"""User functions that hold rows back, run by the product's own operator for user functions.

Held rows are yielded with a later batch, or when the call ends. If event time passes a held row, the row arrives after
its watermark, and the next operators report it (``tap``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.model.job_graph import OperatorSpec
from penstock.operators.python.map_function import MapInArrowSpec
from simulator.jobs.rows import ROW

Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hold each batch until the next one arrives."""
    held = None
    for batch in batches:
        if held is not None:
            yield held
        held = batch
    if held is not None:
        yield held


def swapped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each two batches in reverse order."""
    for batch in batches:
        following = next(batches, None)
        if following is not None:
            yield following
        yield batch


def first_last(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hold the first batch until the call ends."""
    first = next(batches, None)
    yield from batches
    if first is not None:
        yield first


IN_ORDER: dict[str, tuple[Function, ...]] = {"ahead": (ahead,), "twice": (ahead, ahead)}
"""Functions that keep the order of rows."""
HOLDS: dict[str, tuple[Function, ...]] = {**IN_ORDER, "swapped": (swapped,), "first last": (first_last, ahead)}


@dataclass(frozen=True, kw_only=True)
class HoldSpec(MapInArrowSpec):
    """Spec of functions that emit no more rows than they take, so that no first slice of one row is needed."""

    @property
    def multiplies(self) -> bool:
        return False


def hold_specs(position: int, kind: str) -> tuple[OperatorSpec, ...]:
    """Return the functions of one node; none if ``kind`` is empty."""
    return tuple(
        HoldSpec(
            operator_id=f"hold{position}.{number}", name=kind, output_schema=ROW, input_schema=ROW, function=function
        )
        for number, function in enumerate(HOLDS[kind] if kind else ())
    )
