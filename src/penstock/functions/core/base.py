"""Expression tree that operators evaluate over Arrow batches.

``evaluate`` takes a selection mask. At rows outside the mask an expression must not raise and may return any value.
Therefore ``when(x != 0, 10 / x)`` divides only where ``x != 0``, as Spark's generated code does with a branch per row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mask = npt.NDArray[np.bool_]
"""Selected rows of a batch; ``None`` stands for all of them."""


class Expression(ABC):
    """Node of an expression tree. Immutable and picklable: it is sent to the slots.

    Attributes:
        data_type: the Arrow type of the result (timestamps are ``timestamp[us, tz=UTC]``).
        nullable: False guarantees that no selected row is null.
    """

    data_type: pa.DataType
    nullable: bool

    @abstractmethod
    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        """Return one value of type ``data_type`` per row of ``batch``; values outside ``mask`` are unspecified.

        Raises:
            EvaluationError: ANSI mode forbids the value of a selected row. The message is Spark's.
        """


class BoundReference(Expression):
    """Column of the batch, by position."""

    def __init__(self, ordinal: int, data_type: pa.DataType, nullable: bool = True) -> None:
        self.ordinal = ordinal
        self.data_type = data_type
        self.nullable = nullable

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        return batch.column(self.ordinal)

    def __repr__(self) -> str:
        return f"input[{self.ordinal}, {self.data_type}]"


def repeated(scalar: pa.Scalar, rows: int) -> pa.Array:
    """Return an array with the scalar in every row. ``pa.repeat`` fails for zero rows of a nested type (pyarrow 26)."""
    return pa.repeat(scalar, rows) if rows else pa.nulls(0, scalar.type)


class Literal(Expression):
    """Constant. ``value`` is any value that ``pa.scalar(value, data_type)`` accepts."""

    def __init__(self, value: object, data_type: pa.DataType) -> None:
        self.scalar = pa.scalar(value, data_type)
        self.data_type = data_type
        self.nullable = not self.scalar.is_valid

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        return repeated(self.scalar, batch.num_rows)

    def __repr__(self) -> str:
        return f"{self.scalar!r}"
