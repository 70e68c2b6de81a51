"""A slot's budgets against what Spark gives a Python worker."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from penstock.config import Options
from penstock.errors import ResourceError
from penstock.malloc import KEPT_BYTES
from penstock.model.job_graph import Edge, EdgeKind, JobGraph, OperatorSpec, Vertex
from penstock.operators.base import Operator
from penstock.spark.memory import MIB, WORKER_BYTES, WorkerLimit, check_memory, worker_limit

SCHEMA = pa.schema([("a", pa.int64())])


@dataclass
class CountSpec(OperatorSpec):
    operator_id: str = "count"
    name: str = "Count"
    output_schema: pa.Schema = SCHEMA

    @property
    def state_schemas(self) -> dict[str, pa.Schema]:
        return {"counts": SCHEMA}

    def create(self) -> Operator:
        raise NotImplementedError


def graph(gates: int) -> JobGraph:
    """A line of ``gates + 1`` vertices."""
    vertices = tuple(Vertex(number, f"v{number}", None, (), None) for number in range(gates + 1))
    edges = tuple(Edge(number, number, number + 1, EdgeKind.HASH, SCHEMA, (0,)) for number in range(gates))
    return JobGraph(vertices=vertices, edges=edges, parallelism=2, max_parallelism=128)


@pytest.mark.parametrize(
    ("master", "settings", "mib", "setting"),
    [
        ("spark://h:1", {}, None, ""),
        ("local[4]", {}, None, ""),
        ("spark://h:1", {"pyspark.memory": "2g", "cores": "4"}, 512, "pyspark.memory (2048 MiB for 4 cores)"),
        ("yarn", {"pyspark.memory": "700"}, 700, "pyspark.memory (700 MiB for 1 core)"),
        ("yarn", {}, 384, "memoryOverhead (384 MiB for 1 core)"),
        ("yarn", {"memory": "10g", "cores": "2"}, 512, "memoryOverhead (1024 MiB for 2 cores)"),
        ("yarn", {"memoryOverhead": "3g", "cores": "3"}, 1024, "memoryOverhead (3072 MiB for 3 cores)"),
        ("yarn", {"memory": "10g", "memoryOverheadFactor": "0.5"}, 5120, "memoryOverhead (5120 MiB for 1 core)"),
        ("k8s://h", {"memory": "10g"}, 4096, "memoryOverhead (4096 MiB for 1 core)"),
    ],
)
def test_what_spark_gives_a_worker(master: str, settings: dict[str, str], mib: int | None, setting: str) -> None:
    limit = worker_limit(master, {f"spark.executor.{name}": value for name, value in settings.items()}.get)
    if mib is None:
        assert limit is None
    else:
        assert limit == WorkerLimit(mib * MIB, f"spark.executor.{setting}")


def test_what_fits_is_not_spoken_of() -> None:
    options = Options(memory_per_gate=10 * MIB, checkpoint_capture_memory=100 * MIB)
    most = WORKER_BYTES + 2 * 10 * MIB + 100 * MIB + 3 * KEPT_BYTES
    assert check_memory(graph(2), options, None) == ""
    assert check_memory(graph(2), options, WorkerLimit(most, "enough")) == ""
    warning = check_memory(graph(2), options, WorkerLimit(most - 1, "a setting"))
    for part in (
        "356 MiB: 140 MiB for Python",
        "2 x 10 MiB",
        "100 MiB of captured",
        "96 MiB freed",
        "355 MiB by a setting",
    ):
        assert part in warning


def test_state_that_is_expected_is_accounted_for() -> None:
    spec = CountSpec()
    plain = graph(1)
    stateful = replace(plain, vertices=(plain.vertices[0], replace(plain.vertices[1], operators=(spec,))))
    options = Options(memory_per_gate=10 * MIB, state_memory=50 * MIB)
    limit = WorkerLimit(WORKER_BYTES + 10 * MIB, "a setting")
    assert "of state" not in check_memory(plain, options, limit)
    with pytest.raises(ResourceError, match=r"50 MiB of state \(state\.memory\).*lower .*state\.memory"):
        check_memory(stateful, options, limit)


def test_waiting_input_that_cannot_fit_is_refused() -> None:
    options = Options(memory_per_gate=100 * MIB)
    limit = WorkerLimit(WORKER_BYTES + 200 * MIB, "a setting")
    assert check_memory(graph(2), options, limit) != ""
    with pytest.raises(
        ResourceError, match=r"3 x 100 MiB .* by a setting: raise that setting, or lower .*memoryPerGate"
    ):
        check_memory(graph(3), options, limit)
