"""Site hook for forked slots: excludes the server's imports from the garbage collection at a slot's end."""

import gc

import pandas  # noqa: F401
import pyspark.serializers  # noqa: F401

gc.collect()
gc.freeze()
