"""Base class of the mappings from the state of Spark's operators to that of Penstock's operators.

Each kind of operator has an implementation in a file of its own; ``importing.MAPPINGS`` lists them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructField, StructType

from penstock.interop.spark_checkpoint.findings import Finding
from penstock.interop.spark_checkpoint.state import MappedTable, SparkStateReader, StateOperator
from penstock.model.job_graph import JobGraph
from penstock.model.plain import Plain
from penstock.operators.closed_groups import CLOSED, ClosedGroups


@dataclass(frozen=True)
class SparkState:
    """State of one operator in a checkpoint of Spark.

    Attributes:
        reader: reader of the state: ``reader.rows(operator)``, optionally with options of the ``statestore`` source.
        operator: Spark's operator.
        conf: the settings that Spark stored with the batch.
    """

    reader: SparkStateReader
    operator: StateOperator
    conf: Mapping[str, str]


class StateMapping(ABC):
    """Mapping of Spark's state to the state of one operator. Call ``findings`` first, and ``tables`` if it is empty.

    Attributes:
        spark_names: possible names of Spark's operator in ``state/<number>/_metadata``.
    """

    spark_names: ClassVar[tuple[str, ...]]

    @abstractmethod
    def __init__(self, spec: Any) -> None:
        """Create the mapping. ``spec``: Penstock's operator, of the class in ``importing.MAPPINGS``."""

    @property
    def spark_name(self) -> str:
        """Name of Spark's operator for this spec, one of ``spark_names``."""
        [name] = self.spark_names
        return name

    @property
    @abstractmethod
    def drops_late_rows(self) -> bool:
        """True if the operator drops rows by event time."""

    @abstractmethod
    def findings(self, state: SparkState) -> list[Finding]:
        """Return the reasons why the state cannot be mapped; empty if it can. Reads schemas and file names, no rows.

        Raises:
            LocationError: the checkpoint is damaged.
        """

    @abstractmethod
    def tables(self, state: SparkState) -> list[MappedTable]:
        """Return each table in the spec's ``state_schemas``. Reads only schemas."""

    def scalars(self, subtask: int, graph: JobGraph, closed_us: int) -> dict[str, Plain]:
        """Return the scalars of the operator.

        Args:
            subtask: index of the subtask.
            graph: graph with the parallelism and ``max_parallelism``.
            closed_us: watermark up to which the operator has closed groups; 0: none are closed.
        """
        if not self.drops_late_rows or not closed_us:
            return {}
        closed = ClosedGroups(subtask, graph.parallelism, graph.max_parallelism)
        return {CLOSED: closed.ranges(closed_us)}


def fields_of(rows: DataFrame, name: str) -> list[Column]:
    """Return the fields of a struct by position. The struct is cast to one with other names, as names may repeat."""
    found = rows.schema[name].dataType
    assert isinstance(found, StructType)
    named = StructType([StructField(f"f{number}", field.dataType) for number, field in enumerate(found)])
    return [F.col(name).cast(named).getField(field) for field in named.names]


def with_positional_names(rows: DataFrame, columns: list[Column]) -> DataFrame:
    """Return these columns with names by position, because names may repeat."""
    return rows.select(*(column.alias(f"v{position}") for position, column in enumerate(columns)))
