"""Base class of readers that can access the rows of a split by number."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Sequence

import pyarrow as pa

from penstock.connectors.base import SourceReader
from penstock.connectors.split_forms import SplitForm
from penstock.model.splits import Split
from penstock.operators.batches import first_rows


class SplitRowsReader(SourceReader):
    """Reader that reads one split after the other. A position is the number of rows read from the split.

    Args:
        form: form of the splits.
    """

    def __init__(self, form: SplitForm) -> None:
        self._form = form
        self._splits: deque[Split] = deque()

    @abstractmethod
    def rows(self, split: Split, first: int, max_rows: int) -> pa.RecordBatch:
        """Return at most ``max_rows`` rows of the split, starting with number ``first``; none after its last row."""

    def add_split(self, split: Split) -> None:
        self._form.check(split)
        self._splits.append(split)

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        while self._splits:
            split = self._splits[0]
            read = split.position.get("rows", 0)
            assert isinstance(read, int)
            batch = self.rows(split, read, max_rows)
            if batch.num_rows:
                batch, _ = first_rows(batch, max_rows, self.batch_bytes)
                self._splits[0] = Split(split.split_id, split.spec, {"rows": read + batch.num_rows})
                return batch
            self._splits.popleft()
        return None

    def snapshot(self) -> Sequence[Split]:
        return tuple(self._splits)
