"""Any ``pyspark.sql.datasource.DataSource`` with a ``streamReader`` or a ``simpleStreamReader``, as a source.

*streamReader*: the driver asks for ``latestOffset`` and plans ``partitions(start, end)``; each partition is a split.
Partitions are user objects and are never stored: a split holds the two offsets and the partition's index, and the
reader in the slot plans the same range again. *simpleStreamReader*: one split that moves along, range by range.
"""

from __future__ import annotations

import inspect
import json
import traceback
from collections.abc import Callable, Mapping
from typing import Any, cast

import pyarrow as pa
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceStreamReader,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.types import StructType

from penstock.connectors.base import Discovery, Source, SourceReader, Split
from penstock.connectors.python_reader import PythonSourceReader
from penstock.errors import DataError, FunctionError, NotSupported, PenstockError
from penstock.operators.base import Plain

DataSourceFactory = type[DataSource] | Callable[[], DataSource]

_STREAM_READERS = ("streamReader", "simpleStreamReader")


class PythonSource(Source):
    """A user's data source.

    Args:
        name: its short name, for messages.
        factory: the DataSource class (called with the options), or a function without arguments that makes one.
        options: of the reader; keys are case-insensitive for the user, as in Spark.
        schema: the Arrow schema of the rows, timestamps in UTC.
        spark_schema_json: the same as ``StructType.json()``.

    Raises:
        NotSupported: the class reads batches only.
    """

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

    def describe(self) -> str:
        return f"PythonDataSourceV2[{self._name}]"

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        try:
            reader = self._on_driver()
            if isinstance(reader, SimpleDataSourceStreamReader):
                return _discover_simple(reader, state)
            return _discover_ranges(self._name, reader, state)
        except PenstockError:
            raise
        except Exception as error:
            raise self._failure(error) from error

    def committed(self, state: Plain) -> None:
        # A simple reader's one split never ends, so that its user is never told: nothing may be let go.
        if state is None:
            return
        try:
            self._on_driver().commit(_field(state, "offset"))
        except Exception as error:
            raise self._failure(error) from error

    def close(self) -> None:
        reader, self._driver_reader = self._driver_reader, None
        if isinstance(reader, DataSourceStreamReader):
            try:
                reader.stop()
            except Exception as error:
                raise self._failure(error) from error

    def create_reader(self) -> SourceReader:
        return PythonSourceReader(self._name, self._make_reader, self.schema, self._spark_schema())

    def _on_driver(self) -> Any:
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
        try:
            return source.streamReader(schema=self._spark_schema())
        except PySparkNotImplementedError:
            return source.simpleStreamReader(schema=self._spark_schema())

    def _failure(self, error: Exception) -> FunctionError:
        return FunctionError(f"source {self._name}", f"{type(error).__name__}: {error}", traceback.format_exc())

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_driver_reader": None}


def _overrides(source: type, method: str) -> bool:
    return getattr(source, method, None) is not getattr(DataSource, method)


def _discover_simple(reader: SimpleDataSourceStreamReader, state: Plain) -> Discovery:
    if state is not None:
        return Discovery((), state)
    offset = _plain(reader.initialOffset())
    return Discovery([Split("simple", {"kind": "simple", "range": 0, "start": offset})], {"offset": offset, "range": 1})


def _discover_ranges(name: str, reader: DataSourceStreamReader, state: Plain) -> Discovery:
    if state is None:
        state = {"offset": _plain(reader.initialOffset()), "range": 0}
    start = cast("dict[str, Any]", _field(state, "offset"))
    number = cast("int", _field(state, "range"))
    end = _plain(_latest_offset(reader, start))
    if json.dumps(end) == json.dumps(start):
        return Discovery((), state)
    if not isinstance(end, dict):
        raise DataError(f"source {name}: latestOffset returned {end!r}; it must return a dict")
    count = len(reader.partitions(start, end))
    splits = [
        Split(
            f"{number}/{i}",
            {"kind": "range", "range": number, "start": start, "end": end, "partition": i, "partitions": count},
        )
        for i in range(count)
    ]
    return Discovery(splits, {"offset": end, "range": number + 1})


def _latest_offset(reader: DataSourceStreamReader, start: dict[str, Any]) -> object:
    # Readers written before PySpark 4.2 take neither a start offset nor a limit.
    if not inspect.signature(reader.latestOffset).parameters:
        return reader.latestOffset()
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def _plain(offset: object) -> Plain:
    """As Spark stores it: through JSON, so that keys are strings and tuples lists from the start."""
    return cast("Plain", json.loads(json.dumps(offset)))


def _field(state: Plain, name: str) -> Plain:
    assert isinstance(state, dict)
    return state[name]
