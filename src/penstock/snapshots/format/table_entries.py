"""State entries of a snapshot by table, and ranges of key groups that are read together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from penstock.model.manifest import SnapshotMetadata, StateEntry
from penstock.snapshots.writing.state_index import BASE, KeyGroups

TableName = tuple[str, str]
"""Operator id and name of the table."""


def table_entries(metadata: SnapshotMetadata) -> dict[TableName, list[StateEntry]]:
    """Return the entries of every table, of all subtasks in order. Subtasks have no key groups in common."""
    found: dict[TableName, list[StateEntry]] = {}
    for slot in sorted(metadata.slots, key=lambda slot: slot.slot):
        for entry in (entry for subtask in slot.subtasks for entry in subtask.states):
            found.setdefault((entry.operator_id, entry.table), []).append(entry)
    return found


def entries_of_groups(entries: Iterable[StateEntry], groups: KeyGroups) -> list[StateEntry]:
    """Return the entries that contain any of these key groups, narrowed to these key groups."""
    first, last = groups
    return [
        msgspec.structs.replace(
            entry, key_group_first=max(entry.key_group_first, first), key_group_last=min(entry.key_group_last, last)
        )
        for entry in entries
        if entry.key_group_first <= last and entry.key_group_last >= first
    ]


def split_key_groups(entries: Sequence[StateEntry], groups: KeyGroups, limit: int) -> Iterator[KeyGroups]:
    """Split key groups into ranges of about ``limit`` stored bytes. A range may have up to twice as many.

    A range ends at the end of a base section if possible, because sections are read as a whole. A single key group is
    never split. Ranges without rows are left out.
    """
    first, last = groups
    cost = np.zeros(last + 2)
    straddled = np.zeros(last + 2, np.int64)
    for entry in entries:
        start, end = max(entry.key_group_first, first), min(entry.key_group_last, last)
        if start > end:
            continue
        cost[start : end + 1] += entry.section.length / (end + 1 - start)
        if entry.kind == BASE:
            straddled[start + 1 : end + 1] += 1
    begun, held = first, 0.0
    for group in range(first, last + 1):
        after = held + cost[group]
        if held and after > (2 * limit if straddled[group] else limit):
            yield begun, group - 1
            begun, after = group, cost[group]
        held = after
    if held:
        yield begun, last
