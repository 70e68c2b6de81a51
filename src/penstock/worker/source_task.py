"""A source subtask's input: the reader, its splits, and asking for more.

A split is requested when none is left. A reader is idle when nothing is left to read and all rows have left the chain,
including those that user functions held. A request says if the reader is idle; a reader that becomes idle after its
request requests again. The watermark of an idle reader is final: the assigner may conclude from the requests alone that
all sources are dry, with no split in flight to a reader that seems idle. A reader whose only splits are endless ones
without rows now is idle as well, and reports each change. If these splits are frozen, it has then read them to their
end.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.connectors.base import BATCH_BYTES, SourceReader
from penstock.errors import ProtocolViolation
from penstock.model.ids import CheckpointId, SubtaskId
from penstock.model.messages import SplitRequest
from penstock.model.splits import Split
from penstock.worker.host import SubtaskHost

HELD_MS = 1_000.0
"""Time without input after which calls of functions that hold rows are ended. It limits both the number of calls and
the delay of results."""

BEHIND = ("source_behind_rows", "source_behind_least", "source_behind_most", "source_behind_splits")
"""Counters of a source's subtask: see ``penstock.coordinator.view.Behind``."""


class SourceTask:
    """Owned by the subtask's thread. ``reader`` is open; ``splits`` are the restored ones."""

    def __init__(self, reader: SourceReader, splits: Sequence[Split], subtask: SubtaskId, host: SubtaskHost) -> None:
        self._reader = reader
        self._subtask = subtask
        self._host = host
        self._asked = False
        self._requests = 0
        self._received = 0
        self._told_idle = False
        self._told_us: tuple[int | None, int | None] = None, None
        self._rise_us: int | None = None
        self._next_rise_us: int | None = None
        self._frontier: frozenset[str] = frozenset()
        self._frozen = self._paused = False
        self._drained = False
        self._look: int | None = None
        self._captures: dict[CheckpointId, Sequence[Split]] = {}
        self._poll_at_ms: float | None = None
        self._held_since_ms: float | None = None
        self._unfinished: tuple[Split, ...] = ()
        for split in splits:
            reader.add_split(split)
        self._unfinished = tuple(reader.snapshot())
        self._restored = frozenset(split.split_id for split in self._unfinished)
        self.one_by_one = len(self._restored) > 1 and not (reader.side_by_side or reader.takes_turns)
        """Several splits were restored, from as many readers, and are read one after the other."""

    @property
    def caught_up(self) -> bool:
        """What was restored is read, or will never be."""
        if self._restored:
            self._restored &= {split.split_id for split in self._unfinished}
        return not self._restored

    @property
    def wake_at_ms(self) -> float | None:
        """When the next ``poll`` is worth while; None: not before splits are assigned, while paused, or at once."""
        return None if self._paused else self._poll_at_ms

    @property
    def finished(self) -> bool:
        """Everything assigned so far was read; of endless splits what there will be in this run."""
        return not self._unfinished or (self._frozen and self._reader.caught_up())

    @property
    def position(self) -> str:
        """Where the next batch starts, for errors."""
        if not self._unfinished:
            return "no split"
        first = self._unfinished[0]
        return f"split {first.split_id} at {first.position}"

    def assigned(self, splits: Sequence[Split]) -> None:
        """The answer to the request."""
        if not self._requests:
            raise ProtocolViolation(f"source {self._subtask}", "nothing asked for", f"{len(splits)} splits")
        self._requests -= 1
        self._received += len(splits)
        self._asked = False
        self._told_idle = False
        for split in splits:
            self._reader.add_split(split)
        self._unfinished = tuple(self._reader.snapshot())
        self._poll_at_ms = None

    def look(self, number: int) -> None:
        """Begin a look: ``ask`` answers with this number when all rows that it finds have been processed."""
        self._look = number
        self._reader.look()
        self._poll_at_ms = None

    def freeze(self) -> None:
        """What is there now is all; what was asked for is void. ``ask`` asks anew."""
        self._frozen = True
        self._asked = self._told_idle = False
        self._requests = 0
        self._reader.freeze()
        self._poll_at_ms = None

    def pause(self, paused: bool) -> None:
        """Read nothing, or go on. Splits that are assigned meanwhile wait."""
        self._paused = paused

    def drain(self) -> None:
        """Event time has ended: what is left of endless splits is not read, by nobody, and not kept."""
        self._drained = True
        self._unfinished = ()
        self._poll_at_ms = None

    def counters(self) -> dict[str, int]:
        """How far endless splits are behind what is there (gauges); nothing where the reader cannot tell."""
        behind = self._reader.behind()
        if not behind:
            return {}
        figures = (sum(behind), min(behind), max(behind), len(behind))
        return dict(zip(BEHIND, figures, strict=True))

    def poll(self, max_rows: int, now_ms: float, max_bytes: int = BATCH_BYTES) -> pa.RecordBatch | None:
        """The next rows, or None if there are none now."""
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

        If a frontier is recorded already, the next one is recorded after it has been passed: a recorded frontier never
        moves.
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
        """Return the watermark to which event time may rise now, once; None if there is none.

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
    def _look_passed(self) -> bool:
        return self._look is not None and (not self._unfinished or self._reader.look_passed())

    def releases(self, now_ms: float) -> bool:
        """Return True if functions must yield the rows that they hold: what a look found has been read, or nothing is
        left to read and no more comes, or nothing has come for ``HELD_MS``. Call it while they hold rows and all polled
        rows have been processed."""
        if not self._nothing_to_read:
            self._held_since_ms = None
            return self._look_passed
        if self._held_since_ms is None:
            self._held_since_ms = now_ms
        return self._look_passed or self._frozen or now_ms >= self._held_since_ms + HELD_MS

    @property
    def release_at_ms(self) -> float | None:
        """Time at which ``releases`` returns True by the clock; None if it is not known."""
        return None if self._held_since_ms is None else self._held_since_ms + HELD_MS

    def ask(self, reached_us: int | None, announced_us: int | None, holds_rows: bool = False) -> None:
        """Ask for a split if there is nothing to read; to be called when all rows polled have been processed.

        An idle reader of an endless split that found rows again takes its being idle back; its request stays. One that
        reads side by side always has a request out. An idle one reports a change of its watermarks.

        Args:
            reached_us: the largest watermark that the reader has seen.
            announced_us: the watermark that it has sent.
            holds_rows: functions hold rows. Then the reader is not idle, but may still request a split.
        """
        if not holds_rows:
            self._held_since_ms = None
        idle = self._nothing_to_read and not holds_rows
        changed = idle != self._told_idle or (idle and self._told_us != (reached_us, announced_us))
        if changed or (not self._asked and (self._reader.side_by_side or not self._unfinished)):
            self._told_idle, self._told_us = idle, (reached_us, announced_us)
            self._asked = True
            self._requests += 1
            holding = 0 if idle else max(1, len(self._unfinished))
            vertex, index = self._subtask.vertex, self._subtask.index
            self._host.request_split(
                SplitRequest(vertex, index, holding, reached_us, self._received, self._frozen, announced_us)
            )
        if self._look is not None and self._look_passed and not holds_rows:
            self._host.looked(self._subtask, self._look)
            self._look = None

    def end_epoch(self, checkpoint: CheckpointId) -> Sequence[Split]:
        """The unfinished splits, behind the last row of the checkpoint's epoch."""
        self._reader.epoch_ended()
        self._captures[checkpoint] = splits = self._reader.snapshot()
        return () if self._drained else splits

    def completed(self, checkpoint: CheckpointId) -> None:
        """The checkpoint's snapshot exists. Of older ones nothing is news any more."""
        splits = self._captures.get(checkpoint)
        self._captures = {later: kept for later, kept in self._captures.items() if later > checkpoint}
        if splits is not None:
            self._reader.committed(splits)

    def aborted(self, checkpoint: CheckpointId) -> None:
        self._captures.pop(checkpoint, None)
