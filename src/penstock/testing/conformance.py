"""Conformance kit for authors of operators, sources and sinks: checks the contract under stops and restores.

A check knows the expected outcome from its arguments or from one run without interruption. Then it makes many seeded
runs: the input is cut into slices, snapshots are taken at random moments, and a new instance continues from one of
them. Snapshots are encoded and decoded as in a stored snapshot. The outcome must always be the same. A failure names
the seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa

from penstock.connectors.base import Sink, SinkContext, SinkWriter, Source, SourceReader
from penstock.decoding import decode_json
from penstock.model.commits import EpochCommit
from penstock.model.job_graph import OperatorSpec
from penstock.model.plain import Plain
from penstock.model.splits import Split
from penstock.operators.base import OperatorContext, RestoredState, ScalarPart
from penstock.snapshots.format.blobs import extract_blobs, insert_blobs
from penstock.state.memory_table import MemoryBackend
from penstock.state.table import StoredRows, TableCapture
from penstock.testing.failure import SimulationFailure
from penstock.worker.chain import Chain, open_stages

SCHEDULES = 50
"""Default number of seeded runs. For inputs of a few dozen rows, they cover each pair of possible events."""
MAX_PARALLELISM = 8
LOOKS = 1_000
"""Most calls of ``Source.discover``. The check does not read splits that a source would find later."""

Input: TypeAlias = pa.RecordBatch | int
"""Rows, or a watermark (microseconds): no row of a later batch has an earlier event time."""
Rows = Sequence[Mapping[str, Any]]
Outcome = Callable[[Rows], object]


def multiset(rows: Rows) -> object:
    """Return the rows with their counts, in any order. This is the outcome that counts for most operators."""
    return Counter(repr(list(row.items())) for row in rows)


# -- operators --------------------------------------------------------------------------------------------------------


def check_operators(
    specs: Sequence[OperatorSpec],
    inputs: Sequence[Input],
    outcome: Outcome = multiset,
    schedules: int = SCHEDULES,
) -> None:
    """Check that a chain of operators has the same outcome for any slices of its input and any stops and restores.

    Args:
        specs: the operators, in order. ``create`` is called again for every restore.
        inputs: the input, in order. The check cuts batches into slices at random rows.
        outcome: function of all output rows whose result must be equal. For output that depends on the ends of epochs
            (update mode) it may return, for example, the latest row of each key.
        schedules: number of seeded runs.

    Raises:
        SimulationFailure: a run differs from the one without interruption, or a watermark falls.
        Exception: an operator raised it.
    """
    expected = outcome(_ChainRun(specs, inputs, None).run())
    for seed in range(schedules):
        found = outcome(_ChainRun(specs, inputs, Random(seed)).run())
        if found != expected:
            raise SimulationFailure(f"seed {seed}: {found}\ninstead of {expected}", "operators")


@dataclass
class _Stored:
    """Snapshot of a chain: its state in stored form, and the positions of its input and output."""

    states: dict[str, tuple[dict[str, bytes], bytes]]
    watermark_us: int | None
    inputs: list[Input]
    rows: int


class _ChainRun:
    """One run of a chain. ``random``: None for the run without interruption."""

    def __init__(self, specs: Sequence[OperatorSpec], inputs: Sequence[Input], random: Random | None) -> None:
        self._specs = specs
        self._left = list(inputs)
        self._random = random
        self._rows: list[Mapping[str, Any]] = []
        self._watermark_us: int | None = None
        self._forwarded_us: int | None = None
        self._stored: _Stored | None = None
        self._restores_left = 3

    def run(self) -> Rows:
        with ExitStack() as closing:
            self._open({}, closing)
            while self._left or self._chain.advancing:
                self._step()
                if self._chance(0.25):
                    self._store()
                if self._stored is not None and self._restores_left and self._chance(0.1):
                    self._restores_left -= 1
                    self._restore(self._stored, closing)
            self._chain.finish_epoch()
        return self._rows

    def _chance(self, probability: float) -> bool:
        return self._random is not None and self._random.random() < probability

    def _step(self) -> None:
        if self._chain.advancing:
            self._chain.advance()
            return
        first = self._left.pop(0)
        if isinstance(first, int):
            self._watermark_us = first
            self._chain.watermark(first)
            return
        if self._random is not None and first.num_rows > 1 and self._chance(0.8):
            cut = self._random.randrange(1, first.num_rows)
            self._left.insert(0, first.slice(cut))
            first = first.slice(0, cut)
        if first.num_rows:
            self._chain.process(first)

    def _store(self) -> None:
        """Store the state as at a barrier: end the epoch, then capture."""
        self._chain.finish_epoch()
        states = {
            operator_id: ({name: _stored(table) for name, table in state.tables.items()}, _json(dict(state.scalars)))
            for operator_id, state in self._chain.snapshot().items()
        }
        self._stored = _Stored(states, self._watermark_us, list(self._left), len(self._rows))

    def _restore(self, stored: _Stored, closing: ExitStack) -> None:
        """Restore a new instance, and undo everything after the snapshot."""
        states = {
            operator_id: RestoredState(
                {name: _pieces(data) for name, data in tables.items()},
                [ScalarPart(0, 0, MAX_PARALLELISM - 1, msgspec.json.decode(scalars))],
            )
            for operator_id, (tables, scalars) in stored.states.items()
        }
        del self._rows[stored.rows :]
        self._left = list(stored.inputs)
        self._watermark_us = stored.watermark_us
        closing.close()
        self._open(states, closing)
        if self._watermark_us is not None:
            self._chain.watermark(self._watermark_us)

    def _open(self, states: Mapping[str, RestoredState], closing: ExitStack) -> None:
        def context(operator_id: str) -> OperatorContext:
            return OperatorContext(operator_id, 0, 1, MAX_PARALLELISM, MemoryBackend())

        self._forwarded_us = None
        self._chain = Chain(open_stages(self._specs, context, states, closing), self._emit, self._forward)

    def _emit(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.to_pylist()

    def _forward(self, watermark_us: int) -> None:
        if self._forwarded_us is not None and watermark_us < self._forwarded_us:
            raise SimulationFailure(f"the watermark falls from {self._forwarded_us} to {watermark_us}", "operators")
        self._forwarded_us = watermark_us


# -- sources ----------------------------------------------------------------------------------------------------------


def check_source(source: Source, schedules: int = SCHEDULES) -> None:
    """Check that a source yields every row once, in order, for any stops and restores of its readers.

    Args:
        source: a source whose content does not change, with at least one split. All splits must end.
        schedules: number of seeded runs.

    Raises:
        SimulationFailure: the rows of a run differ from those of the run without interruption.
    """
    expected = _read_all(source, None)
    for seed in range(schedules):
        found = _read_all(source, Random(seed))
        if found != expected:
            wrong = [split_id for split_id in expected if found.get(split_id) != expected[split_id]]
            raise SimulationFailure(f"seed {seed}: other rows, or in another order, in splits {wrong}", "sources")


def _read_all(source: Source, random: Random | None) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rows of every split, in order. Each split has its own reader."""
    state: Plain = None
    splits: list[Split] = []
    for _ in range(LOOKS):
        discovery = source.discover(state, 1)
        plain, blobs = extract_blobs(discovery.state)
        state = insert_blobs(msgspec.json.decode(_json(plain)), blobs)
        splits += discovery.splits
        if discovery.finished or not discovery.splits:
            break
    return {split.split_id: _read_split(source, split, random) for split in splits}


def _read_split(source: Source, split: Split, random: Random | None) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    stored: tuple[bytes, int] | None = None
    restores_left = 3
    reader = _open_reader(source, [split])
    while reader.snapshot():
        batch = reader.poll(1_000 if random is None else random.randrange(1, 8), 0)
        rows += [] if batch is None else batch.to_pylist()
        if random is None:
            continue
        if random.random() < 0.3:
            stored = msgspec.json.encode(list(reader.snapshot())), len(rows)
        if stored is not None and restores_left and random.random() < 0.2:
            restores_left -= 1
            reader.close()
            reader = _open_reader(source, decode_json(stored[0], list[Split]))
            del rows[stored[1] :]
    reader.close()
    return rows


def _open_reader(source: Source, splits: Sequence[Split]) -> SourceReader:
    reader = source.create_reader()
    reader.open(0, 1)
    for split in splits:
        reader.add_split(split)
    return reader


# -- sinks ------------------------------------------------------------------------------------------------------------


def check_sink(
    make: Callable[[int], tuple[Sink, Callable[[], Rows]]],
    batches: Sequence[pa.RecordBatch],
    schedules: int = SCHEDULES,
) -> None:
    """Check that every row of every committed epoch of a two-phase sink is visible once, for crashes at any point.

    Args:
        make: called with the number of the run. Returns a sink with its own target, and a function that returns the
            rows that are visible at the target.
        batches: the rows to write. Each epoch has one batch.
        schedules: number of seeded runs.

    Raises:
        SimulationFailure: rows are missing, duplicated, or visible before their epoch is committed.
    """
    for seed in range(schedules):
        sink, visible = make(seed)
        _SinkRun(sink, visible, batches, Random(seed)).run(seed)


@dataclass
class _SinkRun:
    """One run of a sink.

    Attributes:
        _done: number of batches in committed epochs.
        _prepared: uncommitted epochs of complete snapshots, each with its value of ``_done`` after the commit.
    """

    sink: Sink
    visible: Callable[[], Rows]
    batches: Sequence[pa.RecordBatch]
    random: Random
    _done: int = 0
    _epoch: int = 0
    _batch: int = 0
    _generation: int = 0
    _last: EpochCommit | None = None
    _logged: bool = False
    _prepared: list[tuple[EpochCommit, int]] = field(default_factory=list)

    def run(self, seed: int) -> None:
        while self._done < len(self.batches):
            self._one_generation()
            visible = multiset(self.visible())
            expected = multiset([row for batch in self.batches[: self._done] for row in batch.to_pylist()])
            if visible != expected:
                raise SimulationFailure(f"seed {seed}: a reader sees {visible}\ninstead of {expected}", "sinks")

    def _one_generation(self) -> None:
        """Run one generation. It begins as after a crash, and either crashes or commits all batches."""
        self._generation += 1
        committer = self.sink.create_committer()
        committer.open("query")
        if self._last is not None and not self._logged and self.random.random() < 0.5:
            committer.commit(self._last)  # the outcome was not logged, so the commit is repeated
        elif self._last is not None:
            self._logged = True
            committer.commits_logged(self._last.epoch)
        for permit, behind in self._prepared:
            self._commit(committer, permit, behind)
        self._prepared.clear()
        committer.abandon(self._generation - 1)
        writers = [self._writer(subtask) for subtask in range(2)]
        position, crash = self._done, self.random.random() < 0.6
        while position < len(self.batches):
            for part in _halves(self.batches[position], self.random):
                self.random.choice(writers).write(part)
            position += 1
            if crash and self.random.random() < 0.3:
                break  # a crash in the middle of an epoch
            self._epoch += 1
            prepared = {subtask: writer.prepare(self._epoch) for subtask, writer in enumerate(writers)}
            messages = {subtask: message for subtask, message in prepared.items() if message is not None}
            permit = EpochCommit("query", self._epoch, messages, self._batch)
            self._batch += bool(messages)
            if crash and self.random.random() < 0.3:
                self._prepared.append((permit, position))  # the snapshot is complete; a crash before the commit
                break
            self._commit(committer, permit, position)
        for writer in writers:
            writer.close()
        committer.close()

    def _commit(self, committer: Any, permit: EpochCommit, behind: int) -> None:
        committer.commit(permit)
        if self._last is not None and self.random.random() < 0.5:
            committer.commits_logged(self._last.epoch)  # a later log entry contains the commit
        self._last, self._logged, self._done = permit, False, behind

    def _writer(self, subtask: int) -> SinkWriter:
        writer = self.sink.create_writer()
        writer.open(SinkContext("query", self._generation, subtask, 2, f"{self.random.getrandbits(64):016x}"))
        return writer


def _halves(batch: pa.RecordBatch, random: Random) -> list[pa.RecordBatch]:
    cut = random.randrange(batch.num_rows + 1)
    return [part for part in (batch.slice(0, cut), batch.slice(cut)) if part.num_rows]


# -- stored form ------------------------------------------------------------------------------------------------------


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _stored(table: TableCapture) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.base(0, MAX_PARALLELISM - 1):
            writer.write_batch(batch)
    table.release()
    return bytes(sink.getvalue())


def _pieces(data: bytes) -> Iterator[StoredRows]:
    with pa.ipc.open_stream(data) as reader:
        for batch in reader:
            yield StoredRows(batch, is_delta=False)
