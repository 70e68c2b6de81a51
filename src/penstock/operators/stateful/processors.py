"""A user's StatefulProcessor, as Spark pickled it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, TimerValues


def load_processor(pickled: bytes) -> StatefulProcessor:
    """A copy of the user's processor, out of what Spark pickled: a bound method of its own wrapper."""
    function: Any = CloudPickleSerializer().loads(pickled)[0]
    processor: StatefulProcessor = function.__self__._stateful_processor
    return processor


def rows_handler(processor: StatefulProcessor) -> Callable[[Any, Iterator[Any], TimerValues], Iterable[Any]]:
    """``handleInputRows``, which in PySpark's own documentation leaves ``timerValues`` out."""
    handle: Callable[..., Iterable[Any]] = processor.handleInputRows
    try:
        inspect.signature(handle).bind((), iter(()), TimerValues())
    except TypeError:
        return lambda key, rows, _: handle(key, rows)
    return handle
