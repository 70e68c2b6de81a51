"""Row and byte counts of in-flight data, for sections to which several entries refer.

After a rescale, every new owner of some key groups of a section has an entry for it. Rows of exchanges without keys are
divided into runs with one entry each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from penstock.model.manifest import InflightEntry, SectionRef, SnapshotMetadata


def distinct_rows(entries: Iterable[InflightEntry]) -> int:
    """Return the number of distinct rows that the entries refer to.

    Only the keys of the rows determine which consumer a row of a narrowed entry belongs to. So a row that its consumer
    has read still counts as long as another consumer of the section has not passed it.
    """
    rows = 0
    narrowed: dict[SectionRef, tuple[int, int]] = {}
    for entry in entries:
        if not entry.narrowed:
            rows += entry.rows
        elif entry.rows:
            first, end = entry.row_start, entry.row_start + entry.rows
            known_first, known_end = narrowed.get(entry.section, (first, end))
            narrowed[entry.section] = min(first, known_first), max(end, known_end)
    return rows + sum(end - first for first, end in narrowed.values())


def rows_in_flight(metadata: SnapshotMetadata | None) -> int:
    """Return the number of distinct in-flight rows of a snapshot; 0 if there is no snapshot. See ``distinct_rows``."""
    if metadata is None:
        return 0
    return distinct_rows(entry for slot in metadata.slots for subtask in slot.subtasks for entry in subtask.inflight)


def divided_bytes(entries: Sequence[InflightEntry]) -> list[int]:
    """Return the stored bytes of each entry. A section is divided among its entries in proportion to their rows.

    The result sums up to the size of all sections, each counted once.

    Args:
        entries: entries that count only the rows of their own consumer (``count_narrowed_rows``).
    """
    rows_left: Counter[SectionRef] = Counter()
    for entry in entries:
        rows_left[entry.section] += entry.rows
    bytes_left = {section: section.length for section in rows_left}
    divided = []
    for entry in entries:
        section = entry.section
        rows = rows_left[section]
        part = bytes_left[section] * entry.rows // rows if rows else bytes_left[section]
        rows_left[section] -= entry.rows
        bytes_left[section] -= part
        divided.append(part)
    return divided
