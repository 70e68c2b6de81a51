"""``foreachBatch(func)``: each committed epoch as a DataFrame, on the driver.

The rows are staged with the epoch, so that a call that failed is repeated with the same rows and the same number, by
this driver (its retries of commits) or by the next one. A call that went through is repeated, too, if the driver dies
before its epoch is logged: ``func`` sees each batch at least once, as in Spark, and can tell by the number.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.connectors.base import EpochCommit, SinkCommitter
from penstock.connectors.staged_rows import StagedRowsCommitter, StagingSink
from penstock.errors import CommitFailed

Call = Callable[[Sequence[str], int], None]
"""Calls the user's function with the rows of staged files and the batch's number."""


class ForeachBatchSink(StagingSink):
    """See the module's text.

    Args:
        schema: of the rows.
        call: stays on the driver; the copies in the slots write only.
    """

    def __init__(self, schema: pa.Schema, call: Call | None) -> None:
        super().__init__(schema)
        self._call = call

    def describe(self) -> str:
        return "ForeachBatchSink"

    def create_committer(self) -> SinkCommitter:
        assert self._call is not None, "committers are created on the driver"
        return _ForeachBatchCommitter(self, self._call)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_call": None}


class _ForeachBatchCommitter(StagedRowsCommitter):
    def __init__(self, sink: ForeachBatchSink, call: Call) -> None:
        super().__init__(sink)
        self._call = call

    def deliver(self, permit: EpochCommit, files: Sequence[str]) -> None:
        try:
            self._call(files, permit.batch)
        except (Exception, SystemExit) as error:
            raise CommitFailed(
                f"foreachBatch: the function raised {type(error).__name__} on batch {permit.batch} (epoch "
                f"{permit.epoch}): {error}\nIt is called again with the same batch id and rows.\n"
                f"{''.join(traceback.format_exception(error))}"
            ) from error
