"""Spark's Python daemon with a slot's modules imported. Workers are its forks, so a killed slot restarts sooner.

``penstock.session()`` sets it in ``spark.python.daemon.module``; it is worth setting in your own session, too. Every
module imported here must be safe to fork: no threads, no connections, no file systems.
"""

from __future__ import annotations

import gc
import importlib
import pkgutil
import sys
from contextlib import suppress
from types import ModuleType
from zipimport import zipimporter

import pandas  # noqa: F401 - imported for the forks
import pyspark.worker  # noqa: F401 - each fork would compile it anew: executors have PySpark in an archive, as source
from pyspark.daemon import manager

import penstock.connectors
import penstock.functions
import penstock.operators
import penstock.worker.slot

JOBS_ARE_MADE_OF = (penstock.functions, penstock.operators, penstock.connectors)
"""Packages whose modules a slot imports when it reads its job."""


def import_all(package: ModuleType) -> None:
    """Import all modules of a package except those that compile plans, so that forks need not import them again."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if module.name.rpartition(".")[2].startswith("plan"):
            continue
        with suppress(ImportError):  # e.g. pyarrow without ORC: only a job that needs the module fails, with an error
            importlib.import_module(module.name)


def forget_archives() -> None:
    """Remove the finders of modules in archives from Python's cache. Python creates them again on demand.

    There is one finder per folder in an archive. A worker calls ``importlib.invalidate_caches`` before each task, and
    then each finder reads its archive's directory again: 18 times for PySpark's archive, up to 0.2 s of CPU per task.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


if __name__ == "__main__":
    for made_of in JOBS_ARE_MADE_OF:
        import_all(made_of)
    forget_archives()
    gc.collect()
    gc.freeze()  # workers collect garbage after every task; frozen objects are not scanned, nor their pages copied
    manager()
