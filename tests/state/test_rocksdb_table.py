"""The rocksdb backend: the kit's contract, and what is its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.state.rocksdb_table import RocksDBBackend
from penstock.testing.table_kit import CHECKS, Check, run_check


@pytest.fixture
def make_backend(tmp_path: Path) -> Callable[[], RocksDBBackend]:
    return partial(RocksDBBackend, 8 << 20, str(tmp_path))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_it_keeps_the_contract(check: Check, make_backend: Callable[[], RocksDBBackend], tmp_path: Path) -> None:
    run_check(check, make_backend)
    assert not list(tmp_path.iterdir())
