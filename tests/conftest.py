"""Fixtures that every area shares. The Spark session is started once per run, and only by tests that ask for it."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import typer.testing
from py4j.java_gateway import JavaPackage, JVMView

from tests.support.effort import left_out, some
from tests.support.places import ROOT
from tests.support.quick_java import quick_java
from tests.support.s3_server import S3Server, moto

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SITE = ROOT / "tests" / "support" / "site"
"""Of every Python that tests start."""

# Before any JVM starts: workers run this very Python, and nothing listens on an outside interface.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ["TZ"] = "UTC"
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SITE), str(ROOT), os.environ.get("PYTHONPATH"))))
# JVMs leave their libraries and blocks behind when they are killed: here they do so in a folder that goes with the run.
JAVA_FOLDER = tempfile.mkdtemp(prefix="penstock-tests-")
# REST services write their runtime files there, and the command line reads them, not those of the user.
os.environ["PENSTOCK_RUNTIME_DIR"] = os.path.join(JAVA_FOLDER, "services")
os.environ["SPARK_SUBMIT_OPTS"] = f"{quick_java()} -Djava.io.tmpdir={JAVA_FOLDER}"
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Of Spark's own streams. With the default one each file that is renamed costs several processes (readlink)."""

# Once per process, and not for each call of the command line: each time it takes 30 ms.
typer.testing._get_command = cache(typer.testing._get_command)


def _remembered(names: type) -> None:
    """py4j asks the JVM for a name each time, which looks for packages in all of Spark's jars: a third of its CPU."""
    ask = names.__getattr__  # type: ignore[attr-defined]

    def look_up(self: Any, name: str) -> Any:
        found = vars(self)[name] = ask(self, name)
        return found

    names.__getattr__ = look_up  # type: ignore[attr-defined]


_remembered(JVMView)
_remembered(JavaPackage)

# Tests are about what is right; a busy machine may take its time.
hypothesis.settings.register_profile("penstock", deadline=None, max_examples=some(100))
hypothesis.settings.load_profile("penstock")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("PENSTOCK_WRITE_COSTS") and not hasattr(config, "workerinput"):
        from tests.support.spark_first import Costs

        config.pluginmanager.register(Costs())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.support.spark_first import SparkFirst

    return SparkFirst(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    names = left_out(items)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in names])
    items[:] = [item for item in items if item.nodeid not in names]


def pytest_collection_finish() -> None:
    """The tests themselves are no garbage: it is not looked for among them."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    shutil.rmtree(JAVA_FOLDER, ignore_errors=True)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A ``local[4]`` session in UTC without UI, stopped at the end of the run."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[4]")
        .appName("penstock-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        # A long run keeps up to 450 MB, beside the young objects below.
        .config("spark.driver.memory", "2g")
        # Plans are garbage when they are young: it is looked for seldom.
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC -Xms1g -Xmn600m")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        # A plan runs once, over few rows: to generate and compile Java for it takes longer than to interpret it.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.streaming.checkpointFileManagerClass", FILE_MANAGER)
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.log.level", "ERROR")
        .config("spark.python.daemon.module", "penstock.spark.daemon")
        .getOrCreate()
    )
    yield session
    left = session.conf.get("spark.sql.shuffle.partitions")
    session.stop()
    assert left == "2", "a test changed it for all later ones, whose stateful queries then take ten times as long"


@pytest.fixture
def spark_conf(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """``spark_conf(name, value)`` sets a runtime setting of the shared session for one test only."""
    before: dict[str, str | None] = {}

    def set_conf(name: str, value: str) -> None:
        before.setdefault(name, spark.conf.get(name, None))
        spark.conf.set(name, value)

    yield set_conf
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


@pytest.fixture
def generated_code(spark_conf: Callable[[str, str], None]) -> None:
    """Spark generates Java for its plans, as it does for users: for some tests only, since it is dear."""
    spark_conf("spark.sql.codegen.wholeStage", "true")
    spark_conf("spark.sql.codegen.factoryMode", "FALLBACK")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint location that does not exist yet."""
    return tmp_path / "checkpoint"


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server with an empty bucket, one per run."""
    with moto() as server:
        yield server
