"""Choice of a query's state backend."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from penstock.config import Backend, parse_options
from penstock.errors import ConfigError, NotSupported
from penstock.state import backends
from penstock.state.memory_table import MemoryBackend


def test_state_is_in_memory_unless_asked_for_otherwise() -> None:
    assert parse_options({}).state_backend is Backend.MEMORY
    assert parse_options({"state.backend": "RocksDB"}).state_backend is Backend.ROCKSDB
    with pytest.raises(ConfigError, match=r"state\.backend='disk': choose memory or rocksdb"):
        parse_options({"state.backend": "disk"})
    assert isinstance(backends.open_backend(Backend.MEMORY, 1), MemoryBackend)


def test_a_package_that_is_missing_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        assert name == "penstock.state.rocksdb_table"
        return importlib.import_module("rocksdict_that_nobody_has")

    monkeypatch.setattr(backends, "import_module", missing)
    with pytest.raises(NotSupported, match=r"pip install 'penstock\[rocksdb\]'"):
        backends.open_backend(Backend.ROCKSDB, 1 << 20)
