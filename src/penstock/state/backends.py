"""Selection of the state backend by the option ``state.backend``."""

from __future__ import annotations

from importlib import import_module
from typing import assert_never

from penstock.config import Backend
from penstock.errors import NotSupported
from penstock.state.memory_table import MemoryBackend
from penstock.state.table import StateBackend


def open_backend(name: Backend, memory_bytes: int) -> StateBackend:
    """Open the backend of one subtask.

    Args:
        name: name of the backend.
        memory_bytes: memory limit of the backend in bytes. The backend ``memory`` ignores it.

    Raises:
        NotSupported: the package of the backend is not installed.
    """
    match name:
        case Backend.MEMORY:
            return MemoryBackend()
        case Backend.ROCKSDB:
            return _open_rocksdb(memory_bytes)
        case _:
            assert_never(name)


def _open_rocksdb(memory_bytes: int) -> StateBackend:
    try:
        module = import_module("penstock.state.rocksdb_table")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "penstock":
            raise
        raise NotSupported(
            f"state.backend=rocksdb needs the package {error.name}: pip install 'penstock[rocksdb]' where the "
            "executors run, or use state.backend=memory"
        ) from error
    backend: StateBackend = module.RocksDBBackend(memory_bytes)
    return backend
