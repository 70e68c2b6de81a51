"""Static rows: the static side of a join, or initial state.

The driver reads them once and sends them to the slots with the graph.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.config import CONF_PREFIX
from penstock.errors import NotSupported

MAX_STATIC_OPTION = "join.maxStaticBytes"

_MIB = 1 << 20


class StaticRows:
    """Static rows, which the driver loads. Pickling keeps the rows but not ``read``.

    Args:
        name: description of the rows for error messages.
        schema: schema of the rows. It has at least one column, because an Arrow batch without columns may lose its
            number of rows.
        read: reads the rows on the driver. Its columns have the types of ``schema``; their names may differ.
    """

    def __init__(self, name: str, schema: pa.Schema, read: Callable[[], pa.Table]) -> None:
        self.name = name
        self.schema = schema
        self._read: Callable[[], pa.Table] | None = read
        self._batch: pa.RecordBatch | None = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_read": None}

    def load(self, max_bytes: int) -> None:
        """Read the rows, unless they are loaded already. Blocks while Spark computes them.

        Raises:
            NotSupported: the rows take more than ``max_bytes`` bytes as Arrow.
            DataError: the rows cannot be read.
        """
        if self._batch is not None:
            return
        assert self._read is not None, "only the driver reads"
        table = self._read()
        if table.nbytes > max_bytes:
            raise NotSupported(
                f"{self.name}: its rows take {_mib(table.nbytes)}, more than {CONF_PREFIX}{MAX_STATIC_OPTION} "
                f"({_mib(max_bytes)}) allows, as every slot holds all of them; select the columns and rows that the "
                "join needs before it, or raise the option"
            )
        columns = [column.combine_chunks() for column in table.columns]
        self._batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)

    @property
    def is_loaded(self) -> bool:
        """True if the rows were loaded. The driver loads only rows that are needed."""
        return self._batch is not None

    @property
    def nbytes(self) -> int:
        """Size of the rows as Arrow, in bytes; 0 before they are loaded."""
        return 0 if self._batch is None else int(self._batch.nbytes)

    @property
    def batch(self) -> pa.RecordBatch:
        """The rows, which must have been loaded."""
        assert self._batch is not None, f"{self.name} was not loaded on the driver"
        return self._batch


def _mib(size: int) -> str:
    return f"{size / _MIB:.1f} MiB"
