"""Rows that do not stream (a join's static side, initial state).

The driver reads them once and ships them to the slots with the graph.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.config import CONF_PREFIX
from penstock.errors import NotSupported

MAX_STATIC_OPTION = "join.maxStaticBytes"

_MIB = 1 << 20


class StaticRows:
    """Static rows, empty until the driver has loaded them. Only the rows travel to the slots, not how they are read.

    Args:
        name: whose rows they are, for messages.
        schema: of the rows; at least one column, or an Arrow batch would not know how many rows it has.
        read: the rows, of ``schema`` but for the names of the columns. Called on the driver.
    """

    def __init__(self, name: str, schema: pa.Schema, read: Callable[[], pa.Table]) -> None:
        self.name = name
        self.schema = schema
        self._read: Callable[[], pa.Table] | None = read
        self._batch: pa.RecordBatch | None = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_read": None}

    def load(self, max_bytes: int) -> None:
        """Read the rows, once. Blocks for as long as Spark takes.

        Raises:
            NotSupported: they take more than ``max_bytes`` as Arrow.
            DataError: they cannot be read.
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
        """True if the rows were loaded, which happens only where they are needed."""
        return self._batch is not None

    @property
    def nbytes(self) -> int:
        """Size of the rows as Arrow; 0 before they are loaded."""
        return 0 if self._batch is None else int(self._batch.nbytes)

    @property
    def batch(self) -> pa.RecordBatch:
        """The rows, which must have been loaded."""
        assert self._batch is not None, f"{self.name} was not loaded on the driver"
        return self._batch


def _mib(size: int) -> str:
    return f"{size / _MIB:.1f} MiB"
