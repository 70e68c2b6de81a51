"""Faults in the output of a scenario: lost, doubled, corrupted, out of order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.scenarios.records import RECORD, checksum, other_key
from tests.scenarios.shapes import Shape
from tests.support.dataflow.tiny import visible

SHOWN = 5


def faults(shape: Shape, folder: Path) -> list[str]:
    """Each kind of fault in one sentence; empty if the output is exact."""
    seen: Counter[tuple[int, int, int, int]] = Counter()
    last: dict[tuple[int, int, int], int] = {}
    harmed, miscounted, disordered = [], [], []
    for record in _records(folder):
        key, other, producer, sequence, length, told, payload, number, wrong = record
        name = (number, producer, key, sequence)
        seen[name] += 1
        sound = checksum(key, other, producer, sequence, payload) == told and len(payload) == length
        if not sound or other != other_key(key):
            harmed.append(name)
        if wrong:
            miscounted.append(name)
        if number in shape.ordered:
            if sequence <= last.get(name[:3], -1):
                disordered.append(name)
            last[name[:3]] = sequence
    expected = {
        (number, *name)
        for number, sources in shape.arrivals.items()
        for s in sources
        for name in shape.sources[s].names()
    }
    found = {
        "lost": sorted(expected - set(seen)),
        "never sent": sorted(set(seen) - expected),
        "doubled": [name for name, times in seen.items() if times > 1],
        "corrupted": harmed,
        "counted wrongly on their way": miscounted,
        "out of order": disordered,
    }
    return [
        f"{len(names)} records {what}, (input, producer, key, sequence) {names[:SHOWN]}"
        for what, names in found.items()
        if names
    ]


def _records(folder: Path) -> Iterator[tuple[int, int, int, int, int, int, bytes, int, int]]:
    """Return the records in the order in which they became visible."""
    for table in visible(folder):
        assert table.schema.names == RECORD.names
        yield from zip(*(column.to_pylist() for column in table.columns), strict=True)
