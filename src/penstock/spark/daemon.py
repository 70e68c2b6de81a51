"""Spark's Python daemon with a slot's imports done: workers are its forks, so a killed slot is back the sooner.

Named in ``spark.python.daemon.module`` by ``penstock.session()``; in a session of your own it is worth the same line.
Everything imported here must be safe to fork: no threads, no connections, no file systems.
"""

from __future__ import annotations

import gc

import pandas  # noqa: F401 - imported for the forks
from pyspark.daemon import manager

import penstock.connectors.python_source
import penstock.runtime.slot  # noqa: F401 - imported for the forks

if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # a worker collects garbage after every task: it need not look through all of this, nor copy its pages
    manager()
