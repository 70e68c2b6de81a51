"""Source task: the input of a source subtask. It holds the reader and its splits, and requests more.

A split is requested when none is left. A reader is idle when nothing is left to read and all rows have left the chain,
including rows that user functions held. It reports when it becomes idle or busy. The watermark of an idle reader is
final: the assigner may conclude from the statuses alone that all sources are idle, with no split in flight to a reader
that seems idle. A reader is also idle if all its splits are endless ones without rows now. If these splits are frozen,
it has then read them to their end.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.connectors.base import BATCH_BYTES, SourceReader
from penstock.errors import ProtocolViolation
from penstock.model.ids import CheckpointId, SubtaskId
from penstock.model.messages import PollCompleted, ReaderStatus, RequestSplit
from penstock.model.metrics import Backlog
from penstock.model.splits import Split
from penstock.worker.host import SubtaskHost

HELD_MS = 1_000.0
"""Time in milliseconds without input after which calls of functions that hold rows are ended.

It limits both the number of calls and the delay of results.
"""


class SourceTask:
    """Source loop of one subtask. Owned by the subtask's thread.

    Args:
        reader: the open reader.
        splits: the restored splits.
        subtask: id of the subtask.
        host: sends messages to the assigner.
    """

    def __init__(self, reader: SourceReader, splits: Sequence[Split], subtask: SubtaskId, host: SubtaskHost) -> None:
        self._reader = reader
        self._subtask = subtask
        self._host = host
        self._requested = False
        self._received = 0
        self._reported_idle = False
        self._reported_us: tuple[int | None, int | None] = None, None
        self._rise_us: int | None = None
        self._next_rise_us: int | None = None
        self._frontier: frozenset[str] = frozenset()
        self._frozen = self._paused = False
        self._drained = False
        self._poll_number: int | None = None
        self._captures: dict[CheckpointId, Sequence[Split]] = {}
        self._poll_at_ms: float | None = None
        self._held_since_ms: float | None = None
        self._unfinished: tuple[Split, ...] = ()
        for split in splits:
            reader.add_split(split)
        self._unfinished = tuple(reader.snapshot())
        self._restored = frozenset(split.split_id for split in self._unfinished)
        self.one_by_one = len(self._restored) > 1 and not (
            reader.reads_splits_concurrently or reader.interleaves_splits
        )
        """True if several splits, restored from as many readers, are read one after the other."""

    @property
    def caught_up(self) -> bool:
        """True if all restored splits are read or will never be read."""
        if self._restored:
            self._restored &= {split.split_id for split in self._unfinished}
        return not self._restored

    @property
    def wake_at_ms(self) -> float | None:
        """Time of the next useful ``poll``. None: at once, or not before splits are assigned or the pause ends."""
        return None if self._paused else self._poll_at_ms

    @property
    def finished(self) -> bool:
        """True if everything assigned so far was read; of endless splits, everything that they deliver in this run."""
        return not self._unfinished or (self._frozen and self._reader.caught_up())

    @property
    def position(self) -> str:
        """Start of the next batch, for errors."""
        if not self._unfinished:
            return "no split"
        first = self._unfinished[0]
        return f"split {first.split_id} at {first.position}"

    def assigned(self, splits: Sequence[Split]) -> None:
        """Handle the answer to the request."""
        if not self._requested:
            raise ProtocolViolation(f"source {self._subtask}", "no split requested", f"{len(splits)} splits")
        self._received += len(splits)
        self._requested = self._reported_idle = False
        for split in splits:
            self._reader.add_split(split)
        self._unfinished = tuple(self._reader.snapshot())
        self._poll_at_ms = None

    def poll_again(self, number: int) -> None:
        """Ask the external system for its current input.

        ``report`` answers when all rows that exist now are processed.
        """
        self._poll_number = number
        self._reader.refresh()
        self._poll_at_ms = None

    def freeze(self) -> None:
        """End endless splits with the input that exists now. The open request becomes void; ``report`` repeats it."""
        self._frozen = True
        self._requested = self._reported_idle = False
        self._reader.freeze()
        self._poll_at_ms = None

    def pause(self, paused: bool) -> None:
        """Stop or resume reading. Splits that are assigned meanwhile wait."""
        self._paused = paused

    def drain(self) -> None:
        """Drop the rest of endless splits, because event time has ended. It is neither read nor kept."""
        self._drained = True
        self._unfinished = ()
        self._poll_at_ms = None

    def backlog(self) -> Backlog | None:
        """Return the backlog of the endless splits, or None if the reader does not report one."""
        rows = self._reader.lags()
        return Backlog(rows=sum(rows), least=min(rows), most=max(rows), splits=len(rows)) if rows else None

    def poll(self, max_rows: int, now_ms: float, max_bytes: int = BATCH_BYTES) -> pa.RecordBatch | None:
        """Return the next rows, or None if there are none now."""
        if self._paused or not self._unfinished or (self._poll_at_ms is not None and now_ms < self._poll_at_ms):
            return None
        self._reader.batch_bytes = max_bytes
        batch = self._reader.poll(max_rows, int(now_ms))
        self._unfinished = tuple(self._reader.snapshot())
        if batch is None and self._unfinished:
            self._poll_at_ms = now_ms + max(1, self._reader.wake_after_ms())
        else:
            self._poll_at_ms = None
        return batch

    def may_rise(self, watermark_us: int) -> None:
        """Let event time rise to this watermark after the frontier, which is recorded now.

        If a frontier is already recorded, the next one is recorded after that has been passed: a recorded frontier
        never moves.
        """
        if self._rise_us is not None:
            self._next_rise_us = max(watermark_us, self._next_rise_us or watermark_us)
            return
        self._rise_us = watermark_us
        self._frontier = frozenset(split.split_id for split in self._unfinished)
        self._reader.begin_frontier()
        self._poll_at_ms = None

    @property
    def rises(self) -> bool:
        """True while rows up to a recorded frontier are not read yet."""
        return self._rise_us is not None

    def risen(self) -> int | None:
        """Return the watermark to which event time may rise now, once. Return None if there is none.

        Call it when all polled rows have been processed.
        """
        if self._rise_us is None or not self._frontier_passed():
            return None
        risen_us, self._rise_us = self._rise_us, None
        if self._next_rise_us is not None:
            next_us, self._next_rise_us = self._next_rise_us, None
            self.may_rise(next_us)
        return risen_us

    def _frontier_passed(self) -> bool:
        if not self._frontier or (self._frozen and self._reader.caught_up()):
            return True
        passed = self._reader.frontier_passed()
        return self._frontier.isdisjoint(split.split_id for split in self._unfinished) if passed is None else passed

    @property
    def _nothing_to_read(self) -> bool:
        return not self._unfinished or self._reader.caught_up()

    @property
    def _poll_passed(self) -> bool:
        return self._poll_number is not None and (not self._unfinished or self._reader.refresh_passed())

    def releases(self, now_ms: float) -> bool:
        """Return True if functions must yield the rows that they hold.

        They must do so when a requested poll has been read, when nothing is left to read and no more comes, or when
        nothing has come for ``HELD_MS``. Call it while they hold rows and all polled rows have been processed.
        """
        if not self._nothing_to_read:
            self._held_since_ms = None
            return self._poll_passed
        if self._held_since_ms is None:
            self._held_since_ms = now_ms
        return self._poll_passed or self._frozen or now_ms >= self._held_since_ms + HELD_MS

    @property
    def release_at_ms(self) -> float | None:
        """Time at which ``releases`` returns True by the clock; None if it is not known."""
        return None if self._held_since_ms is None else self._held_since_ms + HELD_MS

    def report(self, seen_us: int | None, sent_us: int | None, holds_rows: bool = False) -> None:
        """Report a change of the reader's status, and request a split if there is nothing to read.

        Call it when all polled rows have been processed. A reader that reads several splits at a time always has an
        open request. When an idle reader of an endless split finds rows again, it reports that; its request stays open.

        Args:
            seen_us: the largest watermark that the reader has seen.
            sent_us: the watermark that it has sent.
            holds_rows: True if functions hold rows. Then the reader is not idle, but may still request a split.
        """
        if not holds_rows:
            self._held_since_ms = None
        vertex, index = self._subtask.vertex, self._subtask.index
        idle = self._nothing_to_read and not holds_rows
        changed = idle != self._reported_idle or (idle and self._reported_us != (seen_us, sent_us))
        requests = not self._requested and (idle or self._reader.reads_splits_concurrently or not self._unfinished)
        if changed or requests:
            self._reported_idle, self._reported_us = idle, (seen_us, sent_us)
            unread = 0 if idle else max(1, len(self._unfinished))
            status = ReaderStatus(vertex, index, unread, self._received, seen_us, sent_us, self._frozen)
            self._host.tell_assigner(status)
        if requests:
            self._requested = True
            self._host.tell_assigner(RequestSplit(vertex, index, self._frozen))
        if self._poll_number is not None and self._poll_passed and not holds_rows:
            self._host.tell_assigner(PollCompleted(vertex, index, self._poll_number))
            self._poll_number = None

    def end_epoch(self, checkpoint: CheckpointId) -> Sequence[Split]:
        """Return the unfinished splits as they are after the last row of the checkpoint's epoch."""
        self._reader.epoch_ended()
        self._captures[checkpoint] = splits = self._reader.snapshot()
        return () if self._drained else splits

    def completed(self, checkpoint: CheckpointId) -> None:
        """Notify the reader that the checkpoint is complete. Older ones are superseded."""
        splits = self._captures.get(checkpoint)
        self._captures = {later: kept for later, kept in self._captures.items() if later > checkpoint}
        if splits is not None:
            self._reader.committed(splits)

    def aborted(self, checkpoint: CheckpointId) -> None:
        """Drop the state kept for the checkpoint."""
        self._captures.pop(checkpoint, None)
