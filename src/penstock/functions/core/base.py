"""The expression tree that operators evaluate over Arrow batches.

Rows that a guard excludes never reach an expression: ``evaluate`` takes a selection mask, and at rows outside it an
expression must not raise and may return anything. So ``when(x != 0, 10 / x)`` divides only where ``x != 0``, as
Spark's generated code, which branches per row, does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mask = npt.NDArray[np.bool_]
"""Selected rows of a batch; ``None`` stands for all of them."""


class Expression(ABC):
    """One node. Immutable once built, and picklable: it is shipped to the slots.

    Attributes:
        data_type: the Arrow type of the result (timestamps are ``timestamp[us, tz=UTC]``).
        nullable: False promises that no selected row is null.
    """

    data_type: pa.DataType
    nullable: bool

    @abstractmethod
    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        """One value per row of ``batch``, of type ``data_type``; values outside ``mask`` are unspecified.

        Raises:
            EvaluationError: a selected row holds a value that ANSI mode forbids; the message is Spark's.
        """


class BoundReference(Expression):
    """A column of the batch, by position."""

    def __init__(self, ordinal: int, data_type: pa.DataType, nullable: bool = True) -> None:
        self.ordinal = ordinal
        self.data_type = data_type
        self.nullable = nullable

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        return batch.column(self.ordinal)

    def __repr__(self) -> str:
        return f"input[{self.ordinal}, {self.data_type}]"


def repeated(scalar: pa.Scalar, rows: int) -> pa.Array:
    """One value in every row. Arrow itself fails to repeat a nested value no times (pyarrow 26)."""
    return pa.repeat(scalar, rows) if rows else pa.nulls(0, scalar.type)


class Literal(Expression):
    """A constant; ``value`` is what ``pa.scalar(value, data_type)`` takes."""

    def __init__(self, value: object, data_type: pa.DataType) -> None:
        self.scalar = pa.scalar(value, data_type)
        self.data_type = data_type
        self.nullable = not self.scalar.is_valid

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        return repeated(self.scalar, batch.num_rows)

    def __repr__(self) -> str:
        return f"{self.scalar!r}"
