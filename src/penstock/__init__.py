"""Penstock runs a PySpark streaming DataFrame as a continuous dataflow, with snapshots that never wait."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from penstock.version import __version__

if TYPE_CHECKING:
    from penstock.frontend.marks import late, named
    from penstock.operators.stateful.arrow_processor import (
        ArrowStatefulProcessor,
        ArrowStatefulProcessorHandle,
        ArrowValueState,
    )
    from penstock.query.plan_text import explain
    from penstock.query.reader import readStream
    from penstock.query.sessions import session
    from penstock.query.several import start
    from penstock.query.snapshot_writer import SnapshotWriter
    from penstock.query.streaming_query import StreamingQuery
    from penstock.query.streams import streams
    from penstock.query.transform_in_arrow import transformWithStateInArrow
    from penstock.query.writer import DataStreamWriter, writeStream
    from penstock.rest.server import serve
    from penstock.spark_checkpoint.exporting import exportSparkOffsets
    from penstock.spark_checkpoint.importing import importSparkCheckpoint

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

# Names are handed on when first asked for: a slot imports this package too, and must not load Spark's API for it.
_HOMES = {
    "ArrowStatefulProcessor": "penstock.operators.stateful.arrow_processor",
    "ArrowStatefulProcessorHandle": "penstock.operators.stateful.arrow_processor",
    "ArrowValueState": "penstock.operators.stateful.arrow_processor",
    "DataStreamWriter": "penstock.query.writer",
    "SnapshotWriter": "penstock.query.snapshot_writer",
    "StreamingQuery": "penstock.query.streaming_query",
    "explain": "penstock.query.plan_text",
    "exportSparkOffsets": "penstock.spark_checkpoint.exporting",
    "importSparkCheckpoint": "penstock.spark_checkpoint.importing",
    "late": "penstock.frontend.marks",
    "named": "penstock.frontend.marks",
    "readStream": "penstock.query.reader",
    "serve": "penstock.rest.server",
    "session": "penstock.query.sessions",
    "start": "penstock.query.several",
    "streams": "penstock.query.streams",
    "transformWithStateInArrow": "penstock.query.transform_in_arrow",
    "writeStream": "penstock.query.writer",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    if home.startswith("penstock.query."):
        _lend_service()
    return getattr(importlib.import_module(home), name)


def _lend_service() -> None:
    """Whoever starts queries serves them, too, if a session says so; what serves is a layer above."""
    serving = importlib.import_module("penstock.query.serving")
    serving.SERVICE.reserve = lambda **arguments: importlib.import_module("penstock.rest.server").reserve(**arguments)
