"""A query of some shape, what is done to it, and the story of that."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from penstock.config import Backend
from penstock.coordinator.view import ExecutionView, RestartView
from penstock.errors import CheckpointFailed
from penstock.model.elements import Alignment
from tests.scenarios.checking import faults
from tests.scenarios.shapes import SMALL, Shape
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import Running, run

WAIT_S = 60.0
"""For anything: machines may be slow, but nothing is stuck so long."""


class Story:
    """Starts the query. ``told`` is what happened so far.

    Args:
        shape: of the job.
        folder: empty; the output and the checkpoint location go there.
        launcher: of the slots.
        parallelism, alignment: to begin with.
        crowded: each record takes long while the story lasts, so that queues are full; otherwise the sources are slow
            instead, and nothing waits anywhere.
        slower: so many times as long.
        backend: of state.
        options: of the query, besides those of the shape.
    """

    def __init__(
        self,
        shape: Shape,
        folder: Path,
        launcher: ProcessLauncher,
        parallelism: int,
        alignment: Alignment = Alignment.UNALIGNED,
        crowded: bool = True,
        slower: int = 1,
        backend: Backend = Backend.MEMORY,
        **options: int,
    ) -> None:
        self._shape = shape
        self._out, self._location = folder / "out", folder / "chk"
        self._out.mkdir()
        self._launcher = launcher
        self._options = {**SMALL, **shape.options, **options}
        self._backend = backend
        self._began_s = time.monotonic()
        self.told: list[str] = []
        self.restarts: list[RestartView] = []
        (self._out / ("slow" if crowded else "pace")).write_text(str(shape.slow_us * slower))
        self.query = self._run(parallelism, alignment)

    @property
    def markers(self) -> Path:
        """Folder in which failures are armed."""
        return self._out

    @property
    def parallelism(self) -> int:
        return self.query.view.parallelism

    def tell(self, text: str) -> None:
        self.told.append(f"{time.monotonic() - self._began_s:7.3f} s: {text}")

    def until_all_run(self) -> ExecutionView:
        return self.query.until(
            lambda v: len(v.slots) == v.parallelism and all(slot.running for slot in v.slots),
            WAIT_S,
            "all slots to run",
        )

    def until_commits(self, epochs: int = 1) -> None:
        """So many further epochs."""
        until = self.query.view.committed_epoch + epochs
        self.query.until(lambda v: v.committed_epoch >= until, WAIT_S, "commits")

    def kill(self, *slots: int) -> None:
        """SIGKILL, and wait until all run again."""
        before = self.strike(signal.SIGKILL, *slots)
        self.query.until(lambda v: v.generation > before, WAIT_S, "the next Generation")
        self.until_all_run()

    def strike(self, number: signal.Signals, *slots: int) -> int:
        """Send a signal to slots, and do not wait. Returns the Generation that it went to."""
        view = self.until_all_run()
        for slot in {slot % len(view.slots): None for slot in slots}:
            pid = view.slots[slot].pid
            self.tell(f"{number.name} to slot {slot}, pid {pid}, of Generation {view.generation}")
            self._signal(pid, number)
        return view.generation

    def kill_later(self, pid: int, after_s: float) -> None:
        """SIGKILL a slot's process after a while, if it still is there."""
        time.sleep(after_s)
        self.tell(f"SIGKILL to pid {pid}")
        self._signal(pid, signal.SIGKILL)

    def freeze(self, slot: int, for_s: float) -> None:
        """SIGSTOP, and SIGCONT after a while, if it still is there."""
        view = self.until_all_run()
        pid = view.slots[slot % len(view.slots)].pid
        self.tell(f"slot {slot % len(view.slots)}, pid {pid}, is stopped for {for_s:.2f} s")
        self._signal(pid, signal.SIGSTOP)
        time.sleep(for_s)
        self._signal(pid, signal.SIGCONT)

    def rescale(self, parallelism: int) -> None:
        self.tell(f"rescale to {parallelism}")
        self.query.execution.rescale(parallelism, WAIT_S)
        self.until_all_run()

    def rescale_while(self, parallelism: int, happens: Callable[[], object]) -> None:
        """Rescale while something else happens; the snapshot may fail then, and the query goes on as it was."""
        self.tell(f"rescale to {parallelism}, while")

        def rescale() -> None:
            try:
                self.query.execution.rescale(parallelism, WAIT_S)
            except CheckpointFailed as error:
                self.tell(f"not rescaled: {error}")
            except BaseException as error:  # noqa: BLE001 - raised below
                failed.append(error)

        failed: list[BaseException] = []
        thread = threading.Thread(target=rescale)
        thread.start()
        try:
            happens()
        finally:
            thread.join(2 * WAIT_S)
        if failed:
            raise failed[0]
        self.until_all_run()

    def restart(self, parallelism: int, alignment: Alignment, **options: int) -> None:
        """Stop and start again; ``options`` besides those that there are, from now on."""
        self.tell("stopped")
        self.stop()
        self._options |= options
        self.query = self._run(parallelism, alignment)
        self.until_all_run()

    def finish(self) -> list[str]:
        """Run at full speed to the end. Return the faults of the output, nothing if it is exact."""
        for marker in ("slow", "pace"):
            (self._out / marker).unlink(missing_ok=True)
        self.tell(f"at full speed, after {sum(p.rows for p in self.query.progress)} records of {self._shape.records}")
        self.query.execution.process_all_available(2 * WAIT_S)
        self.stop()
        return faults(self._shape, self._out)

    def stop(self) -> None:
        self.query.execution.stop(WAIT_S)
        self.restarts += self.query.view.restarts
        assert self.query.execution.error is None, self.query.execution.error

    def _signal(self, pid: int, number: signal.Signals) -> None:
        """Something else may have ended the Generation meanwhile."""
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            self.tell(f"pid {pid} is gone")

    def _run(self, parallelism: int, alignment: Alignment) -> Running:
        deadline_s = time.monotonic() + WAIT_S
        while self._launcher.free_slots() < parallelism and time.monotonic() < deadline_s:
            time.sleep(0.01)  # the slots of the run before are ending
        self.tell(f"{self._shape.name} runs in {parallelism} slots, {alignment.value}")
        graph = self._shape.graph(self._out, parallelism)
        return run(graph, self._location, self._launcher, alignment, state_backend=self._backend, **self._options)  # type: ignore[arg-type]
