"""Small helpers around a running QueryExecution."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.config import Options
from penstock.coordinator.launching import SlotLauncher
from penstock.coordinator.query_execution import QueryExecution
from penstock.coordinator.view import EpochProgress, ExecutionView
from penstock.errors import PenstockError
from penstock.model.elements import Alignment
from penstock.model.job_graph import JobGraph
from penstock.snapshots.fork import Origin
from tests.support.dataflow.tiny import assert_exact, visible

EXECUTIONS: list[QueryExecution] = []
"""Started by the test that runs; stopped after it."""

FAST = {"checkpoint_interval_ms": 150, "restart_delay_ms": 10, "restart_attempts": 10}

FINISH_TIMEOUT_S = 180
"""A limit that only a hanging query reaches."""


@dataclass
class Running:
    """A query with what it told."""

    execution: QueryExecution
    progress: list[EpochProgress] = field(default_factory=list)
    ends: list[PenstockError | None] = field(default_factory=list)

    @property
    def view(self) -> ExecutionView:
        return self.execution.view()

    def until(self, condition: Callable[[ExecutionView], bool], timeout_s: float = 90, what: str = "") -> ExecutionView:
        """Wait for a view; fails if it does not come or the query ends."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            view = self.view
            if condition(view):
                return view
            if not self.execution.is_active:
                raise AssertionError(f"the query ended while waiting for {what}: {self.execution.error}")
            time.sleep(0.005)
        view = self.view
        raise AssertionError(
            f"waited in vain for {what}: Generation {view.generation} {view.state}, epoch {view.committed_epoch}, "
            f"slots {view.slots}, restarts {view.restarts}, newest checkpoints {view.checkpoints[-2:]}"
        )

    def until_running(self, generation: int) -> ExecutionView:
        return self.until(
            lambda v: v.generation == generation and len(v.slots) == v.parallelism and all(s.running for s in v.slots),
            what=f"Generation {generation} to run",
        )


def run(
    graph: JobGraph,
    location: Path,
    launcher: SlotLauncher,
    alignment: Alignment = Alignment.UNALIGNED,
    until_available: bool = False,
    origin: Origin | None = None,
    drains: bool = False,
    **options: Any,
) -> Running:
    """Start a query with quick checkpoints and restarts."""
    progress: list[EpochProgress] = []
    ends: list[PenstockError | None] = []
    execution = QueryExecution(
        graph,
        name="tiny",
        run_id=str(uuid.uuid4()),
        location=str(location),
        options=Options(checkpoint_alignment=alignment, **{**FAST, **options}),
        launcher=launcher,
        until_available=until_available,
        origin=origin,
        drains=drains,
        on_progress=progress.append,
        on_end=ends.append,
    )
    EXECUTIONS.append(execution)
    execution.start()
    return Running(execution, progress, ends)


def stop_executions() -> None:
    """Stop what the test has started."""
    while EXECUTIONS:
        EXECUTIONS.pop().stop()


def finish(query: Running, folder: Path, total: int, keys: int = 17) -> None:
    """Wait until all rows of a tiny job are visible, stop it, and check every one of them."""
    deadline_s = time.monotonic() + FINISH_TIMEOUT_S
    while query.execution.is_active and (rows := sum(map(len, visible(folder)))) < total:
        assert time.monotonic() < deadline_s, f"{rows} of {total} rows are visible after {FINISH_TIMEOUT_S} s"
        time.sleep(0.05)
    query.execution.stop()
    assert_exact(folder, total, keys)
