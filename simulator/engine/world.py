"""World of a simulation: the objects that all of its actors share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import FunctionError
from penstock.model.ids import SubtaskId
from penstock.model.job_graph import JobGraph
from penstock.snapshots.catalog import sections_of
from penstock.snapshots.commands.ownership import ended_entry
from penstock.snapshots.commands.rolling_back import opened_entry
from penstock.snapshots.log.entries import SnapshotRecord
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.restoring.local_state import LocalStateStore
from penstock.testing.failure import SimulationFailure
from simulator.counters import Counters
from simulator.engine.coroutine import Coroutine, suspend
from simulator.engine.run_context import RunContext
from simulator.engine.scheduler import Actor, Scheduler
from simulator.engine.store import Crash, SimulatedStore
from simulator.jobs.external_systems import ExternalSystems
from simulator.oracles.former_subtasks import FormerSubtasks
from simulator.oracles.log import LogWatch
from simulator.settings import Settings

if TYPE_CHECKING:
    from simulator.cluster.driver import SimulatedDriver
    from simulator.cluster.generation import SimulatedGeneration
    from simulator.cluster.slot import SimulatedSlot, ToDriver

SUSPEND_CHANCE = 0.3
"""So many effects are steps of their own; with the others, what follows belongs to the same step."""
LONGEST_CALL_MS = 3_000.0
"""No call of user code takes longer, however slow its rows are."""


class Process(Protocol):
    """Something that can be killed: a slot or a driver."""

    name: str
    alive: bool

    def die(self) -> None:
        """Like ``kill -9``."""


class Interference(Protocol):
    """Injection points for faults; see ``faults``."""

    def effect(self, process: Process, operation: str, path: str, phase: str) -> None:
        """Called around an effect on the store: may raise OSError or kill the process."""

    def user_call(self, subtask: SubtaskId) -> bool:
        """Return True if this call of user code raises."""

    def cost_ms(self, subtask: SubtaskId, rows: int) -> float | None:
        """Return the duration of processing rows instead of the usual one; None: the usual one."""

    def answer(self, driver: SimulatedDriver, slot: SimulatedSlot, message: ToDriver) -> None:
        """Called when a slot's message is about to reach its driver."""

    def deployed(self, generation: SimulatedGeneration, inflight_rows: int) -> None:
        """Called when a Generation with this many in-flight rows to replay begins."""

    def commits(self, phase: str) -> None:
        """Called ``before`` and ``after`` a commit: may raise CommitFailed or CommitUnknown."""


class World:
    """Shared objects of one run; made by ``Simulation``.

    Attributes:
        process: process that acts now, if it may block.
        newest_generation: the newest Generation that was ever opened.
        quiet: True once nothing new begins: no checkpoint, no discovery, no heartbeat.
    """

    def __init__(
        self,
        settings: Settings,
        context: RunContext,
        counters: Counters,
        store: SimulatedStore,
        external: ExternalSystems,
    ) -> None:
        self.settings = settings
        self.context = context
        self.counters = counters
        self.store = store
        self.external = external
        self.scheduler = Scheduler(context, settings.pace_ms)
        self.log = LogWatch(store, counters)
        self.log.on_passed_over = external.truncate
        external.log = self.log
        self.options = settings.options()
        self.process: Process | None = None
        self.on_query_ended: Callable[[SimulatedDriver], None] = lambda driver: None
        self.interference: Interference | None = None
        self.newest_generation = 0
        self.former_subtasks = FormerSubtasks()
        self.quiet = False
        self.edited: int | None = None
        """The edge that the present graph has edited."""
        self.workers: dict[int, LocalStateStore] = {}
        """What slots that were ended from outside have left in their workers, by their number."""
        self.graph: JobGraph
        self._originals: dict[str, bytes] = {}
        store.happens = self._happens
        store.on_created = self.log.created
        store.on_deleted = self.log.deleted

    # -- what happens to snapshots --------------------------------------------------------------------------------

    def some_file_of_newest_snapshot(self) -> str | None:
        """Return a random file that a recovery would read; None without a snapshot."""
        record = next(iter(reversed(self.log.view.lineage)), None)
        if record is None:
            return None
        metadata = self.log.complete[record.checkpoint]
        paths = sorted({ref.path for ref in sections_of(metadata)} | {record.metadata.path})
        return self.context.random.choice([path for path in paths if self.store.files.get(path)])

    def tamper(self, path: str, change: Callable[[bytes], bytes]) -> None:
        """Change a file without the knowledge of the query."""
        self._originals.setdefault(path, self.store.files[path])
        self.store.files[path] = change(self.store.files[path])
        self.log.may_pass_over = self.settings.allow_older

    @property
    def tampered(self) -> bool:
        """True while changed files are in the store."""
        return bool(self._originals)

    def repair(self) -> None:
        """Restore the changed files from a copy, after a recovery has reported one as corrupt."""
        if not self.tampered:
            raise SimulationFailure("a snapshot is corrupt that nobody touched", "references")
        for path, data in self._originals.items():
            if path in self.store.files:
                self.store.files[path] = data
        self._originals.clear()
        self.log.may_pass_over = False

    def roll_back(self, record: SnapshotRecord) -> None:
        """Append the two log entries of ``rollback``; the output is retracted at once."""
        log = SnapshotLog(self.store, self.context.token)
        log.refresh()
        may_pass_over, self.log.may_pass_over = self.log.may_pass_over, True
        log.append(opened_entry(log.view, record, None))
        self.log.may_pass_over = may_pass_over
        log.append(ended_entry(log.view))

    def untouched_files(self) -> dict[str, bytes]:
        """Return the store's files as they would be without changes by ``tamper``."""
        files = dict(self.store.files)
        files.update((path, data) for path, data in self._originals.items() if path in files)
        return files

    def run_as(self, process: Process, coroutine: Coroutine) -> bool:
        """Resume blocking work of a process; return True if it has ended.

        Raises:
            Crash: the process died during it.
        """
        self.process = process
        try:
            return coroutine.resume()
        finally:
            self.process = None

    def later(self, delay_ms: float, function: Callable[[], None]) -> None:
        """Call a function after a delay."""

        def act() -> bool:
            function()
            return False

        self.scheduler.wake(Actor("later", act), self.context.now_ms + delay_ms)

    # -- Workload -------------------------------------------------------------------------------------------------

    @property
    def generation_number(self) -> int:
        return self.newest_generation

    def spend_time(self, subtask: SubtaskId, rows: int) -> None:
        usual_ms = self.settings.nodes[subtask.vertex].cost_ms * rows
        if self.interference is not None:
            if self.interference.user_call(subtask):
                raise FunctionError(f"v{subtask.vertex}", f"transient, at step {self.context.steps}", "")
            cost_ms = self.interference.cost_ms(subtask, rows)
            usual_ms = usual_ms if cost_ms is None else cost_ms
        self.context.spent_ms += min(usual_ms, LONGEST_CALL_MS)

    def commits(self, phase: str) -> None:
        """Around a sink's commit."""
        if self.interference is not None:
            self.interference.commits(phase)
        self._happens("commit", "sink", phase)

    def _happens(self, operation: str, path: str, phase: str) -> None:
        process = self.process
        if process is None:
            return
        if self.interference is not None:
            self.interference.effect(process, operation, path, phase)
        if self.context.random.random() < SUSPEND_CHANCE:
            suspend()
            self.process = process
            if not process.alive:
                raise Crash
