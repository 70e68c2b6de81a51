"""The sinks of simulated jobs: two-phase, into ``ExternalSystems``."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.base import Sink, SinkCommitter, SinkContext, SinkWriter
from penstock.model.commits import EpochCommit
from penstock.testing.failure import SimulationFailure
from simulator.jobs.external_systems import ExternalSystems
from simulator.jobs.rows import Columns, columns_of

Commits = Callable[[str], None]
"""``before`` and ``after`` every commit; may raise CommitFailed or CommitUnknown, or kill the driver."""


class _Writer(SinkWriter):
    def __init__(self, vertex: int, external: ExternalSystems) -> None:
        self._vertex = vertex
        self._outside = external
        self._columns: Columns = ([], [], [], [], [], [])
        self._context: SinkContext | None = None

    def open(self, context: SinkContext) -> None:
        self._context = context

    def write(self, batch: pa.RecordBatch) -> None:
        for column, more in zip(self._columns, columns_of(batch), strict=True):
            column += more

    def prepare(self, epoch: int) -> bytes | None:
        context = self._context
        assert context is not None
        if not self._columns[0]:
            return None
        key = f"v{self._vertex}-g{context.generation}-{context.attempt_token}-{context.subtask}-{epoch}"
        self._outside.stage(key, context.generation, self._columns)
        self._columns = ([], [], [], [], [], [])
        return key.encode()


class _Committer(SinkCommitter):
    def __init__(self, vertex: int, external: ExternalSystems, commits: Commits) -> None:
        self._vertex = vertex
        self._outside = external
        self._commits = commits
        self._logged = 0

    def commit(self, permit: EpochCommit) -> None:
        if permit.epoch <= self._logged:
            raise SimulationFailure(f"epoch {permit.epoch} comes again after {self._logged} was logged", "epochs")
        self._outside.handed_over(permit)
        self._commits("before")
        self._outside.commit(self._vertex, permit)
        self._commits("after")

    def commits_logged(self, epoch: int) -> None:
        self._logged = epoch
        self._outside.commits_logged(epoch)

    def abandon(self, generation: int, pending: Collection[bytes] = ()) -> None:
        self._outside.abandon(generation, [message.decode() for message in pending])


@dataclass(frozen=True)
class SimulatedSink(Sink):
    vertex: int
    external: ExternalSystems
    commits: Commits

    def describe(self) -> str:
        return f"SimulatedSink[{self.vertex}]"

    def create_writer(self) -> SinkWriter:
        return _Writer(self.vertex, self.external)

    def create_committer(self) -> SinkCommitter:
        return _Committer(self.vertex, self.external, self.commits)
