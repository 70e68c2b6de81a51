"""Run by every Python that is started with this folder in ``PYTHONPATH``: workers of Spark among them.

Spark's JVM has its workers import PySpark from an archive of sources, which each of them compiles: 0.9 s of CPU. The
installed one is the same, and is compiled.
"""

import sys

sys.path[:] = [path for path in sys.path if not path.endswith(("/pyspark.zip", "-src.zip"))]
