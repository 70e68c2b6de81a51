"""How the state of one of Spark's operators becomes the state of one of ours: the interface.

Every kind of operator has an implementation in a file of its own; ``importing.py`` lists them.
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
from penstock.interop.spark_checkpoint.state import MappedTable, StateOperator, StateReader
from penstock.model.job_graph import JobGraph
from penstock.model.plain import Plain
from penstock.operators.closed_groups import CLOSED, ClosedGroups


@dataclass(frozen=True)
class SparkState:
    """One operator's state in a checkpoint of Spark's.

    Attributes:
        reader: reads it; by ``reader.rows(operator)``, or with options of the ``statestore`` source.
        conf: the settings that Spark kept with the batch.
    """

    reader: StateReader
    operator: StateOperator
    conf: Mapping[str, str]


class StateMapping(ABC):
    """The state of one operator of ours, out of Spark's. Call order: ``findings``; where there are none, ``tables``.

    Attributes:
        spark_names: what Spark may call its operator in ``state/<number>/_metadata``.
    """

    spark_names: ClassVar[tuple[str, ...]]

    @abstractmethod
    def __init__(self, spec: Any) -> None:
        """``spec``: of the operator of ours, of the class that ``importing.MAPPINGS`` has."""

    @property
    def spark_name(self) -> str:
        """Which of the names it is."""
        [name] = self.spark_names
        return name

    @property
    @abstractmethod
    def drops_late_rows(self) -> bool:
        """Whether event time closes something for the operator."""

    @abstractmethod
    def findings(self, state: SparkState) -> list[Finding]:
        """Why it cannot be mapped; empty if it can. Reads schemas and the names of files, and no rows.

        Raises:
            LocationError: the checkpoint is damaged.
        """

    @abstractmethod
    def tables(self, state: SparkState) -> list[MappedTable]:
        """Every table in the spec's ``state_schemas``, once. Nothing but schemas is read yet."""

    def scalars(self, subtask: int, graph: JobGraph, closed_us: int) -> dict[str, Plain]:
        """What the operator keeps besides its tables.

        Args:
            subtask: of which one.
            graph: its parallelism and ``max_parallelism``.
            closed_us: how far event time has closed what it closes; 0: nothing is closed.
        """
        if not self.drops_late_rows or not closed_us:
            return {}
        closed = ClosedGroups(subtask, graph.parallelism, graph.max_parallelism)
        return {CLOSED: closed.ranges(closed_us)}


def fields_of(rows: DataFrame, name: str) -> list[Column]:
    """The fields of a struct by position: their names may repeat, so it is cast to one with others."""
    found = rows.schema[name].dataType
    assert isinstance(found, StructType)
    named = StructType([StructField(f"f{number}", field.dataType) for number, field in enumerate(found)])
    return [F.col(name).cast(named).getField(field) for field in named.names]


def by_position(rows: DataFrame, columns: list[Column]) -> DataFrame:
    """These columns under names that differ."""
    return rows.select(*(column.alias(f"v{position}") for position, column in enumerate(columns)))
