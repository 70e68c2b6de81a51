"""``penstock snapshot copy``, ``move``, ``fork`` and ``rollback``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.snapshot.app import AsJson, Location, emit, reported, snapshot_app
from penstock.cli.snapshot.changing import Force
from penstock.cli.snapshot.file_client import located
from penstock.cli.snapshot.reading import SNAPSHOT_HELP, _bar
from penstock.errors import ConfigError, LocationError
from penstock.model.ids import snapshot_id
from penstock.snapshots.commands import copying, forking, moving, ownership
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.commands import rolling_back as rb
from penstock.snapshots.commands.deleting import choose_deletable
from penstock.snapshots.fork import Origin
from penstock.snapshots.format.names import has_name
from penstock.snapshots.location import IDENTITY_PATH, MOVING_PATH, open_location
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.stores import store_at

_Target = Annotated[str, typer.Argument(help="Where to.", metavar="TARGET")]
_Snapshot = Annotated[str, typer.Argument(help=SNAPSHOT_HELP, metavar="SNAPSHOT")]


@snapshot_app.command()
def copy(
    location: Location,
    rest: Annotated[
        list[str], typer.Argument(help="Ids or labels, none for all; then the archive.", metavar="[SNAPSHOT...] TARGET")
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Go on though another copy into TARGET has not ended: it is stopped.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy snapshots into an archive, where they stay until they are deleted; what is there is not copied again."""
    *names, target = rest
    with reported() as console, located(location) as source, _made(target) as destination:
        with _bar("copying", hidden=as_json, is_bytes=False) as progress:
            copied = copying.copy_snapshots(source, destination, names, force=force, progress=progress)
        brought, present = _ids(copied.copied), _ids(copied.present)
        if as_json:
            emit({"target": destination.root, "copied": brought, "present": present, "gone": _ids(copied.deleted)})
        else:
            more = f"; {len(present)} were there already" if present else ""
            _say(console, f"{_counted(brought)} copied to {destination.root}{more}")
        copied.check(names)


@snapshot_app.command()
def move(
    location: Location,
    target: _Target,
    snapshots: Annotated[
        list[str] | None,
        typer.Option("--snapshot", help="Only this one (again for more), into an archive.", metavar="SNAPSHOT"),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Move a query that does not run, with all its snapshots, to another location; or some snapshots to an archive."""
    with reported() as console, located(location) as source:
        if snapshots:
            _move_snapshots(console, source, target, snapshots, force, as_json)
            return
        with _target_of_move(target) as destination, _bar("moving", hidden=as_json, is_bytes=False) as progress:
            view = moving.move_query(source, destination, force=force, progress=progress)
        ids = _ids([record.checkpoint for record in view.snapshots])
        if as_json:
            emit({"target": destination.root, "snapshots": ids})
        else:
            _say(
                console,
                f"the query is at {destination.root} now, with {_counted(ids)}; {source.root} has only its log left",
            )


def _move_snapshots(
    console: Console, source: Store, target: str, names: Sequence[str], force: bool, as_json: bool
) -> None:
    view = ownership.read_query_log(source)
    existing = [name for name in names if any(has_name(record, name) for record in view.snapshots)]
    with _made(target) as destination, _bar("copying", hidden=as_json, is_bytes=False) as progress:
        archived = _ids([record.checkpoint for record in SnapshotLog(destination).refresh().snapshots])
        # Snapshots that are only in the archive were moved by an earlier, interrupted call.
        missing = [name for name in names if name not in existing and name not in archived]
        chosen = choose_deletable(source.root, view, [*existing, *missing])
        if chosen:
            copying.copy_snapshots(source, destination, _ids(chosen), force=force, progress=progress).check(names)
    for first in range(0, len(chosen), rq.MAX_IDS):
        ownership.request_change(source, rq.DeleteSnapshots(list(chosen[first : first + rq.MAX_IDS])), force=force)
    if as_json:
        emit({"target": destination.root, "snapshots": _ids(chosen)})
    else:
        _say(console, f"{_counted(_ids(chosen))} moved to {destination.root}")


@snapshot_app.command()
def fork(location: Location, snapshot: _Snapshot, target: _Target, as_json: AsJson = False) -> None:
    """Make a location for a new query that starts with a snapshot.

    The query at LOCATION is not disturbed. LOCATION may be the directory of a portable snapshot.
    """
    with reported() as console, ExitStack() as opened:
        origin = Origin(location, snapshot, option="")
        if origin.portable is not None:
            destination = opened.enter_context(_made(target))
            identity = forking.fork_portable(origin, origin.portable, destination)
        else:
            source = opened.enter_context(located(location))
            destination = opened.enter_context(_made(target))
            identity = forking.fork_snapshot(source, snapshot, destination)
        if as_json:
            emit({"target": destination.root, "query_id": identity.query_id, "origin": identity.origin})
        else:
            _say(console, f"{destination.root} begins with {snapshot} of query {identity.origin}; start a query there")


@snapshot_app.command()
def rollback(
    location: Location,
    snapshot: _Snapshot,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            help="What becomes of what was written since: retract (taken back at the next start), keep (comes twice).",
        ),
    ] = "",
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over", help="Take over an output from another copy: the position in the error of a refused start."
        ),
    ] = None,
    input_restored: Annotated[
        bool, typer.Option("--input-restored", help="All files that cleanSource has removed since are back.")
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Have a query that does not run go on from an older snapshot at its next start."""
    with reported() as console, located(location) as store:
        done = rb.roll_back(
            store, snapshot, output=_output(output), over=over or (), input_restored=input_restored, force=force
        )
        name = snapshot_id(done.snapshot)
        if as_json:
            left = _ids(done.abandoned)
            emit({"snapshot": name, "left": left, "retracts": done.retracts, "changed": done.changed})
        elif not done.changed:
            _say(console, f"the next start goes on from {name} as it is")
        else:
            behind = "; what was written since is taken back before" if done.retracts else ""
            _say(console, f"the next start goes on from {name}{behind}; left behind: {_counted(_ids(done.abandoned))}")


def _output(text: str) -> rb.Output | None:
    try:
        return rb.Output(text) if text else None
    except ValueError:
        raise ConfigError(f"--output {text!r}: choose retract or keep") from None


@contextmanager
def _made(target: str) -> Iterator[Store]:
    """Open the store of a target, and create the target if it does not exist."""
    try:
        yield open_location(target)
    except OSError as error:
        raise LocationError(f"{target} cannot be used: {error}") from error


@contextmanager
def _target_of_move(target: str) -> Iterator[Store]:
    """Open the target of a move. An existing location and the remains of an interrupted move are opened unchanged."""
    store = store_at(target)
    begun = store.exists(MOVING_PATH) or store.exists(IDENTITY_PATH)
    with _made(target) if not begun else _as_it_is(store) as destination:
        yield destination


@contextmanager
def _as_it_is(store: Store) -> Iterator[Store]:
    yield store


def _ids(checkpoints: Sequence[int]) -> list[str]:
    return [snapshot_id(checkpoint) for checkpoint in checkpoints]


def _counted(ids: Sequence[str]) -> str:
    return f"{len(ids)} snapshot{'' if len(ids) == 1 else 's'}" + (f" ({', '.join(ids)})" if 0 < len(ids) <= 5 else "")


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)
