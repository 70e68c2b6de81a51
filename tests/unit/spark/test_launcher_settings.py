"""A launcher's view of Spark's settings: addresses, free slots, refusals."""

from __future__ import annotations

import pytest

from penstock.coordinator.launching import ControlAddress
from penstock.errors import ConfigError, NotSupported, ResourceError
from penstock.spark.launcher import SparkLauncher
from tests.support.spark.fake_session import FakeSession

CLUSTER = "spark://somewhere:7077"
DYNAMIC = {"spark.dynamicAllocation.enabled": "true"}


def launcher(master: str, settings: dict[str, str] | None = None, total: int = 0) -> SparkLauncher:
    return SparkLauncher(FakeSession(master, settings, total))  # type: ignore[arg-type]


def test_speculation_is_refused() -> None:
    with pytest.raises(NotSupported, match=r"spark\.speculation is on"):
        launcher(CLUSTER, {"spark.speculation": "true"})


def test_the_driver_listens_where_spark_says() -> None:
    host = {"spark.driver.host": "driver.example"}
    assert launcher(CLUSTER, host).control_address() == ControlAddress("driver.example", "driver.example")
    both = host | {"spark.driver.bindAddress": "0.0.0.0"}
    assert launcher(CLUSTER, both).control_address() == ControlAddress("driver.example", "0.0.0.0")
    assert launcher("local[4]", both).control_address() == ControlAddress("127.0.0.1", "127.0.0.1")


def test_by_default_one_slot_is_left() -> None:
    assert launcher(CLUSTER, total=5).default_parallelism(128) == 4
    assert launcher(CLUSTER, total=1).default_parallelism(128) == 1
    assert launcher(CLUSTER, total=500).default_parallelism(128) == 128


def test_dynamic_allocation_counts_what_it_may_start() -> None:
    bounded = DYNAMIC | {"spark.dynamicAllocation.maxExecutors": "3", "spark.executor.cores": "4"}
    assert launcher(CLUSTER, bounded).free_slots() == 12
    assert launcher(CLUSTER, bounded | {"spark.task.cpus": "2"}).free_slots() == 6
    assert launcher(CLUSTER, bounded).default_parallelism(128) == 11
    with pytest.raises(ResourceError, match=r"needs 13 task slots, 12 of 12 are free: .*more executor cores"):
        launcher(CLUSTER, bounded).require(13)
    launcher(CLUSTER, DYNAMIC).require(1000)


def test_dynamic_allocation_without_a_bound_needs_a_number() -> None:
    with pytest.raises(ConfigError, match=r"set spark\.dynamicAllocation\.maxExecutors") as caught:
        launcher(CLUSTER, DYNAMIC, total=4).default_parallelism(128)
    assert "spark.penstock.parallelism" in str(caught.value)


def test_a_local_master_has_no_executors_to_allocate_or_lose() -> None:
    """Like Spark; local-cluster has executors."""
    bounded = DYNAMIC | {"spark.dynamicAllocation.maxExecutors": "8", "spark.decommission.enabled": "true"}
    local, small_cluster = launcher("local[4]", bounded, 4), launcher("local-cluster[2,1,512]", bounded, 2)
    assert (local.free_slots(), local.decommissions) == (4, False)
    assert (small_cluster.free_slots(), small_cluster.decommissions) == (8, True)
