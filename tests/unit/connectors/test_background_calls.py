"""Calls on a thread of their own, for which the caller waits a short time only."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.connectors.background_calls import PATIENCE_S, BackgroundCalls, CallRunning
from penstock.connectors.files.columns import FileColumns
from penstock.connectors.files.reader import FileReader, ReadFile
from penstock.errors import DataError
from penstock.model.splits import Split
from tests.support.connectors.kits import next_batch

ROWS = pa.schema([("n", pa.int64())])


def test_a_call_that_takes_long_is_waited_for_in_several_turns() -> None:
    calls: BackgroundCalls[int] = BackgroundCalls("test")
    assert calls.result(lambda: 1) == 1
    let_go = threading.Event()

    def waits() -> int:
        let_go.wait(30)
        return 2

    for _ in range(3):
        began = time.thread_time()
        with pytest.raises(CallRunning):
            calls.result(waits)
        assert time.thread_time() - began < PATIENCE_S
    let_go.set()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            assert calls.result(waits) == 2
            break
        except CallRunning:
            continue
    assert calls.result(lambda: 3) == 3
    calls.close()


def test_what_a_call_raises_comes_out_and_the_next_call_runs() -> None:
    calls: BackgroundCalls[int] = BackgroundCalls("test")
    with pytest.raises(ZeroDivisionError):
        calls.result(lambda: 1 // 0)
    assert calls.result(lambda: 3) == 3
    calls.close()


def test_the_thread_ends_after_the_call_that_runs() -> None:
    calls: BackgroundCalls[bool] = BackgroundCalls("test-that-ends")
    let_go = threading.Event()
    with pytest.raises(CallRunning):
        calls.result(lambda: let_go.wait(30))
    calls.close()
    let_go.set()
    deadline = time.monotonic() + 30
    while any(t.name == "penstock-test-that-ends" for t in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def file_behind(gate: threading.Event) -> ReadFile:
    """Six rows in three batches, which come once the gate is open; then the file turns out to be broken."""

    def read(path: str, skip_rows: int) -> Iterator[pa.RecordBatch]:
        for first in range(skip_rows, 6, 2):
            gate.wait(30)
            yield pa.record_batch([pa.array([first, first + 1])], schema=ROWS)
        raise OSError("no end")

    return read


def test_a_file_that_is_read_slowly_holds_up_no_step(tmp_path) -> None:  # type: ignore[no-untyped-def]
    gate, file = threading.Event(), tmp_path / "a"
    file.write_text("x")
    status = file.stat()
    split = Split("a", {"path": str(file), "size": status.st_size, "modified_ns": status.st_mtime_ns})
    reader = FileReader(lambda schema: file_behind(gate), FileColumns(ROWS, (), "UTC"), lambda path: True, False, False)
    reader.add_split(split)
    for _ in range(3):
        assert reader.poll(10, 0) is None, "nothing is there yet"
        assert [s.position.get("rows", 0) for s in reader.snapshot()] == [0]
    gate.set()
    rows: list[int] = []
    while len(rows) < 6:
        batch = next_batch(reader, 1)
        assert batch is not None
        rows += batch.column(0).to_pylist()
        assert [s.position["rows"] for s in reader.snapshot()] == [len(rows)]
    assert rows == list(range(6))
    with pytest.raises(DataError, match="no end"):
        next_batch(reader, 1)
    reader.close()
