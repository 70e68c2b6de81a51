"""One query on the driver: the face over the coordinator service."""

from __future__ import annotations

from collections.abc import Callable

from penstock.config import Options
from penstock.errors import PenstockError
from penstock.graph.model import JobGraph
from penstock.protocol.elements import Alignment
from penstock.runtime.launching import SlotLauncher
from penstock.runtime.view import EpochProgress, ExecutionView
from penstock.snapshot.model import SnapshotMetadata


class QueryExecution:
    """Runs one JobGraph from ``start`` to its end, over as many Generations as failures make necessary.

    All methods may be called from any thread. The committers come from the graph's sinks.

    Args:
        graph: what to run; ``graph.parallelism`` slots are taken.
        name: the user's name for the query, shown by Spark.
        run_id: a UUID, new per start.
        location: the checkpoint location, a path on a file system shared by driver and slots.
        options: parsed options.
        launcher: starts slots.
        on_progress: called on a service thread after each committed epoch; must not raise or block for long.
        on_end: called once on a service thread when the query ended, with its error if it failed.
    """

    def __init__(
        self,
        graph: JobGraph,
        *,
        name: str | None,
        run_id: str,
        location: str,
        options: Options,
        launcher: SlotLauncher,
        on_progress: Callable[[EpochProgress], None] = lambda progress: None,
        on_end: Callable[[PenstockError | None], None] = lambda error: None,
    ) -> None:
        raise NotImplementedError

    @property
    def query_id(self) -> str:
        """The location's id, the same over restarts; known after ``start``."""
        raise NotImplementedError

    def start(self) -> None:
        """Open the location, recover, launch the first Generation. Returns when slots were asked for.

        Raises:
            LocationError: missing rights, a foreign location, a changed plan, corrupt snapshots.
            ResourceError: too few slots.
        """
        raise NotImplementedError

    @property
    def is_active(self) -> bool:
        raise NotImplementedError

    @property
    def error(self) -> PenstockError | None:
        """Why the query failed; None while it is active and after an orderly stop."""
        raise NotImplementedError

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop without a final checkpoint: what is not committed is read again at the next start. Idempotent."""
        raise NotImplementedError

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Block until the query ended; False on time-out. Does not raise: look at ``error``."""
        raise NotImplementedError

    def request_snapshot(
        self, label: str = "", alignment: Alignment | None = None, timeout_s: float | None = None
    ) -> SnapshotMetadata:
        """Take a snapshot now and wait until it is complete. It is never collected.

        Raises:
            CheckpointFailed: declined, timed out or the query ended; the query itself goes on.
        """
        raise NotImplementedError

    def process_all_available(self, timeout_s: float | None = None) -> None:
        """Block until everything that sources could find when this was called is committed.

        Raises:
            QueryFailed: the query ended before.
            TimeoutError: after ``timeout_s``.
        """
        raise NotImplementedError

    def view(self) -> ExecutionView:
        """The newest figures; never blocks."""
        raise NotImplementedError
