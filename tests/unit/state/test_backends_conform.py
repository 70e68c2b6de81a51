"""Every backend passes the kit, and reads what every other one has stored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.state.memory_table import MemoryBackend
from penstock.state.rocksdb_table import RocksDBBackend
from penstock.state.table import StateBackend
from penstock.testing.table_kit import CHECKS, Check, run_check

pytestmark = pytest.mark.slow


def rocksdb() -> StateBackend:
    return RocksDBBackend(8 << 20)


BACKENDS: dict[str, Callable[[], StateBackend]] = {"memory": MemoryBackend, "rocksdb": rocksdb}


@pytest.mark.usefixtures("some_shapes")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_memory_passes_the_kit(check: Check) -> None:
    run_check(check, MemoryBackend)


@pytest.mark.usefixtures("some_shapes")
@pytest.mark.parametrize(("writer", "reader"), [("memory", "rocksdb"), ("rocksdb", "memory")])
def test_what_one_has_stored_the_other_reads(writer: str, reader: str) -> None:
    check = next(check for check in CHECKS if check.name == "loading bases and deltas")
    run_check(check, BACKENDS[writer], BACKENDS[reader])
