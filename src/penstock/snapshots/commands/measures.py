"""Sizes of a snapshot, derived from its metadata alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from penstock.model.manifest import InflightEntry, SectionRef, SnapshotMetadata, StateEntry, SubtaskManifest
from penstock.snapshots.catalog import sections_of


class Measures(msgspec.Struct, frozen=True):
    """Of one snapshot.

    Attributes:
        unaligned_subtasks: how many were captured unaligned, of ``subtasks``.
        state_rows: of all tables, as their operators counted them.
        state_bytes: stored, of all sections that hold state, each once.
        inflight_rows: rows that wait to be processed, if the metadata has them counted (``own_rows``).
        inflight_bytes: stored, as ``state_bytes``.
        section_bytes: of all sections that it refers to, each once.
        files: the data files that these lie in.
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


def measured(metadata: SnapshotMetadata) -> Measures:
    """All of it, in one pass."""
    metrics = [metric for slot in metadata.slots for metric in slot.metrics]
    sections = dict.fromkeys(sections_of(metadata))
    return Measures(
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
    """Of the sections, each once."""
    return sum(section.length for section in dict.fromkeys(sections))
