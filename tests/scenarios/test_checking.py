"""The checker finds each kind of fault, and nothing in an exact output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.connectors.base import SinkContext
from penstock.model.commits import EpochCommit
from tests.scenarios.checking import faults
from tests.scenarios.records import KEY, PAYLOAD, PRODUCER, RECORD, WRONG, Records
from tests.scenarios.shapes import PIPELINE, Shape
from tests.support.dataflow.tiny import Files

SHAPE = Shape("one split", (Records(splits=1, rows=26, shortest=3),), {0: (0,)}, (0,), PIPELINE.build)


def write(folder: Path, rows: pa.RecordBatch) -> None:
    writer = Files(str(folder)).create_writer()
    writer.open(SinkContext("query", 1, 0, 1, "token"))
    writer.write(rows)
    message = writer.prepare(1)
    assert message is not None
    committer = Files(str(folder)).create_committer()
    committer.open("query")
    committer.commit(EpochCommit("query", 1, {0: message}))


def changed(rows: pa.RecordBatch, column: int, value: object) -> pa.RecordBatch:
    """Another value in the first row."""
    values = [value, *rows.column(column).to_pylist()[1:]]
    columns = [*rows.columns[:column], pa.array(values, RECORD.field(column).type), *rows.columns[column + 1 :]]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD)


def test_in_an_exact_output_there_is_nothing(tmp_path: Path) -> None:
    write(tmp_path, SHAPE.sources[0].batch(0, 0, 26))
    assert faults(SHAPE, tmp_path) == []


@pytest.mark.parametrize(
    ("told", "spoil"),
    [
        ("1 records lost", lambda rows: rows.slice(1)),
        ("1 records doubled", lambda rows: rows.take([0, *range(26)])),
        ("13 records out of order", lambda rows: rows.take([*range(13, 26), *range(13)])),
        ("1 records corrupted", lambda rows: changed(rows, PAYLOAD, b"???")),
        ("1 records corrupted", lambda rows: changed(rows, KEY, 1)),
        ("1 records never sent", lambda rows: changed(rows, PRODUCER, 7)),
        ("1 records counted wrongly", lambda rows: changed(rows, WRONG, 1)),
    ],
)
def test_each_fault_is_found(tmp_path: Path, told: str, spoil: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
    write(tmp_path, spoil(SHAPE.sources[0].batch(0, 0, 26)))
    assert any(fault.startswith(told) for fault in faults(SHAPE, tmp_path)), faults(SHAPE, tmp_path)
