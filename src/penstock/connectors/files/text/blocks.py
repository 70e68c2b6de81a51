"""Parsing of blocks of lines: whole columns at once on the fast path, line by line on the exact path.

A format has two parsers of a block, with equal results. The fast path refuses a block that has an unusual line. Such a
block is halved repeatedly, so that a few unusual lines cost little. The exact path parses short blocks that the fast
path refuses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from penstock.connectors.files.text.lines import Block, LineFormat
from penstock.connectors.files.text.malformed import Record, RecordRules

_EXACT_LINES = 16
"""Blocks of at most this many lines are not halved."""


class LineParser(ABC):
    """Parser of one file. It gets the blocks in order, and may get a block in parts."""

    @abstractmethod
    def fast_path(self, block: Block) -> pa.RecordBatch | None:
        """Return all rows of the block; None if a row may be malformed or the exact path must parse it."""

    @abstractmethod
    def exact_path(self, block: Block) -> Iterator[Record]:
        """Yield the rows of any block."""


def read_records(
    path: str, lines: LineFormat, parser: LineParser, rules: RecordRules, skip_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows after the first ``skip_rows``. Errors: see ``RecordRules.batches`` and ``LineFormat.blocks``."""
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
        batch = parser.fast_path(part)
        if batch is not None:
            yield batch
        elif part.line_count > _EXACT_LINES:
            parts.extend(reversed(part.halves()))
        else:
            yield from rules.batches(path, parser.exact_path(part))
