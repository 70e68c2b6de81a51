"""Shipping of Penstock to executors that do not have it: the installed package as a zip, passed to ``addPyFile``.

Spark puts the zip in front of packages installed on the executors, so driver and slots run the same code. Modules with
compiled parts (pyarrow, numpy, ...) cannot be shipped this way; the executors' Python must have them.
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
"""Directory of the zip, by Spark application. Spark's file server reads the zip as long as the application lives."""
_fit: set[str] = set()
"""Applications whose executors can run Penstock."""
_lock = threading.Lock()


def ship(spark: SparkSession, parallelism: int) -> None:
    """Ship Penstock to the executors, and check in ``parallelism`` tasks that their Python can run it.

    This is done once per application. The first call takes as long as Spark needs to start Python workers.

    Raises:
        ResourceError: an executor lacks a module or has another release of Penstock, or Python cannot run there. The
            message names what is wrong.
    """
    application = spark.sparkContext.applicationId
    with _lock:
        if application not in _shipped and PACKAGE.is_dir():  # False: spark-submit --py-files shipped it as a zip
            _shipped[application] = home = tempfile.TemporaryDirectory(prefix="penstock-shipped-")
            spark.sparkContext.addPyFile(str(package_zip(Path(home.name))))
        if application not in _fit:
            _require_workers(spark, parallelism)
            _fit.add(application)


def ship_to_cluster(spark: SparkSession) -> None:
    """Call ``ship`` for jobs that any executor may run. Do nothing on a local master: it runs the driver's Python."""
    if not spark.sparkContext.master.startswith("local"):
        ship(spark, 1)


def package_zip(folder: Path) -> Path:
    """Write the package as a zip into ``folder`` and return the zip's path.

    The zip has compiled modules next to the sources, so an import from it compiles nothing.
    """
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
