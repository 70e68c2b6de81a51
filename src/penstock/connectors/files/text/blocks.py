"""Blocks of lines as rows: whole columns at once where that is sure to be right, else line by line.

A format has two readings of a block that never differ in what they give: a quick one, which gives up on a block that
holds anything out of the ordinary, and an exact one. A block that the quick one gives up on is halved, so that a few
odd lines cost little.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from penstock.connectors.files.text.lines import Block, LineFormat
from penstock.connectors.files.text.malformed import Record, RecordRules

_EXACT_LINES = 16
"""Blocks of so few lines are not halved."""


class LineParser(ABC):
    """Reads one file, block by block in order. Blocks may come in parts."""

    @abstractmethod
    def quick(self, block: Block) -> pa.RecordBatch | None:
        """All rows of the block, every one well-formed; None if that is not sure."""

    @abstractmethod
    def records(self, block: Block) -> Iterator[Record]:
        """The rows of the block, whatever it holds."""


def read_records(
    path: str, lines: LineFormat, parser: LineParser, rules: RecordRules, skip_rows: int
) -> Iterator[pa.RecordBatch]:
    """Rows from ``skip_rows`` on. See ``RecordRules.batches`` and ``LineFormat.blocks`` for errors."""
    for block in lines.blocks(path):
        for batch in _parsed(path, block, parser, rules):
            dropped = min(skip_rows, batch.num_rows)
            skip_rows -= dropped
            if dropped < batch.num_rows:
                yield batch.slice(dropped)


def _parsed(path: str, block: Block, parser: LineParser, rules: RecordRules) -> Iterator[pa.RecordBatch]:
    parts = [block]
    while parts:
        part = parts.pop()
        batch = parser.quick(part)
        if batch is not None:
            yield batch
        elif part.line_count > _EXACT_LINES:
            parts.extend(reversed(part.halves()))
        else:
            yield from rules.batches(path, parser.records(part))
