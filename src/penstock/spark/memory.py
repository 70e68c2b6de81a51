"""Check of a slot's memory against the limit of Spark's Python worker, before the first launch.

Spark divides ``spark.executor.pyspark.memory`` by the executor's cores and sets the result as a hard limit of each
Python worker. Without this setting, YARN and Kubernetes count Python workers in ``spark.executor.memoryOverhead``;
local and standalone masters set no limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.config import Options, size_bytes
from penstock.errors import ResourceError
from penstock.malloc import KEPT_BYTES
from penstock.model.job_graph import JobGraph
from penstock.operators.join.static_sides import static_sides

MIB = 1 << 20
WORKER_BYTES = 140 * MIB
"""Memory of an idle Python worker with pyarrow, pandas and Penstock; 95 to 137 MB were measured."""
MIN_OVERHEAD_BYTES = 384 * MIB
"""Spark's minimum for ``memoryOverhead``."""
_STATIC_COPIES = 2
"""A static side takes its rows and, at worst, as much again for their keys."""

Conf = Callable[[str], str | None]


@dataclass(frozen=True)
class WorkerLimit:
    """Memory limit of one Python worker. ``setting`` names Spark's setting, for messages."""

    size_bytes: int
    setting: str


def worker_limit(master: str, conf: Conf) -> WorkerLimit | None:
    """Return the memory limit of a Python worker, or None if Spark sets none."""
    cores = int(conf("spark.executor.cores") or 1)
    pyspark = conf("spark.executor.pyspark.memory")
    if pyspark is not None:
        name, size = "spark.executor.pyspark.memory", _jvm_size("spark.executor.pyspark.memory", pyspark)
    elif master.startswith(("yarn", "k8s")):
        name, size = "spark.executor.memoryOverhead", _overhead(master, conf)
    else:
        return None
    return WorkerLimit(size // cores, f"{name} ({size // MIB} MiB for {cores} core{'s' if cores > 1 else ''})")


def check_memory(graph: JobGraph, options: Options, limit: WorkerLimit | None) -> str:
    """Return a warning if a slot may need more than the limit; empty if it fits.

    The expected size of state (``state.memory``) is not enforced.

    Raises:
        ResourceError: queued input and the expected state alone would exceed the limit.
    """
    if limit is None:
        return ""
    gates = len({edge.consumer for edge in graph.edges})
    static = _STATIC_COPIES * sum(rows.nbytes for rows in static_sides(graph))
    state = options.state_memory if any(spec.state_schemas for v in graph.vertices for spec in v.operators) else 0
    waiting = WORKER_BYTES + gates * options.memory_per_gate + static + state
    kept = len(graph.vertices) * KEPT_BYTES
    most = waiting + options.checkpoint_capture_memory + kept
    if most <= limit.size_bytes:
        return ""
    numbers = (
        f"a slot may hold {most // MIB} MiB: {WORKER_BYTES // MIB} MiB for Python, {gates} x "
        f"{options.memory_per_gate // MIB} MiB of waiting input (exchange.memoryPerGate), "
        f"{f'{state // MIB} MiB of state (state.memory), ' if state else ''}"
        f"{f'{static // MIB} MiB for static sides of joins, ' if static else ''}"
        f"{options.checkpoint_capture_memory // MIB} MiB of captured rows (checkpoint.captureMemory), "
        f"{kept // MIB} MiB freed and kept; Spark gives it {limit.size_bytes // MIB} MiB by {limit.setting}"
    )
    if waiting > limit.size_bytes:
        raise ResourceError(
            f"{numbers}: raise that setting, or lower spark.penstock.exchange.memoryPerGate or state.memory"
        )
    return f"{numbers}: a worker may be killed for it; raise that setting, or lower the options"


def _overhead(master: str, conf: Conf) -> int:
    name = "spark.executor.memoryOverhead"
    configured = conf(name)
    if configured is not None:
        return _jvm_size(name, configured)
    usual = "0.4" if master.startswith("k8s") else "0.1"
    factor = float(conf(f"{name}Factor") or conf("spark.kubernetes.memoryOverheadFactor") or usual)
    heap = _jvm_size("spark.executor.memory", conf("spark.executor.memory") or "1g")
    return max(int(factor * heap), MIN_OVERHEAD_BYTES)


def _jvm_size(name: str, text: str) -> int:
    """Return a JVM size in bytes. Spark reads a bare number as MiB."""
    return int(text) * MIB if text.strip().isdigit() else size_bytes(name, text)
