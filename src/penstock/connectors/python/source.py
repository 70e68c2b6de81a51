"""Source of a ``pyspark.sql.datasource.DataSource`` with a ``streamReader`` or a ``simpleStreamReader``.

*streamReader*: the driver calls ``latestOffset`` and ``partitions(start, end)``; each partition is a split. Partitions
are user objects and are never stored: a split has the two offsets and the partition's index, and the reader in the slot
plans the same range again. *simpleStreamReader*: there is only one split, which advances range by range.

The driver calls the same methods as Spark's driver: ``initialOffset`` at the first start of a query, ``latestOffset``,
``reportLatestOffset`` for progress reports, ``commit`` and ``stop``. ``latestOffset`` gets a start offset and a
``ReadLimit``. In readers written before PySpark 4.2 it has no parameters. When a query continues, such a reader first
gets a call of ``partitions(offset, offset)``, from which it may learn the current offset.

A limit bounds a range, as it bounds a micro-batch in Spark. As in Spark, filters are pushed to batch readers only: a
stream reader has no ``pushFilters``.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.connectors.base import Source, SourceReader
from penstock.connectors.python.reader import PythonSourceReader
from penstock.errors import DataError, NotSupported
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split
from penstock.operators.python.user_code import user_errors

DataSourceFactory = type[DataSource] | Callable[[], DataSource]

EMPTY_RANGES = 100
"""Limit for the consecutive ranges without partitions that one discovery skips."""

_STREAM_READERS = ("streamReader", "simpleStreamReader")
_LIMITS = (ReadAllAvailable, ReadMinRows, ReadMaxRows, ReadMaxFiles, ReadMaxBytes)
"""Types that Spark accepts from ``getDefaultReadLimit``."""


class PythonSource(Source):
    """Data source of the user. A range is planned only when a reader requests it, so that it includes the newest rows.

    Args:
        name: short name of the data source, for messages.
        factory: the DataSource class (called with the options), or a function without arguments that creates a
            DataSource.
        options: options of the reader. The user gets them with case-insensitive keys, as in Spark.
        schema: the Arrow schema of the rows, with timestamps in UTC.
        spark_schema_json: the same schema as ``StructType.json()``.

    Raises:
        NotSupported: the class does not support streaming.
    """

    discovers_ahead = False

    def __init__(
        self,
        name: str,
        factory: DataSourceFactory,
        options: Mapping[str, str],
        schema: pa.Schema,
        spark_schema_json: str,
    ) -> None:
        if isinstance(factory, type) and not any(_overrides(factory, method) for method in _STREAM_READERS):
            raise NotSupported(
                f"data source {name} cannot be streamed: its class {factory.__name__} has neither a streamReader nor a "
                "simpleStreamReader; write one of them"
            )
        self.schema = schema
        self._name = name
        self._factory = factory
        self._options = dict(options)
        self._spark_schema_json = spark_schema_json
        self._driver_reader: Any = None
        self._frozen = False
        self._began = False
        self._latest: Plain = None

    def describe(self) -> str:
        return f"PythonDataSourceV2[{self._name}]"

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        with user_errors(self._label):
            reader = self._on_driver()
            if isinstance(reader, SimpleDataSourceStreamReader):
                return self._discover_simple(reader, state)
            if state is not None and not self._began and not _takes_start(reader):
                self._plan(reader, offset := cast("dict[str, Any]", _field(state, "offset")), offset, 0)
            self._began = True
            discovery = self._discover_ranges(reader, state)
            self._latest = cast("Plain", json.loads(json.dumps(reader.reportLatestOffset())))
            return discovery

    def discovery_at(self, offset: dict[str, Any]) -> Discovery:
        """Return the state and the splits of a query that starts at this offset. Create the user's reader."""
        with user_errors(self._label):
            reader = self._on_driver()
        if isinstance(reader, SimpleDataSourceStreamReader):
            split = Split("simple", {"kind": "simple", "range": 0, "start": offset})
            return Discovery([split], {"offset": offset, "range": 1})
        return Discovery((), {"offset": offset, "range": 0})

    def range_between(self, start: dict[str, Any], end: dict[str, Any]) -> Discovery | None:
        """Return the splits between two offsets and the state after them; None for a simple reader."""
        with user_errors(self._label):
            reader = self._on_driver()
            if isinstance(reader, SimpleDataSourceStreamReader):
                return None
            return Discovery(self._plan(reader, start, end, 0), {"offset": end, "range": 1})

    def latest_offset(self) -> Plain:
        return self._latest

    def freeze(self) -> None:
        """End the input with the input that exists now, as Spark does.

        A reader with ``SupportsTriggerAvailableNow`` is prepared, and then read until it has no more rows. From any
        other reader, one range without a limit is read, because Spark reads it in one batch.
        """
        self._frozen = True
        with user_errors(self._label):
            reader = self._on_driver()
            if isinstance(reader, SupportsTriggerAvailableNow) and isinstance(reader, DataSourceStreamReader):
                reader.prepareForTriggerAvailableNow()

    def committed(self, state: Plain) -> None:
        # For a simple reader, rows are read in a slot, where ``PythonSourceReader.committed`` also commits.
        if state is None:
            return
        with user_errors(self._label):
            self._on_driver().commit(_field(state, "offset"))

    def close(self) -> None:
        reader, self._driver_reader = self._driver_reader, None
        self._began = False
        if isinstance(reader, DataSourceStreamReader):
            with user_errors(self._label):
                reader.stop()

    def create_reader(self) -> SourceReader:
        return PythonSourceReader(self._name, self._make_reader, self.schema, self._spark_schema())

    @property
    def _label(self) -> str:
        return f"source {self._name}"

    def _on_driver(self) -> Any:
        """Return the driver's reader, which is created at the first call and used until ``close``."""
        if self._driver_reader is None:
            self._driver_reader = self._make_reader()
        return self._driver_reader

    def _spark_schema(self) -> StructType:
        return StructType.fromJson(json.loads(self._spark_schema_json))

    def _make_reader(self) -> DataSourceStreamReader | SimpleDataSourceStreamReader:
        if isinstance(self._factory, type):
            source = self._factory(options=cast("dict[str, str]", CaseInsensitiveDict(self._options)))
        else:
            source = self._factory()
        reader: object
        try:
            reader = source.streamReader(schema=self._spark_schema())
        except PySparkNotImplementedError:
            reader = source.simpleStreamReader(schema=self._spark_schema())
        if not isinstance(reader, DataSourceStreamReader | SimpleDataSourceStreamReader):
            raise DataError(
                f"{self._label}: streamReader or simpleStreamReader returned a {type(reader).__name__}; it must be a "
                "DataSourceStreamReader or a SimpleDataSourceStreamReader"
            )
        return reader

    # ---- discovery ----

    def _discover_simple(self, reader: SimpleDataSourceStreamReader, state: Plain) -> Discovery:
        if state is not None:
            return Discovery((), state, self._frozen)
        offset = self._offset("initialOffset", reader.initialOffset())
        split = Split("simple", {"kind": "simple", "range": 0, "start": offset})
        return Discovery([split], {"offset": offset, "range": 1}, self._frozen)

    def _discover_ranges(self, reader: DataSourceStreamReader, state: Plain) -> Discovery:
        if state is None:
            state = {"offset": self._offset("initialOffset", reader.initialOffset()), "range": 0}
        start = cast("dict[str, Any]", _field(state, "offset"))
        number = cast("int", _field(state, "range"))
        once = self._frozen and not isinstance(reader, SupportsTriggerAvailableNow)
        splits: list[Split] = []
        for _ in range(EMPTY_RANGES):
            end = self._end(reader, start, ReadAllAvailable() if once else self._limit(reader))
            if end == start:
                return Discovery((), {"offset": start, "range": number}, self._frozen)
            splits = self._plan(reader, start, end, number)
            start, number = end, number + 1
            if splits or once:
                break
        return Discovery(splits, {"offset": start, "range": number}, once)

    def _limit(self, reader: DataSourceStreamReader) -> ReadLimit:
        limit = reader.getDefaultReadLimit()
        if type(limit) not in _LIMITS:
            known = ", ".join(kind.__name__ for kind in _LIMITS)
            raise DataError(
                f"{self._label}: getDefaultReadLimit returned a {type(limit).__name__}; Spark knows {known}"
            )
        return limit

    def _end(self, reader: DataSourceStreamReader, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if not _takes_start(reader):
            return self._offset("latestOffset", reader.latestOffset())
        return self._offset("latestOffset", reader.latestOffset(start, limit))

    def _offset(self, method: str, offset: object) -> dict[str, Any]:
        """Convert an offset to JSON and back, as Spark does: keys become strings and tuples become lists."""
        if not isinstance(offset, dict):
            raise DataError(f"{self._label}: {method} returned {offset!r}; it must return a dict")
        return cast("dict[str, Any]", json.loads(json.dumps(offset)))

    def _plan(
        self, reader: DataSourceStreamReader, start: dict[str, Any], end: dict[str, Any], number: int
    ) -> list[Split]:
        partitions: object = reader.partitions(start, end)
        if not isinstance(partitions, Sequence) or not all(isinstance(p, InputPartition) for p in partitions):
            raise DataError(f"{self._label}: partitions({start}, {end}) must return a list of InputPartitions")
        spec: dict[str, Plain] = {"kind": "range", "range": number, "start": start, "end": end}
        spec["partitions"] = len(partitions)
        return [Split(f"{number}/{i}", {**spec, "partition": i}) for i in range(len(partitions))]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_driver_reader": None}


def _overrides(source: type, method: str) -> bool:
    return getattr(source, method, None) is not getattr(DataSource, method)


def _takes_start(reader: DataSourceStreamReader) -> bool:
    """Return False for readers written before PySpark 4.2: they take neither a start offset nor a limit."""
    return bool(inspect.signature(reader.latestOffset).parameters)


def _field(state: Plain, name: str) -> Plain:
    assert isinstance(state, dict)
    return state[name]
