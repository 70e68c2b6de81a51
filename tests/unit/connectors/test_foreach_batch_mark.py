"""The mark of foreachBatch: a rollback takes back only epochs that the function never got."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from penstock.connectors.spark.foreach_batch import ForeachBatchSink
from penstock.errors import CommitFailed
from tests.support.connectors.kits import stage

SCHEMA = pa.schema([("k", pa.int64())])
COLUMNS = StructType().add("k", "long").json()
KILLED = KeyboardInterrupt
"""The driver dies in the call."""


def sink_at(folder: Path, raises: list[type[BaseException] | None]) -> ForeachBatchSink:
    def call(files: Sequence[str], columns: str, batch: int) -> None:
        error = raises.pop(0)
        if error is not None:
            raise error

    sink = ForeachBatchSink(SCHEMA, COLUMNS, call)
    sink.stage_in(str(folder / "sink-0"))
    return sink


@pytest.mark.parametrize(
    ("raises", "called"),
    [
        ([None], 5),
        ([None, None], 7),
        ([None, ValueError], 5),
        ([None, KILLED], 7),
        ([ValueError], 4),
        ([ValueError, None], 5),
        ([KILLED], 5),
    ],
)
def test_only_epochs_that_the_function_never_got_are_taken_back(
    tmp_path: Path, raises: list[type[BaseException] | None], called: int
) -> None:
    rows = pa.record_batch([pa.array([1])], schema=SCHEMA)
    left = list(raises)
    sink = sink_at(tmp_path, left)
    permits = {epoch: stage(sink, {0: rows}, epoch) for epoch in (5, 7)}
    epochs = [5, 7] if raises[0] is None else [5, 5]
    for epoch in epochs[: len(raises)]:
        try:
            sink.create_committer().commit(permits[epoch])
        except (CommitFailed, KILLED):
            continue
    assert left == []
    committer = sink_at(tmp_path, []).create_committer()
    assert committer.retraction_problem(called, 9) == ""
    assert f"up to epoch {called}, and Penstock cannot undo" in committer.retraction_problem(called - 1, 9)


def test_a_rollback_is_refused_without_a_mark(tmp_path: Path) -> None:
    committer = sink_at(tmp_path, []).create_committer()
    assert "its function was called with rows, and Penstock cannot undo" in committer.retraction_problem(0, 9)
