"""Base classes of the readers of ``format("penstock")``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.errors import CorruptSnapshot
from penstock.interop.spark_data.columns import Projection
from penstock.model.ids import CheckpointId
from penstock.snapshots.commands.opened_location import open_location_to_read


@dataclass(frozen=True)
class SnapshotRef:
    """Reference to the snapshot that is read. It is sent to tasks."""

    location: str
    checkpoint: CheckpointId

    def with_explained_errors(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, and raise errors with their causes.

        Raises:
            CorruptSnapshot: something that the snapshot refers to is missing or changed.
            LocationError: the snapshot was deleted in the meantime, or cannot be read.
        """
        try:
            yield from batches
        except (CorruptSnapshot, ValueError, OSError) as error:
            self._explain(error)

    def _explain(self, error: Exception) -> None:
        def again() -> None:
            raise error

        open_location_to_read(self.location).unless_deleted([self.checkpoint], again)


class SnapshotReader(DataSourceReader):  # type: ignore[misc]
    """Base class of the readers.

    No reader has ``pushFilters``: Spark 4.3 applies pushed filters to every later use of the same DataFrame as well,
    see ``parse_key_filter``.
    """

    def __init__(self, projection: Projection) -> None:
        self._projection = projection

    @abstractmethod
    def partitions(self) -> list[InputPartition]: ...

    @abstractmethod
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]: ...


class RowsReader(SnapshotReader):
    """Reader of a few rows that are in memory."""

    def __init__(self, projection: Projection, rows: pa.RecordBatch) -> None:
        super().__init__(projection)
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if self._rows.num_rows:
            yield self._projection.apply(self._rows)
