"""Sizes of a snapshot, derived from its metadata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from penstock.model.manifest import InflightEntry, SectionRef, SnapshotMetadata, StateEntry, SubtaskManifest
from penstock.snapshots.catalog import sections_of


class SnapshotSizes(msgspec.Struct, frozen=True):
    """Sizes of one snapshot. Bytes are stored bytes; each section counts once.

    Attributes:
        unaligned_subtasks: number of the ``subtasks`` that were captured unaligned.
        state_rows: rows of all tables, as their operators counted them.
        state_bytes: size of all sections with state.
        inflight_rows: rows of in-flight data. Narrowed entries must be counted first (``count_narrowed_rows``).
        inflight_bytes: size of all sections with in-flight data.
        section_bytes: size of all sections that the snapshot refers to.
        files: the data files with these sections.
    """

    created_ms: int
    alignment: str
    parallelism: int
    subtasks: int
    unaligned_subtasks: int
    state_rows: int
    state_bytes: int
    inflight_rows: int
    inflight_bytes: int
    section_bytes: int
    files: list[str]


def measure_snapshot(metadata: SnapshotMetadata) -> SnapshotSizes:
    """Return the sizes of a snapshot."""
    metrics = [metric for slot in metadata.slots for metric in slot.metrics]
    sections = dict.fromkeys(sections_of(metadata))
    return SnapshotSizes(
        created_ms=metadata.created_ms,
        alignment=metadata.alignment,
        parallelism=metadata.parallelism,
        subtasks=sum(len(slot.subtasks) for slot in metadata.slots),
        unaligned_subtasks=sum(metric.unaligned for metric in metrics),
        state_rows=sum(rows for metric in metrics for rows in metric.state_rows.values()),
        state_bytes=stored_bytes(entry.section for entry in state_entries(metadata)),
        inflight_rows=sum(entry.rows for entry in inflight_entries(metadata)),
        inflight_bytes=stored_bytes(entry.section for entry in inflight_entries(metadata)),
        section_bytes=sum(section.length for section in sections),
        files=list(dict.fromkeys(section.path for section in sections)),
    )


def subtasks_of(metadata: SnapshotMetadata) -> Iterator[SubtaskManifest]:
    for slot in sorted(metadata.slots, key=lambda slot: slot.slot):
        yield from slot.subtasks


def state_entries(metadata: SnapshotMetadata) -> Iterator[StateEntry]:
    for subtask in subtasks_of(metadata):
        yield from subtask.states


def inflight_entries(metadata: SnapshotMetadata) -> Iterator[InflightEntry]:
    for subtask in subtasks_of(metadata):
        yield from subtask.inflight


def stored_bytes(sections: Iterable[SectionRef]) -> int:
    """Return the total size of the sections; each counts once."""
    return sum(section.length for section in dict.fromkeys(sections))
