"""What all readers of ``format("penstock")`` have in common."""

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
class Place:
    """The snapshot that is read, as tasks find it."""

    location: str
    checkpoint: CheckpointId

    def watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches; what goes wrong on the way is said once, by its right name.

        Raises:
            CorruptSnapshot: something that the snapshot refers to is missing or changed.
            LocationError: the snapshot was deleted meanwhile, or cannot be read.
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
    """Base class of the readers. None has ``pushFilters``: Spark 4.3 applies pushed filters to every later use of the
    same DataFrame as well, see ``wanted_keys``."""

    def __init__(self, projection: Projection) -> None:
        self._projection = projection

    @abstractmethod
    def partitions(self) -> list[InputPartition]: ...

    @abstractmethod
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]: ...


class RowsReader(SnapshotReader):
    """Of few rows, which are there already."""

    def __init__(self, projection: Projection, rows: pa.RecordBatch) -> None:
        super().__init__(projection)
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if self._rows.num_rows:
            yield self._projection.apply(self._rows)
