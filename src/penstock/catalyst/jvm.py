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
    """Return a class by its whole name (``outer.Class$Nested``).

    It has the static members, and makes objects when called.

    The JVM is not asked. By ``spark._jvm.org.apache...`` it is, anew about each part of the name, and looks for
    packages in all of Spark's jars: a millisecond for a part, and a query had a hundred of them.

    If there is no such class, what is asked of it raises ``Py4JError``.
    """
    jvm = of._jvm
    assert jvm is not None
    return JavaClass(name, jvm._gateway_client)


def java_field(of: Any, name: str) -> Any:
    """Return the value of a public field of an object."""
    return get_field(of, name)


def session_settings(spark: SparkSession) -> dict[str, str]:
    """Return all settings, read as one text: Java's map takes several calls of the JVM for each of them."""
    write = java_class(spark, "com.fasterxml.jackson.databind.ObjectMapper")().writeValueAsString
    return dict(json.loads(write(spark._jsparkSession.conf().getAllAsJava())))


def java_seq(spark: SparkSession, items: Iterable[Any]) -> Any:
    """Return a Scala ``Seq``."""
    return java_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq(list(items))


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """Return a logical plan as a DataFrame of the session."""
    rows = java_class(spark, "org.apache.spark.sql.classic.Dataset").ofRows(spark._jsparkSession, plan)
    return DataFrame(rows, spark)
