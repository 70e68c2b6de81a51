"""Short messages of Spark's errors."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError


def first_line(error: Exception) -> str:
    """Return the first line of an error of the JVM or of PySpark."""
    cause = error.java_exception if isinstance(error, Py4JJavaError) else error
    return str(cause).strip().splitlines()[0]
