"""Penstock on executors that do not have it: the installed package as a zip, given to Spark's ``addPyFile``.

Spark puts it in front of what is installed there, so driver and slots run the very same code. Modules with compiled
parts (pyarrow, numpy, ...) cannot travel so; the executors' Python must have them.
"""

from __future__ import annotations

import compileall
import hashlib
import py_compile
import shutil
import tempfile
import threading
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.errors import ResourceError
from penstock.spark.job import reason
from penstock.spark.slot_task import worker_check
from penstock.version import __version__

PACKAGE = Path(__file__).parents[1]

_shipped: dict[str, tempfile.TemporaryDirectory[str]] = {}
"""By Spark application: where its zip lies. Spark's file server reads it as long as the application lives."""
_fit: set[str] = set()
"""Applications whose executors can run Penstock."""
_lock = threading.Lock()


def ship(spark: SparkSession, parallelism: int) -> None:
    """Give the executors Penstock, and see that as many of their Pythons as there are slots can run it. Once per
    application; the first call takes as long as it takes to start Python workers.

    Raises:
        ResourceError: something is missing there, by name, or Python itself does not fit.
    """
    application = spark.sparkContext.applicationId
    with _lock:
        if application not in _shipped and PACKAGE.is_dir():  # else it came in a zip itself, by spark-submit --py-files
            _shipped[application] = home = tempfile.TemporaryDirectory(prefix="penstock-shipped-")
            spark.sparkContext.addPyFile(str(package_zip(Path(home.name))))
        if application not in _fit:
            _require_workers(spark, parallelism)
            _fit.add(application)


def ship_to_cluster(spark: SparkSession) -> None:
    """``ship`` for jobs that any executor may run; nothing on a local master, whose workers are this Python's."""
    if not spark.sparkContext.master.startswith("local"):
        ship(spark, 1)


def package_zip(folder: Path) -> Path:
    """The package in ``folder``, with compiled modules beside the sources: importing from a zip compiles nothing."""
    copy = folder / "tree" / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    digest = hashlib.sha256()
    for file in sorted(copy.rglob("*")):
        if file.is_file():
            digest.update(f"{file.relative_to(copy)}\0".encode() + file.read_bytes())
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(copy, quiet=1, legacy=True, invalidation_mode=unchecked, stripdir=str(copy.parent))
    name = folder / f"penstock-{__version__}-{digest.hexdigest()[:12]}"
    return Path(shutil.make_archive(str(name), "zip", copy.parent))


def _require_workers(spark: SparkSession, parallelism: int) -> None:
    check = worker_check()

    def check_worker(_: int) -> str:
        trouble = check()
        if not trouble:
            import penstock.worker.slot  # noqa: F401 - what takes long is done before slots are waited for
        return trouble

    try:
        numbers = spark.sparkContext.parallelize(range(parallelism), parallelism)
        troubles = sorted({trouble for trouble in numbers.map(check_worker).collect() if trouble})
    except Exception as problem:
        raise ResourceError(f"Spark's executors cannot run Python as it is needed: {reason(problem)}") from problem
    if troubles:
        raise ResourceError("; ".join(troubles))
