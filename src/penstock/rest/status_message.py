"""Message and progress of a query that converges to its requested state."""

from __future__ import annotations

from collections.abc import Collection

from penstock.coordinator.view import CheckpointState, CheckpointView, ExecutionState, ExecutionView
from penstock.queries.facts import QueryFacts
from penstock.queries.operations import SNAPSHOT_VERBS, Operation, Verb
from penstock.queries.snapshot_operations import SnapshotOrder
from penstock.rest.change_models import OperationProgress
from penstock.rest.models import QuerySpec, WantedState

_DESCRIPTIONS = {
    Verb.SNAPSHOT: "Taking a snapshot",
    Verb.DELETE_SNAPSHOT: "Deleting a snapshot",
    Verb.EXPORT_SNAPSHOT: "Exporting a snapshot",
    Verb.FORK_SNAPSHOT: "Forking a snapshot",
    Verb.COPY_SNAPSHOT: "Copying a snapshot",
    Verb.VERIFY_SNAPSHOTS: "Verifying every file",
    Verb.COMPARE_SNAPSHOTS: "Comparing two snapshots",
    Verb.COLLECT_FILES: "Removing files that no snapshot needs",
}
_BEGINNING = (ExecutionState.STARTING, ExecutionState.RESTARTING)
"""States in which slots are requested and no slot of this generation has been released."""


def has_converged(view: ExecutionView, spec: QuerySpec) -> bool:
    """Return True if the query has its requested state and parallelism. A failed query counts as stopped."""
    if view.state is ExecutionState.FAILED:
        return spec.state is WantedState.STOPPED
    as_wanted = view.state.value == spec.state.value
    return as_wanted and (spec.state is not WantedState.RUNNING or view.parallelism == spec.parallelism)


def describe(facts: QueryFacts, spec: QuerySpec, verbs: Collection[Verb]) -> str:
    """Describe what the query does and, if it differs from ``spec``, the current step towards it.

    Args:
        verbs: the verbs of the running operations on it. Requests of its own program are not operations.
    """
    view = facts.view
    usually = facts.message.partition("\n")[0]
    if not facts.active or has_converged(view, spec):
        return usually
    if Verb.STOP in verbs:
        return "Stopping"
    if view.state is ExecutionState.SUSPENDED:
        return "Beginning again from its snapshot"
    if view.state in _BEGINNING:
        begins = f"Starting at parallelism {view.parallelism}" if view.state is ExecutionState.STARTING else usually
        return f"{begins}: {_running(view)} of {view.parallelism} slots run"
    if Verb.SUSPEND in verbs:
        whole = _running(view) == view.parallelism
        return "Taking the last snapshot before it is suspended" if whole else "Giving its slots back"
    missing = spec.parallelism - view.parallelism
    if Verb.RESCALE in verbs or facts.requested.is_rescaling or missing < 0:
        return f"Taking a snapshot to go on from at parallelism {spec.parallelism}"
    return f"Runs on {view.parallelism} of {spec.parallelism} slots: waiting for {missing} more to be free"


def operation_progress(operation: Operation, facts: QueryFacts, does: str) -> OperationProgress:
    """Return the progress of a running operation. ``does``: description of what the query does."""
    view = facts.view
    match operation.verb:
        case Verb.RESCALE | Verb.RESUME:
            total = operation.parallelism or facts.requested.parallelism
            return OperationProgress(message=does, done=_running(view) if view.parallelism == total else 0, total=total)
        case Verb.SUSPEND | Verb.STOP:
            given_back = 0 if view.state in _BEGINNING else view.parallelism - _running(view)
            return OperationProgress(message=does, done=given_back, total=view.parallelism)
        case Verb.SNAPSHOT if isinstance(operation.request, SnapshotOrder):
            return _of_snapshot(operation, operation.request, view)
        case _:
            assert operation.verb in SNAPSHOT_VERBS
            done, total = operation.counter.counts
            return OperationProgress(message=_DESCRIPTIONS[operation.verb], done=done, total=total)


def _of_snapshot(operation: Operation, order: SnapshotOrder, view: ExecutionView) -> OperationProgress:
    """Count the slots that have acknowledged the checkpoint; 0 until it is triggered."""
    found = _checkpoint_of(operation, order, view)
    complete = found is not None and found.state is CheckpointState.COMPLETE
    done = view.parallelism if complete else 0 if found is None else found.acknowledged
    also = complete and order.format == "portable"
    message = "Writing the snapshot in its portable form, too" if also else "Taking a snapshot"
    return OperationProgress(message=message, done=done, total=view.parallelism)


def _checkpoint_of(operation: Operation, order: SnapshotOrder, view: ExecutionView) -> CheckpointView | None:
    """Return the checkpoint of the operation: the first matching one in progress, else the last matching one."""
    own = [
        one
        for one in view.checkpoints
        if (one.requested, one.label) == (True, order.label)
        and one.triggered_ms >= operation.began_ms
        and one.state is not CheckpointState.FAILED
    ]
    pending = [one for one in own if one.state is CheckpointState.PENDING]
    return pending[0] if pending else own[-1] if own else None


def _running(view: ExecutionView) -> int:
    return sum(slot.running for slot in view.slots)
