"""User functions that hold rows back, run by the operator that runs those of users.

What they hold comes out with a later batch, or when their call ends. Where event time passes it, rows come behind their
watermark, which the operators behind notice (``tap``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from penstock.graph.model import OperatorSpec
from penstock.operators.map_function import MapInArrowSpec
from penstock.testing.rows import ROW

Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Look one batch ahead."""
    held = None
    for batch in batches:
        if held is not None:
            yield held
        held = batch
    if held is not None:
        yield held


def swapped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of two batches the second one first."""
    for batch in batches:
        following = next(batches, None)
        if following is not None:
            yield following
        yield batch


def first_last(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Keep the first batch until the call ends."""
    first = next(batches, None)
    yield from batches
    if first is not None:
        yield first


IN_ORDER: dict[str, tuple[Function, ...]] = {"ahead": (ahead,), "twice": (ahead, ahead)}
"""Rows come out in the order in which they came in."""
HOLDS: dict[str, tuple[Function, ...]] = {**IN_ORDER, "swapped": (swapped,), "first last": (first_last, ahead)}


def hold_specs(position: int, kind: str) -> tuple[OperatorSpec, ...]:
    """The functions of one node; none if ``kind`` is empty."""
    return tuple(
        MapInArrowSpec(
            operator_id=f"hold{position}.{number}", name=kind, output_schema=ROW, input_schema=ROW, function=function
        )
        for number, function in enumerate(HOLDS[kind] if kind else ())
    )
