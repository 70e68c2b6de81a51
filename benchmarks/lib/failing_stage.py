"""The last stage of ``flip76`` as ``progress`` has it: it throws when it is asked to, and keeps a diary."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.lib import row_log

if TYPE_CHECKING:
    from benchmarks.suites.backpressure import Stage

FLAG = "fail"
"""A file in the folder of the diary."""


def failing(folder: str, row_ms: float) -> Stage:
    """Takes so long for a row."""

    def sink(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(batch.num_rows * row_ms / 1000)
            throw_if_asked(folder)
            row_log.took(folder, batch.num_rows)
            yield batch

    return sink


def throw_if_asked(folder: str) -> None:
    """Once for each time that the flag is set, in whichever subtask sees it first."""
    flag = os.path.join(folder, FLAG)
    try:
        number = Path(flag).read_text()
        os.unlink(flag)
    except FileNotFoundError:
        return
    raise RuntimeError(f"asked to fail, number {number}")
