"""``penstock snapshot take``, ``delete``, ``label`` and ``gc``: the verbs that change a location."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from penstock.cli.snapshot_app import AsJson, Location, emit, reported, snapshot_app
from penstock.config import alignment as parse_alignment
from penstock.errors import ConfigError, LocationError
from penstock.snapshot.catalog import snapshot_id
from penstock.snapshot.location import existing_location
from penstock.snapshot.model import checked_words
from penstock.snapshot.names import find_record
from penstock.snapshot.store import Store
from penstock.snapshot.verbs import ownership
from penstock.snapshot.verbs import requests as rq
from penstock.snapshot.verbs.deleting import choose
from penstock.snapshot.verbs.listing import kind_of
from penstock.snapshot.verbs.location_cache import Known, LocationCache

Force = Annotated[
    bool, typer.Option("--force", help="If no driver answers, take the location over: one that runs is stopped by it.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing, say what would go.")]


@snapshot_app.command()
def take(
    location: Location,
    label: Annotated[str, typer.Option("--label", help="A name to find it by.")] = "",
    note: Annotated[str, typer.Option("--note", help="What to remember of it.")] = "",
    alignment: Annotated[
        str, typer.Option("--alignment", help="auto, aligned or unaligned; the query's own by default.")
    ] = "",
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds; checkpoint.timeout by default.", min=0.0)] = 0.0,
    form: Annotated[
        str, typer.Option("--format", help="native, or portable: then as Parquet files and Arrow streams, too.")
    ] = rq.NATIVE,
    as_json: AsJson = False,
) -> None:
    """Have a running query take a snapshot, wait for it, and print its id."""
    with reported(), _located(location) as store:
        checked_words(label, note)
        if form not in (rq.NATIVE, rq.PORTABLE):
            raise ConfigError(f"--format {form}: choose {rq.NATIVE} or {rq.PORTABLE}")
        chosen = parse_alignment("--alignment", alignment).value if alignment else ""
        wish = rq.Take(label, note, chosen, min(round(timeout * 1000), rq.MAX_TIMEOUT_MS), form)
        snapshot = ownership.take_snapshot(store, wish)
        if as_json:
            emit({"snapshot": snapshot, "format": form})
        else:
            typer.echo(snapshot)


@snapshot_app.command()
def delete(
    location: Location,
    snapshots: Annotated[list[str], typer.Argument(help="Ids (chk-12) or labels.", metavar="SNAPSHOT...")],
    dry_run: DryRun = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Delete snapshots, those that were asked for, too, but never the newest, which the query goes on from."""
    with reported() as console, _located(location) as store:
        known = _known(store)
        chosen = choose(store.root, known.log, snapshots)
        paths: tuple[str, ...] = ()
        if dry_run:
            deletion = ownership.would_delete(store, chosen, known)
            paths, answer = deletion.files, rq.Answer(files=len(deletion.files), bytes=deletion.bytes)
        else:
            answer = _delete(store, chosen, force, known)
        ids = [snapshot_id(checkpoint) for checkpoint in chosen]
        if as_json:
            told = {"snapshots": ids, "files": answer.files, "bytes": answer.bytes, "dry_run": dry_run}
            emit({**told, "paths": paths} if dry_run else told)
            return
        for path in paths:
            typer.echo(path)
        _tell(console, dry_run, f"{', '.join(ids)}: ", answer)


@snapshot_app.command("label")
def label_command(
    location: Location,
    snapshot: Annotated[str, typer.Argument(help="Its id (chk-12) or the label that it has.")],
    label: Annotated[str | None, typer.Option("--label", help="A name to find it by.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the label away.")] = False,
    note: Annotated[str | None, typer.Option("--note", help="What to remember of it; '' takes it away.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Give a snapshot a label or a note. One with a label is kept until it is deleted or loses it."""
    with reported() as console, _located(location) as store:
        if (label and remove) or label == "":
            raise ConfigError("--label L gives a label, --remove takes it away: choose one")
        wanted = "" if remove else label
        if wanted is None and note is None:
            raise ConfigError("say what it is to be called: --label L, --remove or --note N")
        checked_words(wanted or "", note or "")
        known = _known(store)
        checkpoint = find_record(store.root, known.log, snapshot).checkpoint
        ownership.change(store, rq.Label(checkpoint, wanted, note), force=force, known=known)
        now = find_record(store.root, ownership.view_of(store, known), snapshot_id(checkpoint))
        kind = kind_of(now)
        if as_json:
            emit({"snapshot": snapshot_id(checkpoint), "label": now.label, "note": now.note, "kind": kind})
        else:
            named = f"is called {now.label!r}" if now.label else "has no label"
            console.print(f"{snapshot_id(checkpoint)} {named}, {kind}", highlight=False, soft_wrap=True, markup=False)


def _delete(store: Store, chosen: Sequence[int], force: bool, known: Known) -> rq.Answer:
    parts = [chosen[first : first + rq.MAX_IDS] for first in range(0, len(chosen), rq.MAX_IDS)]
    answers = [ownership.change(store, rq.Delete(list(part)), force=force, known=known) for part in parts]
    return rq.Answer(files=sum(a.files for a in answers), bytes=sum(a.bytes for a in answers))


@snapshot_app.command()
def gc(location: Location, dry_run: DryRun = False, force: Force = False, as_json: AsJson = False) -> None:
    """Remove files that no snapshot refers to, such as a crash leaves. Snapshots stay."""
    with reported() as console, _located(location) as store:
        known = _known(store)
        if dry_run:
            answer = ownership.would_collect(store, known=known)
        else:
            answer = ownership.change(store, rq.Collect(), force=force, known=known)
        if as_json:
            emit({"files": answer.files, "bytes": answer.bytes, "dry_run": dry_run})
        else:
            _tell(console, dry_run, "", answer)


def _known(store: Store) -> Known:
    """What the user's cache has of a location where a query has run, with the log as it is now."""
    known = LocationCache.of(store.root).load(store)
    return msgspec.structs.replace(known, log=ownership.view_of(store, known))


@contextmanager
def _located(location: str) -> Iterator[Store]:
    """The store there; what it fails with is one line, too."""
    try:
        yield existing_location("location", location)
    except OSError as error:
        raise LocationError(f"location {location} cannot be used: {error}") from error


def _tell(console: Console, dry_run: bool, what: str, answer: rq.Answer) -> None:
    files = "1 file" if answer.files == 1 else f"{answer.files} files"
    done = "would go" if dry_run else "gone"
    console.print(f"{what}{files}, {answer.bytes:,} bytes {done}", highlight=False, soft_wrap=True)
