"""``penstock snapshot take``, ``delete``, ``label`` and ``gc``: commands that change a location."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.query.app import Ca, TokenFile, Url
from penstock.cli.snapshot.app import AsJson, Location, emit, reported, snapshot_app
from penstock.cli.snapshot.client_choice import snapshot_client_of
from penstock.cli.snapshot.file_client import cached_log, located
from penstock.cli.snapshot.snapshot_client import Deleted
from penstock.cli.terminal import say
from penstock.config import alignment as parse_alignment
from penstock.config import snapshot_format
from penstock.errors import ConfigError
from penstock.model.ids import snapshot_id
from penstock.model.manifest import checked_words
from penstock.snapshots.commands import ownership
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.commands.deleting import choose_deletable

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
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", help="Seconds; checkpoint.timeout by default.", min=0.001, max=rq.MAX_TIMEOUT_MS / 1000
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="native, or portable: then as Parquet files and Arrow streams, too; the query's own by default.",
        ),
    ] = "",
    url: Url = "",
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Have a running query take a snapshot, wait for it, and print its id."""
    with reported():
        checked_words(label, note)
        chosen = parse_alignment("--alignment", alignment).value if alignment else ""
        chosen_form = snapshot_format("--format", form).value if form else ""
        changes = rq.TakeSnapshot(label, note, chosen, round((timeout or 0) * 1000), chosen_form)
        snapshot = snapshot_client_of(location, url, token_file, ca, quiet=as_json).take(changes)
        if as_json:
            emit({"snapshot": snapshot, **({"format": chosen_form} if form else {})})
        else:
            say(snapshot)


@snapshot_app.command()
def delete(
    location: Location,
    snapshots: Annotated[list[str], typer.Argument(help="Ids (chk-12) or labels.", metavar="SNAPSHOT...")],
    dry_run: DryRun = False,
    force: Force = False,
    url: Url = "",
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Delete snapshots, those that were asked for, too, but never the newest, which the query goes on from."""
    with reported() as console:
        paths: tuple[str, ...] = ()
        if dry_run:
            deleted, paths = _would_delete(location, snapshots)
        else:
            deleted = snapshot_client_of(location, url, token_file, ca, force=force, quiet=as_json).delete(snapshots)
        ids, files, size = deleted
        if as_json:
            document = {"snapshots": ids, "files": files, "bytes": size, "dry_run": dry_run}
            emit({**document, "paths": paths} if dry_run else document)
            return
        for path in paths:
            say(path)
        _print_result(console, dry_run, f"{', '.join(ids)}: ", files, size)


def _would_delete(location: str, names: Sequence[str]) -> tuple[Deleted, tuple[str, ...]]:
    """Return what would be deleted, and the files. Planning only reads the location."""
    with located(location) as store:
        cached = cached_log(store)
        chosen = choose_deletable(store.root, cached.log, names)
        deletion = ownership.preview_deletion(store, chosen, cached)
    ids = [snapshot_id(checkpoint) for checkpoint in chosen]
    return Deleted(ids, len(deletion.files), deletion.bytes), deletion.files


@snapshot_app.command("label")
def label_command(
    location: Location,
    snapshot: Annotated[str, typer.Argument(help="Its id (chk-12) or the label that it has.")],
    label: Annotated[str | None, typer.Option("--label", help="A name to find it by.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the label away.")] = False,
    note: Annotated[str | None, typer.Option("--note", help="What to remember of it; '' takes it away.")] = None,
    force: Force = False,
    url: Url = "",
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Give a snapshot a label or a note. One with a label is kept until it is deleted or loses it."""
    with reported() as console:
        if (label and remove) or label == "":
            raise ConfigError("--label L gives a label, --remove takes it away: choose one")
        new_label = "" if remove else label
        if new_label is None and note is None:
            raise ConfigError("say what it is to be called: --label L, --remove or --note N")
        checked_words(new_label or "", note or "")
        client = snapshot_client_of(location, url, token_file, ca, force=force, quiet=as_json)
        now = client.label(snapshot, new_label, note)
        if as_json:
            emit({"snapshot": now.id, "label": now.label, "note": now.note, "kind": now.kind})
        else:
            named = f"is called {now.label!r}" if now.label else "has no label"
            console.print(f"{now.id} {named}, {now.kind}", highlight=False, soft_wrap=True, markup=False)


@snapshot_app.command()
def gc(location: Location, dry_run: DryRun = False, force: Force = False, as_json: AsJson = False) -> None:
    """Remove files that no snapshot refers to, such as a crash leaves. Snapshots stay."""
    with reported() as console, located(location) as store:
        cached = cached_log(store)
        if dry_run:
            answer = ownership.preview_collection(store, known=cached)
        else:
            answer = ownership.request_change(store, rq.CollectOrphans(), force=force, known=cached)
        if as_json:
            emit({"files": answer.files, "bytes": answer.bytes, "dry_run": dry_run})
        else:
            _print_result(console, dry_run, "", answer.files, answer.bytes)


def _print_result(console: Console, dry_run: bool, what: str, files: int, size: int) -> None:
    counted = "1 file" if files == 1 else f"{files} files"
    change_made = "would go" if dry_run else "gone"
    console.print(f"{what}{counted}, {size:,} bytes {change_made}", highlight=False, soft_wrap=True)
