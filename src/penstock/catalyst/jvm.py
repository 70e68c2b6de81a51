"""Access to the JVM by name: classes, settings, Scala's sequences, the DataFrame of a plan."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from py4j.java_gateway import JavaClass, get_field
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

DATA_TYPE = "org.apache.spark.sql.types.DataType"
SESSION = "org.apache.spark.sql.classic.SparkSession"


def java_class(of: SparkSession | SparkContext, name: str) -> Any:
    """Return a class by its full name (``outer.Class$Nested``). It has the static members; a call creates an object.

    This makes no call to the JVM. ``spark._jvm.org.apache...`` calls the JVM for each part of the name every time, and
    the JVM then searches all of Spark's jars for packages: one millisecond per part, and a query has about a hundred.

    If there is no such class, the use of a member raises ``Py4JError``.
    """
    jvm = of._jvm
    assert jvm is not None
    return JavaClass(name, jvm._gateway_client)


def java_field(of: Any, name: str) -> Any:
    """Return the value of a public field of an object."""
    return get_field(of, name)


def session_settings(spark: SparkSession) -> dict[str, str]:
    """Return all settings, read as one JSON text. Reading Java's map would take several calls per setting."""
    write = java_class(spark, "com.fasterxml.jackson.databind.ObjectMapper")().writeValueAsString
    return dict(json.loads(write(spark._jsparkSession.conf().getAllAsJava())))


def java_seq(spark: SparkSession, items: Iterable[Any]) -> Any:
    """Return a Scala ``Seq``."""
    return java_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq(list(items))


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """Return a DataFrame of the session for a logical plan."""
    rows = java_class(spark, "org.apache.spark.sql.classic.Dataset").ofRows(spark._jsparkSession, plan)
    return DataFrame(rows, spark)
