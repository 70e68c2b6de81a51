"""What a snapshot's entries say of its tables: which are a table's, and which key groups to read together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from penstock.model.manifest import SnapshotMetadata, StateEntry
from penstock.snapshots.writing.state_index import BASE, KeyGroups

TableName = tuple[str, str]
"""Operator id and name of the table."""


def table_entries(metadata: SnapshotMetadata) -> dict[TableName, list[StateEntry]]:
    """Those of every table, of all subtasks one after the other: they have no key groups in common."""
    found: dict[TableName, list[StateEntry]] = {}
    for slot in sorted(metadata.slots, key=lambda slot: slot.slot):
        for entry in (entry for subtask in slot.subtasks for entry in subtask.states):
            found.setdefault((entry.operator_id, entry.table), []).append(entry)
    return found


def of_groups(entries: Iterable[StateEntry], groups: KeyGroups) -> list[StateEntry]:
    """What entries say about these key groups."""
    first, last = groups
    return [
        msgspec.structs.replace(
            entry, key_group_first=max(entry.key_group_first, first), key_group_last=min(entry.key_group_last, last)
        )
        for entry in entries
        if entry.key_group_first <= last and entry.key_group_last >= first
    ]


def pieces(entries: Sequence[StateEntry], groups: KeyGroups, limit: int) -> Iterator[KeyGroups]:
    """Key groups in pieces of about ``limit`` stored bytes, up to twice as many: a piece ends, if it can, where base
    sections do, because a section is read as a whole. Pieces without rows are left out."""
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
