"""Conversion between Arrow and pandas like in Spark's Python workers, with the converters of PySpark 4.3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.conversion import ArrowBatchTransformer, PandasToArrowConversion
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

from penstock.operators.python.user_code import PythonSettings, convert_for_user, to_session_zone

if TYPE_CHECKING:
    import pandas as pd


class PandasColumns:
    """Conversion of arguments and results of pandas UDFs: a column is a Series, or a DataFrame if it has structs."""

    def __init__(self, settings: PythonSettings) -> None:
        self._settings = settings

    def to_series(self, columns: list[pa.Array]) -> list[pd.Series[Any] | pd.DataFrame]:
        """Convert columns for a pandas UDF, with the names ``_0``, ``_1`` and so on, as in Spark.

        Raises:
            EvaluationError: pandas cannot represent a date or time.
        """
        names = [f"_{position}" for position in range(len(columns))]
        return convert_for_user(self._series, pa.RecordBatch.from_arrays(columns, names), "argument")

    def _series(self, batch: pa.RecordBatch) -> list[pd.Series[Any] | pd.DataFrame]:
        series: list[pd.Series[Any] | pd.DataFrame] = ArrowBatchTransformer.to_pandas(
            _localized(batch, self._settings),
            timezone=self._settings.time_zone,
            struct_in_pandas="dict",
            ndarray_as_list=False,
            prefer_int_ext_dtype=self._settings.int_extension_types,
            df_for_struct=True,
        )
        return series

    def from_series(self, result: object, spark_type: DataType, arrow_type: pa.DataType) -> pa.Array:
        """Convert one result column to the declared type.

        Raises:
            TypeError: the result is not a Series (or another sequence), or for a struct not a DataFrame.
            PySparkException: the result cannot be converted.
        """
        import pandas as pd

        expected = pd.DataFrame if isinstance(spark_type, StructType) else None
        if not hasattr(result, "__len__") or (expected is not None and not isinstance(result, expected)):
            required = "pandas.DataFrame" if expected is not None else "pandas.Series"
            raise TypeError(f"the function must return {required}, not {type(result).__name__}")
        schema = StructType([StructField("_0", spark_type)])
        if not isinstance(result, pd.Series | pd.DataFrame):
            result = pd.Series(result)
        return _convert([result], schema, self._settings).column(0).cast(arrow_type)


class PandasBatches:
    """Conversion of the frames of mapInPandas and of stateful functions."""

    def __init__(self, output_schema: pa.Schema, settings: PythonSettings) -> None:
        self._schema = output_schema
        self._spark_type = from_arrow_schema(output_schema)
        self._settings = settings

    def to_frame(self, batch: pa.RecordBatch) -> pd.DataFrame:
        """Convert a batch to a DataFrame. Timestamps become naive local times in the session's zone.

        Raises:
            EvaluationError: pandas cannot represent a date or time.
        """
        return convert_for_user(self._frame, batch)

    def _frame(self, batch: pa.RecordBatch) -> pd.DataFrame:
        frame: pd.DataFrame = ArrowBatchTransformer.to_pandas(
            ArrowBatchTransformer.wrap_struct(_localized(batch, self._settings)),
            timezone=self._settings.time_zone,
            prefer_int_ext_dtype=self._settings.int_extension_types,
            df_for_struct=True,
        )[0]
        return frame

    def to_plain_frame(self, batch: pa.RecordBatch, wide: bool = False) -> pd.DataFrame:
        """Convert a batch to a frame column by column, like Spark's worker for stateful functions.

        ``wide``: True to convert numbers to int64 and float64, as pandas does for Python numbers.
        """
        return convert_for_user(lambda rows: self._plain_frame(rows, wide), batch)

    def _plain_frame(self, batch: pa.RecordBatch, wide: bool) -> pd.DataFrame:
        import pandas as pd

        columns: dict[int, Any] = {
            position: _numbers(column, self._settings, wide) for position, column in enumerate(batch.columns)
        }
        rest = [position for position, column in columns.items() if column is None]
        if rest:
            columns |= zip(rest, self._plain_series(batch.select(rest)), strict=True)
        frame = pd.DataFrame(columns)
        frame.columns = pd.Index(batch.schema.names)
        return frame

    def _plain_series(self, batch: pa.RecordBatch) -> list[pd.Series[Any]]:
        series: list[pd.Series[Any]] = ArrowBatchTransformer.to_pandas(
            _localized(batch, self._settings),
            timezone=self._settings.time_zone,
            struct_in_pandas="dict",
            ndarray_as_list=False,
            prefer_int_ext_dtype=self._settings.int_extension_types,
            df_for_struct=False,
        )
        return series

    def from_numbers(self, names: Sequence[Any], columns: Sequence[np.ndarray]) -> pa.RecordBatch | None:
        """Convert the columns of a frame like ``from_frame``, at a fraction of the cost.

        Return None if the columns are not the declared ones or do not have plain numbers. Then ``from_frame`` must
        convert them or raise an error.
        """
        if list(names) != self._schema.names:
            return None
        converted = []
        for values, field in zip(columns, self._schema, strict=True):
            if not _is_plain(values.dtype, field.type):
                return None
            try:
                made = pa.array(values, from_pandas=True).cast(field.type, safe=self._settings.safe_cast)
            except pa.ArrowInvalid:
                return None
            converted.append(made)
        return pa.RecordBatch.from_arrays(converted, schema=self._schema)

    def from_frame(self, frame: object) -> pa.RecordBatch:
        """Convert a frame from user code to a batch with the declared schema.

        Raises:
            TypeError: the value is not a DataFrame.
            ValueError: the columns are not the declared ones.
            PySparkException: a value cannot be converted.
        """
        import pandas as pd

        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"mapInPandas must yield pandas.DataFrame, not {type(frame).__name__}")
        if frame.empty and len(frame.columns) == 0:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        # As in Spark's worker, columns beyond the declared number are dropped, and the rest is matched by name.
        names = list(frame.columns[: len(self._schema)])
        by_name = any(isinstance(name, str) for name in frame.columns)
        if (by_name and sorted(map(str, names)) != sorted(self._schema.names)) or len(names) != len(self._schema):
            raise ValueError(f"yielded columns {names}, declared are {self._schema.names}")
        spark_schema = StructType([StructField("_0", self._spark_type)])
        struct = _convert([frame], spark_schema, self._settings).column(0)
        columns = [column.cast(field.type) for column, field in zip(struct.flatten(), self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _numbers(column: pa.Array, settings: PythonSettings, wide: bool) -> np.ndarray | None:
    """Convert numbers like Spark, without the high fixed cost of its conversion; None if this is not possible."""
    if pa.types.is_float32(column.type) or pa.types.is_float64(column.type):
        widest: type = np.float64
    elif pa.types.is_integer(column.type) and not column.null_count and not settings.int_extension_types:
        widest = np.int64
    else:
        return None
    values: np.ndarray = column.to_numpy(zero_copy_only=False)
    return values.astype(widest) if wide else values


def _is_plain(given: np.dtype[Any], declared: pa.DataType) -> bool:
    """Return True if Spark's conversion does the same as Arrow's cast."""
    if given.kind == "i":
        return bool(pa.types.is_integer(declared))
    return given.kind == "f" and bool(declared == pa.from_numpy_dtype(given))


def _localized(batch: pa.RecordBatch, settings: PythonSettings) -> pa.RecordBatch:
    columns = [to_session_zone(column, settings.time_zone) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names) if columns else batch


def _convert(data: list[pd.Series[Any] | pd.DataFrame], schema: StructType, settings: PythonSettings) -> pa.RecordBatch:
    return PandasToArrowConversion.convert(
        data,
        schema,
        timezone=settings.time_zone,
        safecheck=settings.safe_cast,
        arrow_cast=True,
        prefers_large_types=False,
        assign_cols_by_name=settings.columns_by_name,
        int_to_decimal_coercion_enabled=settings.int_to_decimal,
    )
