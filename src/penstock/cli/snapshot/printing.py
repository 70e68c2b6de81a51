"""Text of one snapshot, and of the difference between two, for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.cli.terminal import widen
from penstock.cli.texts import age_text, size_text, watermark_text
from penstock.snapshots.commands.comparing import SnapshotDiff, TableChange
from penstock.snapshots.commands.plain_values import one_line
from penstock.snapshots.commands.positions import EdgeDetails, SourceDetails
from penstock.snapshots.commands.showing import SnapshotDetails, TableDetails

SPLITS_PRINTED = 5
CHANNELS_PRINTED = 10
"""Most channels that are printed, those with the most in-flight data first. ``--json`` has all."""


def print_snapshot(console: Console, details: SnapshotDetails) -> None:
    """Print a snapshot."""
    widen(console)
    line = details.snapshot
    label = f" {line.label!r}" if line.label else ""
    _say(console, f"{line.id}{label} of query {details.query_id}, {line.kind}, {age_text(line.age_s)} old")
    if line.note:
        _say(console, f"note: {line.note}")
    own = size_text(line.exclusive_bytes)
    _say(
        console,
        f"Generation {line.generation}, parallelism {line.parallelism} of {details.max_parallelism}, alignment "
        f"{line.alignment} ({line.unaligned_subtasks} of {line.subtasks} subtasks unaligned), "
        f"{size_text(line.bytes)}, "
        + (f"{own} in files of its own" if line.not_deletable else f"deleting it frees {own}")
        + ("" if line.in_lineage else ", not in the lineage")
        + (", drained" if details.drained else ""),
    )
    found = details.bottleneck
    if found.vertex:
        where = f"; {found.share:.0%} of it at subtask {found.subtask}" if found.subtask >= 0 else ""
        console.print(
            f"[bold]bottleneck:[/] [yellow]{escape(found.vertex)}[/]: {found.explanation}{where}", soft_wrap=True
        )
    else:
        console.print(f"[bold]bottleneck:[/] {found.explanation}", soft_wrap=True, highlight=False)
    _print_operators(console, details)
    for source in details.sources:
        _print_source(console, source)
    for edge in details.edges:
        _print_edge(console, edge)
    _print_subtasks(console, details)


def _say(console: Console, text: str) -> None:
    console.print(escape(text), highlight=False, soft_wrap=True)


def _print_operators(console: Console, details: SnapshotDetails) -> None:
    table = _table("operator", "state", "rows", "stored", "sections", "key-group skew")
    for operator in details.operators:
        if not operator.tables:
            table.add_row(escape(operator.name), f"[dim]{operator.role}[/]")
        for state in operator.tables:
            rows = "not known; --rows counts" if state.rows is None else f"{state.rows:,}"
            size = size_text(state.bytes)
            table.add_row(escape(operator.name), escape(state.name), rows, size, f"{state.sections:,}", _skew(state))
    console.print(table, soft_wrap=True)


def _skew(table: TableDetails) -> str:
    skew = table.skew
    if skew is None:
        return "" if table.rows == 0 else "not known; --rows counts"
    if not skew.counted:
        return f"at least {skew.skew:.1f}"
    return f"{skew.skew:.1f} (key group {skew.group}: {skew.rows:,} rows)"


def _print_source(console: Console, source: SourceDetails) -> None:
    blobs = f" and {size_text(source.blob_bytes)} beside it" if source.blob_bytes else ""
    ended = ", event time has ended" if source.drained else ""
    _say(console, f"source {source.name}: {source.rows_in:,} rows read{ended}; state {one_line(source.state)}{blobs}")
    for split in source.reading[:SPLITS_PRINTED]:
        _say(console, f"  subtask {split.subtask} reads {split.split_id} at {one_line(split.position)}")
    if len(source.reading) > SPLITS_PRINTED:
        _say(console, f"  and {len(source.reading) - SPLITS_PRINTED} more that are being read")
    if source.pending:
        first = source.pending[0].split_id
        _say(console, f"  {len(source.pending):,} splits found and not handed out yet, the first {first}")


def _print_edge(console: Console, edge: EdgeDetails) -> None:
    text = (
        f"{edge.producer} -> {edge.consumer} ({edge.kind}): watermark {watermark_text(edge.watermark_us)}, in flight "
    )
    _say(console, text + (f"{edge.rows:,} rows, {size_text(edge.bytes)}" if edge.rows else "nothing"))
    full = sorted((c for c in edge.channels if c.rows), key=lambda channel: -channel.bytes)
    for channel in full[:CHANNELS_PRINTED]:
        _say(console, f"  {channel.producer} -> {channel.consumer}: {channel.rows:,} rows, {size_text(channel.bytes)}")


def _print_subtasks(console: Console, details: SnapshotDetails) -> None:
    table = _table("subtask", "start delay", "alignment", "sync", "async", "", "in flight captured", "state written")
    for subtask in details.subtasks:
        times = (subtask.start_delay_ms, subtask.alignment_ms, subtask.sync_ms, subtask.async_ms)
        table.add_row(
            escape(f"{subtask.vertex} [{subtask.index}]"),
            *(f"{time:.1f} ms" for time in times),
            "unaligned" if subtask.unaligned else "aligned",
            size_text(subtask.inflight_bytes),
            size_text(subtask.state_bytes),
        )
    console.print(table, soft_wrap=True)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None)
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right")
    return table


# -- diff -------------------------------------------------------------------------------------------------------------


def print_diff(console: Console, diff: SnapshotDiff) -> None:
    """Print the difference between two snapshots."""
    widen(console)
    _say(console, f"{diff.before} -> {diff.after}, parallelism {diff.parallelism_before} -> {diff.parallelism_after}")
    table = _table("state", "added", "changed", "removed")
    for change in diff.tables:
        counts = ("-", "-", "-") if change.problem else (f"{change.added:,}", _changed(change), f"{change.removed:,}")
        table.add_row(escape(f"{change.operator} {change.table}"), *counts)
    console.print(table, soft_wrap=True)
    for change in diff.tables:
        name = f"{change.operator} {change.table}"
        if change.problem:
            _say(console, f"{name}: rows were not compared: {change.problem}")
        for row in change.examples:
            values = (one_line(part) if part is not None else "-" for part in (row.before, row.after))
            _say(console, f"{name}: {row.change} {one_line(row.key)}: {' -> '.join(values)}")
    for source in diff.sources:
        _say(
            console,
            f"source {source.name}: {source.rows_in:+,} rows read, splits: {source.found:,} found, "
            f"{source.finished:,} finished, {source.moved:,} moved",
        )
        if source.state_changed:
            _say(console, f"  state {one_line(source.state_before)} -> {one_line(source.state_after)}")
        for split in source.splits:
            _say(console, f"  {split.change} {split.split_id}: {one_line(split.before)} -> {one_line(split.after)}")
    for edge in diff.edges:
        _say(
            console,
            f"{edge.text}: watermark {watermark_text(edge.watermark_us_before)} -> "
            f"{watermark_text(edge.watermark_us_after)}, rows in flight {edge.rows_before:,} -> {edge.rows_after:,}",
        )


def _changed(change: TableChange) -> str:
    return "-" if change.keys is None else f"{change.changed:,}"
