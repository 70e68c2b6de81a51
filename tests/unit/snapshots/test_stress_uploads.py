"""The uploader between two subtasks, a driver that gives checkpoints up at any moment, and a store that fails now and
then: every checkpoint is answered once or was aborted, what is acknowledged holds exactly its rows and its state,
nothing is kept.
"""

from __future__ import annotations

import errno
import inspect
import queue
import random
import time
from collections.abc import Iterator

import pytest

from penstock.model.elements import Captured, Side
from penstock.model.ids import ChannelId, SubtaskId
from penstock.model.manifest import SlotManifest
from penstock.model.messages import AcknowledgeCheckpoint, DeclineCheckpoint
from penstock.operators.base import OperatorState
from penstock.snapshots.format.sections import data_path, state_path
from penstock.snapshots.restoring.restore import load_inflight, load_restore
from penstock.snapshots.store.store import Effect, MemoryStore
from penstock.snapshots.writing import capture_queue
from penstock.snapshots.writing.capture_queue import CaptureLimits
from penstock.snapshots.writing.slot_writer import SlotWriter
from penstock.worker import checkpoint_uploader as uploads
from penstock.worker.checkpoint_uploader import CheckpointUploader
from simulator.jobs.count_table import CountCapture, CountTable, merged
from simulator.jobs.rows import state_schema
from tests.support.interrupted import ANYWHERE, OFTEN, Times, switching, together
from tests.support.snapshots.snapshot_kit import COUNT, capture, captured, graph, rows

CHANNELS = {
    SubtaskId(0, 0): (ChannelId(0, 0, 0), Side.PRODUCER),
    SubtaskId(1, 0): (ChannelId(0, 1, 0), Side.CONSUMER),
}
AT_ONCE = 6
LEAST_COMPLETE = 20
"""Where threads hardly get a turn most checkpoints are given up first; of fewer nothing can be said."""
ANSWER_S = 10.0


@pytest.fixture(params=[OFTEN, ANYWHERE])
def times(request: pytest.FixtureRequest) -> Iterator[Times]:
    with switching(request.param, {inspect.getfile(uploads), inspect.getfile(capture_queue)}) as made:
        yield made


def seqs_of(checkpoint: int) -> range:
    """Buffers in flight at a checkpoint: some of them at the next one as well."""
    return range(checkpoint // 3, checkpoint // 3 + 4)


def in_flight(subtask: SubtaskId, seq: int) -> list[Captured]:
    channel, side = CHANNELS[subtask]
    return [captured(channel, side, seq, rows(2 * seq, 2 * seq + 1))]


class Storm:
    """``run`` takes ``count`` checkpoints, and more until enough are complete; the three threads in it are the driver
    and two subtasks."""

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self.taken = 0
        self.chance = random.Random(seed)
        self.store = MemoryStore()
        self.store.hook = self._fail_at_times
        self.crashes: list[BaseException] = []
        self.answers: queue.SimpleQueue[AcknowledgeCheckpoint | DeclineCheckpoint] = queue.SimpleQueue()
        limits = CaptureLimits(None, 1 << 30)
        self.uploader = CheckpointUploader(self.store, graph(), 1, 0, limits, self.answers.put, self.crashes.append)
        self.uploader._writer = SlotWriter(self.store, graph(), 1, 0, whole_bytes=0)
        self.captures: list[CountCapture] = []
        self.states: dict[tuple[int, SubtaskId], dict[int, int]] = {}
        self.barriers: dict[SubtaskId, queue.SimpleQueue[int | None]] = {s: queue.SimpleQueue() for s in CHANNELS}
        self.complete: dict[int, SlotManifest] = {}
        self.declined: list[int] = []
        self.aborted: set[int] = set()
        self.late: set[int] = set()

    def _fail_at_times(self, effect: Effect) -> None:
        often = 0.0002 if effect.path.endswith("-state.arrows") else 0.01  # state takes many writes
        if effect.operation == "write" and random.random() < often:
            raise OSError(errno.ENOSPC, "No space left on device")

    def subtask(self, subtask: SubtaskId) -> None:
        chance = random.Random(subtask.vertex)
        table = CountTable(state_schema("key", "count"), 128)
        table.update(((key,), 0) for key in range(60))
        while (checkpoint := self.barriers[subtask].get()) is not None:
            for key in chance.sample(range(70), 4):
                table[key,] = checkpoint
            table.pop((chance.randrange(70),), None)
            for seq in seqs_of(checkpoint):
                self.uploader.recorded(subtask, checkpoint, in_flight(subtask, seq))
            taken = table.capture()
            self.captures.append(taken)
            self.states[checkpoint, subtask] = {key: count for (key,), count in table.items()}
            operators = {COUNT: OperatorState({"counts": taken})}
            if chance.random() < 0.1:
                self.uploader.dropped(list(operators.values()))
                self.uploader.declined(checkpoint, "no")
            else:
                self.uploader.captured(capture(subtask.vertex, 0, checkpoint, operators=operators))

    def driver(self) -> None:
        pending: set[int] = set()
        for checkpoint in range(1, 20 * self.count):
            if checkpoint > self.count and len(self.complete) >= LEAST_COMPLETE:
                break
            self.taken = checkpoint
            self._trigger(checkpoint)
            pending.add(checkpoint)
            while len(pending) >= AT_ONCE or not self.answers.empty():
                self._take_answer(pending)
            if pending and self.chance.random() < 0.3:
                given_up = self.chance.choice(sorted(pending))
                pending.remove(given_up)
                self.aborted.add(given_up)
                self.uploader.aborted(given_up)
        while pending:
            self._take_answer(pending)
        for barriers in self.barriers.values():
            barriers.put(None)

    def _trigger(self, checkpoint: int) -> None:
        base = max(self.complete, default=0)
        steps = [lambda: self.uploader.triggered(checkpoint, base)]
        steps += [lambda b=barriers: b.put(checkpoint) for barriers in self.barriers.values()]  # type: ignore[misc]
        self.chance.shuffle(steps)  # a barrier may be faster than the trigger
        for step in steps:
            step()

    def _take_answer(self, pending: set[int]) -> None:
        try:
            answer = self.answers.get(timeout=ANSWER_S)
        except queue.Empty:
            pytest.fail(f"checkpoints {sorted(pending)} are never answered")
        checkpoint = answer.checkpoint
        if checkpoint in self.aborted:
            assert checkpoint not in self.late, "answered twice"
            self.late.add(checkpoint)
            return
        pending.remove(checkpoint)  # KeyError: answered twice
        if isinstance(answer, AcknowledgeCheckpoint):
            self.complete[checkpoint] = answer.manifest
        else:
            self.declined.append(checkpoint)

    def run(self) -> None:
        self.uploader.thread.start()
        together(self.driver, *(lambda s=subtask: self.subtask(s) for subtask in CHANNELS))  # type: ignore[misc]
        deadline = time.monotonic() + ANSWER_S
        while self.uploader.held_bytes or self.left:
            assert time.monotonic() < deadline, f"held for nothing: {self.uploader.held_bytes} bytes, {self.left}"
            time.sleep(0.001)
        self.uploader.stop()
        self.uploader.thread.join(ANSWER_S)
        assert not self.uploader.thread.is_alive()
        assert self.crashes == []
        assert all(taken._released for taken in self.captures)

    @property
    def left(self) -> set[str]:
        """Files of dead checkpoints, less those whose acknowledgement and abort crossed: the driver collects these."""
        known = [*self.complete, *self.late]
        return set(self.store.files) - {path(1, c, 0) for c in known for path in (data_path, state_path)}

    def assert_exact(self) -> None:
        self.store.hook = None
        for checkpoint, manifest in self.complete.items():
            expected = [key for seq in seqs_of(checkpoint) for key in (2 * seq, 2 * seq + 1)]
            for subtask in manifest.subtasks:
                batches = [batch for entry in subtask.inflight for batch in load_inflight(self.store, entry)]
                found = [key for batch in batches for key in batch.column(0).to_pylist()]
                place = f"checkpoint {checkpoint}, subtask of vertex {subtask.vertex}"
                assert found == expected, place
                pieces = load_restore(subtask, self.store).operators[COUNT].tables["counts"]
                state = dict(merged(pieces, 1))  # type: ignore[arg-type]
                assert state == self.states[checkpoint, SubtaskId(subtask.vertex, subtask.index)], place


def test_every_checkpoint_is_answered_once_and_holds_its_rows(times: Times) -> None:
    storm = Storm(times(600), seed=7)
    storm.run()
    storm.assert_exact()
    counts = len(storm.complete), len(storm.aborted), len(storm.declined)
    assert sum(counts) == storm.taken
    assert min(counts) > 0, f"nothing complete, aborted or declined: {counts}"
    files = {path(1, checkpoint, 0) for checkpoint in storm.complete for path in (data_path, state_path)}
    subtasks = [subtask for manifest in storm.complete.values() for subtask in manifest.subtasks]
    assert sum(any(e.kind == "delta" for e in subtask.states) for subtask in subtasks) > len(subtasks) / 4
    referred = {e.section.path for s in subtasks for e in [*s.inflight, *s.states]}
    assert referred <= files, "a reference into a checkpoint that is not complete"
    assert storm.left == set()
