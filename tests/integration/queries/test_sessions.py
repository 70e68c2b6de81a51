"""The checks before a session: Java, and what the workers run."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.api.sessions import check_java, session
from penstock.errors import ResourceError


def fake_java(directory: Path, version_line: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return directory


def test_the_machines_java_is_new_enough() -> None:
    assert check_java() >= 17


@pytest.mark.parametrize(
    ("line", "found"),
    [('openjdk version "11.0.2" 2019-01-15', "11"), ('java version "1.8.0_202"', "1"), ("?", "unknown")],
)
def test_an_old_java_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, found: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, line)))
    with pytest.raises(ResourceError) as caught:
        check_java()
    assert f"(found: {found})" in str(caught.value)
    assert "apt-get install openjdk-17-jre-headless" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_new_java_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, 'openjdk version "21" 2023-09-19')))
    assert check_java() == 21


def test_without_java_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ResourceError, match=r"found: none"):
        check_java()


@pytest.mark.spark
def test_a_workers_imports_are_done_before_it_is_forked(spark: SparkSession) -> None:
    loaded = spark.sparkContext.parallelize([0], 1).map(lambda _: "penstock.worker.slot" in __import__("sys").modules)
    assert loaded.collect() == [True]


def test_a_session_switches_nothing_on_that_breaks_other_sources(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """Spark 4.3 leaks filters that it pushes down to Python data sources into later uses of the same DataFrame."""
    taken: dict[str, str] = {}

    class Builder:
        def appName(self, name: str) -> Builder:  # noqa: N802 - PySpark's name
            return self

        master = appName

        def config(self, name: str, value: str) -> Builder:
            taken[name] = value
            return self

        def getOrCreate(self) -> SparkSession:  # noqa: N802 - PySpark's name
            return spark

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession, "builder", Builder())
    assert session() is spark
    assert set(taken) == {"spark.driver.host", "spark.ui.showConsoleProgress", "spark.python.daemon.module"}
