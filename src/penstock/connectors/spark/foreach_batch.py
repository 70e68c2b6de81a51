"""Sink of ``foreachBatch(func)``: calls ``func`` on the driver with the DataFrame of each committed epoch.

The rows are staged with the epoch. So a failed call is repeated with the same rows and the same batch id, by this
driver (which repeats commits) or by the next one. A successful call is also repeated if the driver dies before the
commit is logged. So ``func`` gets each batch at least once, as in Spark, and can recognize a repetition by its id.

``called.json`` next to the staged rows has the highest epoch for which ``func`` may have been called. It is durable
before each call. A rollback need not take back any later epoch, because ``func`` never got its rows. A call that raised
does not count: by raising, ``func`` reports that it has not written the batch. Earlier releases did not write this
mark. Epochs are committed in order, so the first mark also covers all earlier epochs.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.connectors.base import SinkCommitter
from penstock.connectors.local_files import replace_durably
from penstock.connectors.spark.staged_rows import StagedRowsCommitter, StagingSink
from penstock.errors import CommitFailed, SinkError
from penstock.logs import get_logger
from penstock.model.commits import EpochCommit

log = get_logger(__name__)

Call = Callable[[Sequence[str], str, int], None]
"""Function that calls the user's function. Its arguments are the staged files, their columns and the batch id."""
_SPARKS_CONDITION = (
    "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink."
)
"""Spark's message when the function raises, without the reason."""
_CALLED = "called.json"
_AGAIN = "It is called again with the same batch id and rows."


class ForeachBatchSink(StagingSink):
    """Sink that calls a function of the user with the rows of each epoch; see the module's docstring.

    Args:
        schema, columns: see ``StagingSink``.
        call: calls the user's function. It is not sent to the slots, which only stage rows.
    """

    target_is_unknown = True

    def __init__(self, schema: pa.Schema, columns: str, call: Call | None) -> None:
        super().__init__(schema, columns)
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
        self._mark = sink.directory / _CALLED

    def deliver(self, permit: EpochCommit, files: Sequence[str], columns: str) -> None:
        try:
            before = self._called()
            self._set_called(permit.epoch if before is None else max(permit.epoch, before))
        except OSError as error:
            raise CommitFailed(f"foreachBatch: cannot write {self._mark}: {error}; {_AGAIN}") from error
        try:
            self._call(files, columns, permit.batch)
        except (Exception, SystemExit) as error:
            self._take_back(permit.epoch - 1 if before is None else before)
            raise CommitFailed(
                f"{_SPARKS_CONDITION} Reason: the function raised {type(error).__name__} on batch {permit.batch} "
                f"(epoch {permit.epoch}): {error}\n{_AGAIN}\n{''.join(traceback.format_exception(error))}"
            ) from error

    def retraction_problem(self, above: int, below: int) -> str:
        try:
            called = self._called()
        except OSError as error:
            raise SinkError(f"foreachBatch: cannot read {self._mark}: {error}") from error
        if called is not None and called <= above:
            return ""
        which = "" if called is None else f" up to epoch {called}"
        return f"its function was called with rows{which}, and Penstock cannot undo what it has done"

    def retract(self, above: int, below: int) -> None:
        """Do nothing: the function was not called for these epochs."""

    def _called(self) -> int | None:
        """Return the highest epoch for which the function may have been called; None if no mark exists."""
        try:
            return int(json.loads(self._mark.read_bytes())["epoch"])
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError) as error:
            raise SinkError(f"{self._mark} is not what Penstock wrote: {error}") from error

    def _set_called(self, epoch: int) -> None:
        replace_durably(self._mark, json.dumps({"epoch": epoch}).encode())

    def _take_back(self, before: int) -> None:
        """Lower the mark after a failed call. If that fails, a rollback may be refused although it is possible."""
        try:
            self._set_called(before)
        except OSError as error:
            log.warning("%s cannot be written, so a rollback may be refused: %s", self._mark, error)
