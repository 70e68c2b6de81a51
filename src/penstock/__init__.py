"""Penstock runs a PySpark streaming DataFrame as a continuous dataflow with unaligned checkpoints."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from penstock.version import __version__

if TYPE_CHECKING:
    from penstock.api.reader import readStream
    from penstock.api.sessions import session
    from penstock.api.several import start
    from penstock.api.streams import streams
    from penstock.api.transform_in_arrow import transformWithStateInArrow
    from penstock.api.writer import DataStreamWriter, writeStream
    from penstock.interop.spark_checkpoint.exporting import exportSparkOffsets
    from penstock.interop.spark_checkpoint.importing import importSparkCheckpoint
    from penstock.interop.spark_data.snapshot_writer import SnapshotWriter
    from penstock.operators.stateful.arrow_processor import (
        ArrowStatefulProcessor,
        ArrowStatefulProcessorHandle,
        ArrowValueState,
    )
    from penstock.planner.marks import late, named
    from penstock.queries.plan_text import explain
    from penstock.queries.streaming_query import StreamingQuery
    from penstock.rest.server import serve

__all__ = [
    "ArrowStatefulProcessor",
    "ArrowStatefulProcessorHandle",
    "ArrowValueState",
    "DataStreamWriter",
    "SnapshotWriter",
    "StreamingQuery",
    "__version__",
    "explain",
    "exportSparkOffsets",
    "importSparkCheckpoint",
    "late",
    "named",
    "readStream",
    "serve",
    "session",
    "start",
    "streams",
    "transformWithStateInArrow",
    "writeStream",
]

# Modules are imported at the first use of a name: slots import this package, too, and must not load Spark's API.
_HOMES = {
    "ArrowStatefulProcessor": "penstock.operators.stateful.arrow_processor",
    "ArrowStatefulProcessorHandle": "penstock.operators.stateful.arrow_processor",
    "ArrowValueState": "penstock.operators.stateful.arrow_processor",
    "DataStreamWriter": "penstock.api.writer",
    "SnapshotWriter": "penstock.interop.spark_data.snapshot_writer",
    "StreamingQuery": "penstock.queries.streaming_query",
    "explain": "penstock.queries.plan_text",
    "exportSparkOffsets": "penstock.interop.spark_checkpoint.exporting",
    "importSparkCheckpoint": "penstock.interop.spark_checkpoint.importing",
    "late": "penstock.planner.marks",
    "named": "penstock.planner.marks",
    "readStream": "penstock.api.reader",
    "serve": "penstock.rest.server",
    "session": "penstock.api.sessions",
    "start": "penstock.api.several",
    "streams": "penstock.api.streams",
    "transformWithStateInArrow": "penstock.api.transform_in_arrow",
    "writeStream": "penstock.api.writer",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
