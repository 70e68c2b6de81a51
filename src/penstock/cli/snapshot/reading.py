"""Commands of ``penstock snapshot`` that only read: ``list``, ``show``, ``verify``, ``diff``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from penstock.cli.snapshot.app import AsJson, Location, emit, reported, snapshot_app
from penstock.cli.terminal import SafeConsole, say, widen
from penstock.cli.texts import age_text, size_text
from penstock.errors import CorruptSnapshot
from penstock.snapshots.commands.listing import ListedSnapshot, Listing, list_snapshots
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.commands.verifying import UnusedFile, Verification, verify_location

SNAPSHOT_HELP = "Its id (chk-12) or label."
LISTED_RIGHT = ("gen.", "parallelism", "state", "in flight", "size", "exclusive")
LISTED = ("snapshot", "label", "kind", "alignment", "age", *LISTED_RIGHT, "")
DAMAGE_LINES = 200
"""Most damaged files that are printed. ``--json`` has all."""


@snapshot_app.command("list")
def list_command(location: Location, as_json: AsJson = False) -> None:
    """List the snapshots of a location: kind, age, what they hold, what they cost, and what would go with each."""
    with reported() as console:
        opened = open_location_to_read(location, cached=True)
        listing = list_snapshots(opened, _now_ms())
        if as_json:
            emit(listing)
        else:
            _print_listing(console, listing)
        damaged = [line for line in listing.snapshots if line.problem]
        if damaged:
            raise CorruptSnapshot(
                f"{opened.path}: {damaged[0].id} is damaged: {damaged[0].problem}; "
                f"`penstock snapshot verify` lists everything that is ({len(damaged)} snapshots cannot be read)"
            )


@snapshot_app.command("show")
def show_command(
    location: Location,
    snapshot: Annotated[str, typer.Argument(help=SNAPSHOT_HELP)],
    rows: Annotated[bool, typer.Option("--rows", help="Read the state and count the rows of each key group.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a snapshot holds, where sources and event time stand, and which operator the query was waiting for."""
    # Imported here, as in ``diff``, so that a listing does not wait for modules that process rows.
    from penstock.cli.snapshot.printing import print_snapshot
    from penstock.snapshots.commands.showing import show_snapshot

    with reported() as console:
        opened = open_location_to_read(location, cached=True)
        details = show_snapshot(opened, opened.record(snapshot), _now_ms(), count_rows=rows)
        if as_json:
            emit(details)
        else:
            print_snapshot(console, details)


@snapshot_app.command("verify")
def verify_command(
    location: Location,
    snapshot: Annotated[str, typer.Argument(help=SNAPSHOT_HELP + " Without it, all of them.")] = "",
    as_json: AsJson = False,
) -> None:
    """Verify every log entry, reference and checksum; exit code 1 if anything is damaged."""
    with reported() as console:
        with _bar("verifying", hidden=as_json) as progress:
            verification = verify_location(location, snapshot, progress)
        if as_json:
            emit(verification)
        else:
            _print_verification(console, verification)
        if verification.damage:
            raise typer.Exit(1)


@snapshot_app.command("diff")
def diff_command(
    location: Location,
    before: Annotated[str, typer.Argument(help=SNAPSHOT_HELP, metavar="A")],
    after: Annotated[str, typer.Argument(help=SNAPSHOT_HELP, metavar="B")],
    rows: Annotated[int, typer.Option("--rows", min=0, help="Rows to show of each table and kind of change.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare two snapshots: rows added, changed and removed per state table, splits, watermarks, rows in flight."""
    from penstock.cli.snapshot.printing import print_diff
    from penstock.snapshots.commands.comparing import compare_snapshots

    with reported() as console:
        opened = open_location_to_read(location)
        records = opened.record(before), opened.record(after)
        with _bar("comparing", hidden=as_json, is_bytes=False) as progress:
            found = compare_snapshots(opened, *records, examples=rows, progress=progress)
        if as_json:
            emit(found)
        else:
            print_diff(console, found)


@contextmanager
def _bar(what: str, *, hidden: bool, is_bytes: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal. It is written to stderr, because stdout is for the result."""
    console = SafeConsole(stderr=True)
    columns = [TextColumn("{task.description}"), BarColumn(), *([DownloadColumn()] if is_bytes else [])]
    is_visible = not hidden and console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not is_visible) as bar:
        task = bar.add_task(what, total=None)

        def on_progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield on_progress


def _now_ms() -> int:
    return int(time.time() * 1000)


def _print_listing(console: Console, listing: Listing) -> None:
    if not listing.snapshots:
        why = "the query was moved away from here" if listing.moved else "the query has no complete snapshot yet"
        console.print(f"{escape(listing.location)}: {why}", highlight=False)
        return
    lines = [LISTED, *(_listed(line, listing.archive) for line in listing.snapshots)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:  # rich's Table is not used: it takes 4 ms per row
        cells = (
            cell.rjust(width) if heading in LISTED_RIGHT else cell.ljust(width)
            for cell, width, heading in zip(line, widths, LISTED, strict=True)
        )
        say("  ".join(cells).rstrip())


def _listed(line: ListedSnapshot, archive: bool) -> tuple[str, ...]:
    if line.problem:
        return line.id, line.label, line.kind, *[""] * 8, "damaged"
    return (
        line.id,
        line.label,
        line.kind,
        f"{line.alignment}, {line.unaligned_subtasks} of {line.subtasks} unaligned",
        age_text(line.age_s),
        str(line.generation),
        str(line.parallelism),
        f"{line.state_rows:,} rows, {size_text(line.state_bytes)}",
        f"{line.inflight_rows:,} rows, {size_text(line.inflight_bytes)}",
        size_text(line.bytes),
        size_text(line.exclusive_bytes),
        "a copy" if archive else "" if line.in_lineage else "not in the lineage",
    )


def _print_verification(console: Console, verification: Verification) -> None:
    if verification.damage:
        widen(console)
        table = Table(box=None, title="damaged", title_justify="left")
        for heading in ("file", "what", "needed by"):
            table.add_column(heading, overflow="fold")
        for damage in verification.damage[:DAMAGE_LINES]:
            table.add_row(escape(damage.path), escape(damage.problem), ", ".join(damage.snapshots))
        console.print(table)
        if len(verification.damage) > DAMAGE_LINES:
            console.print(f"... and {len(verification.damage) - DAMAGE_LINES} more: --json lists all")
    _print_unused(console, "orphans, which a collection removes", verification.orphans)
    _print_unused(console, "newer than the newest snapshot: in flight, or left by a crash", verification.unsettled)
    if not verification.unused_known and verification.damage:
        console.print("files that no snapshot refers to cannot be told while metadata is damaged")
    console.print(
        f"{verification.log_entries:,} log entries, {verification.snapshots:,} snapshots, "
        f"{verification.sections:,} sections, {size_text(verification.bytes)} read: "
        + (f"{len(verification.damage)} damaged" if verification.damage else "all intact"),
        highlight=False,
        soft_wrap=True,
    )


def _print_unused(console: Console, title: str, files: list[UnusedFile]) -> None:
    if not files:
        return
    console.print(f"{len(files):,} files, {size_text(sum(file.bytes for file in files))}: {title}", soft_wrap=True)
    for file in files[:DAMAGE_LINES]:
        doubt = "" if file.certain else " (if the query runs, a checkpoint may still need it)"
        console.print(f"  {escape(file.path)} {size_text(file.bytes)}{doubt}", highlight=False, soft_wrap=True)
