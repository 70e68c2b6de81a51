"""A DataFrame compiled to a complete job graph in one call."""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.model.job_graph import JobGraph, SinkSpec
from penstock.planner.compiler import compile_plan


def compile_query(
    df: DataFrame, *, sink: SinkSpec, output_mode: str, parallelism: int, max_parallelism: int
) -> JobGraph:
    """Return the graph of ``df`` with this sink."""
    return compile_plan(df, output_mode).graph([sink], parallelism, max_parallelism)
