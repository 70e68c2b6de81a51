"""Task that a function process runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.model.job_graph import OperatorSpec
from penstock.operators.base import OperatorContext

_TASK_FIELDS = (
    "_attemptNumber", "_partitionId", "_stageId", "_taskAttemptId", "_localProperties", "_cpus", "_cpuAmount",
    "_resources",
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """Operators in order, each with its context.

    Attributes:
        label: name in errors that do not name an operator themselves.
        result_columns: number of trailing columns of each batch that are returned; 0 for all columns.
    """

    label: str
    specs: tuple[OperatorSpec, ...]
    contexts: tuple[OperatorContext, ...]
    result_columns: int
    spark_state: WorkerState

    def operators(self) -> Iterator[tuple[OperatorSpec, OperatorContext]]:
        return zip(self.specs, self.contexts, strict=True)


@dataclass(frozen=True)
class WorkerState:
    """Spark's global state of a Python worker: ``TaskContext.get()`` and ``SparkFiles``."""

    task_context: dict[str, Any] | None
    files_directory: str | None

    @classmethod
    def of_this_process(cls) -> WorkerState:
        from pyspark import SparkFiles, TaskContext

        context = TaskContext.get()
        fields = None if context is None else {name: vars(context).get(name) for name in _TASK_FIELDS}
        return cls(fields, SparkFiles._root_directory if SparkFiles._is_running_on_worker else None)

    def adopt(self) -> None:
        """Set this state in the current process. The context is a plain ``TaskContext``, never a barrier context."""
        from pyspark import SparkFiles, TaskContext

        if self.task_context is not None:
            vars(TaskContext._getOrCreate()).update(self.task_context)
        if self.files_directory is not None:
            SparkFiles._root_directory, SparkFiles._is_running_on_worker = self.files_directory, True
