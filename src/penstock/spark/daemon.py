"""Spark's Python daemon with a slot's imports done: workers are its forks, so a killed slot is back the sooner.

Named in ``spark.python.daemon.module`` by ``penstock.session()``; in a session of your own it is worth the same line.
Everything imported here must be safe to fork: no threads, no connections, no file systems.
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
    """Import all modules of a package but those that compile plans: each fork would import those of its job anew."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if module.name.rpartition(".")[2].startswith("plan"):
            continue
        with suppress(ImportError):  # pyarrow without ORC, say: only a job that needs the module fails, and says so
            importlib.import_module(module.name)


def forget_archives() -> None:
    """Python's finders of modules in archives, one for each folder in them, are made anew when they are asked for.

    A worker calls ``importlib.invalidate_caches`` before each task, and each such finder then reads its archive's
    directory again: 18 times PySpark's, up to 0.2 s of CPU before the task begins.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


if __name__ == "__main__":
    for made_of in JOBS_ARE_MADE_OF:
        import_all(made_of)
    forget_archives()
    gc.collect()
    gc.freeze()  # a worker collects garbage after every task: it need not look through all of this, nor copy its pages
    manager()
