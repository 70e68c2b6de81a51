"""``penstock.start([...])``: several outputs in one query. The writers' settings for the query must agree."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.api.sink_request import SinkKind
from penstock.api.start import OutputRequest, QueryRequest, start_query
from penstock.api.triggers import Trigger
from penstock.api.writer import DataStreamWriter
from penstock.config import duration_ms
from penstock.connectors.local_files import local_path
from penstock.errors import ConfigError, PenstockError
from penstock.queries.streaming_query import StreamingQuery
from penstock.snapshots.store.store_access import is_access_option
from penstock.snapshots.store.stores import canonical_location
from penstock.spark.errors import pysparks_refusals, wrong_type

_T = TypeVar("_T")
INTERVAL = "checkpoint.interval"


def start(writers: Sequence[DataStreamWriter]) -> StreamingQuery:
    """Start one query that has an output for every writer.

    The DataFrames must have a source in common. The source is read once, and the operators that the DataFrames share
    run once. All outputs are one job with one checkpoint location: a snapshot covers all of them, and each sink gets
    its rows exactly once.

    Settings of the query (``checkpointLocation``, ``trigger``, Penstock's options) may be set on any of the writers.
    Sink, ``outputMode`` and ``queryName`` are set per writer; the first ``queryName`` in the list names the query. The
    order matters: an output's position is part of its operators' ids, so add outputs at the end.

    Args:
        writers: writers from ``penstock.writeStream(df)`` that are not started.

    Raises:
        ConfigError: the list is empty or has something other than writers, settings contradict each other, two outputs
            have the same target, or the DataFrames have no source in common.
        PenstockError: see ``DataStreamWriter.start``.
    """
    listed = list(writers)
    for writer in listed:
        if not isinstance(writer, DataStreamWriter):
            raise wrong_type("writers", writer, "a list of writers from penstock.writeStream(df)")
    with pysparks_refusals():
        if not listed:
            raise ConfigError("penstock.start takes at least one writer: penstock.start([penstock.writeStream(df)...])")
        outputs = [writer._output() for writer in listed]
        _refuse_shared_targets(outputs)
        return start_query(outputs, combined([writer._about_query() for writer in listed]))


def combined(requests: Sequence[QueryRequest]) -> QueryRequest:
    """Combine the requests of all writers.

    Raises:
        ConfigError: two requests contradict each other. The message names both values, except for options that may be
            a secret.
    """
    names = [request.name for request in requests if request.name is not None]
    triggers = [None if request.trigger == Trigger() else request.trigger for request in requests]
    options = {
        name: _agreed(name, [request.engine_options.get(name) for request in requests])
        for name in dict.fromkeys(name for request in requests for name in request.engine_options)
        if name != INTERVAL
    }
    # A writer's trigger sets the interval, and takes precedence over the writer's own option.
    intervals = [request.trigger.interval or request.engine_options.get(INTERVAL) for request in requests]
    options[INTERVAL] = _agreed(INTERVAL, intervals, lambda text: duration_ms(INTERVAL, text))
    return QueryRequest(
        names[0] if names else None,
        _agreed("checkpointLocation", [request.checkpoint_location for request in requests], _location_key),
        {name: value for name, value in options.items() if value is not None},
        _agreed("trigger", triggers) or Trigger(),
        _agreed("startFrom", [request.start_from for request in requests]),
        _agreed("startMode", [request.start_mode for request in requests]),
    )


def _agreed(what: str, said: Sequence[_T | None], normal: Callable[[_T], object] = lambda value: value) -> _T | None:
    """Return the value that all requests agree on, or None if no request has one. Otherwise raise ConfigError."""
    values = [(output, value) for output, value in enumerate(said) if value is not None]
    for output, value in values[1:]:
        first, other = values[0]
        if normal(value) != normal(other):
            if is_access_option(what):  # it may be a key
                raise ConfigError(f"outputs {first} and {output} of one query disagree about {what}; say it once")
            raise ConfigError(
                f"the outputs of one query disagree about {what}: output {first} says {other}, output {output} says "
                f"{value}; say it once, or the same"
            )
    return values[0][1] if values else None


def _location_key(location: str) -> str:
    try:
        return canonical_location(location)
    except PenstockError:
        return location  # it is refused later, with an error that names it


def _path(location: str) -> str:
    try:
        return os.path.realpath(local_path(location))
    except PenstockError:
        return location  # it is refused later, with an error that names it


def _refuse_shared_targets(outputs: Sequence[OutputRequest]) -> None:
    taken: dict[str, int] = {}
    for number, output in enumerate(outputs):
        for target in _targets(output):
            if target in taken:
                raise ConfigError(f"outputs {taken[target]} and {number} both write to {target}; give each its own")
            taken[target] = number


def _targets(output: OutputRequest) -> list[str]:
    sink = output.sink
    if sink.kind is SinkKind.TABLE:
        return [f"table {sink.target}"]
    if sink.kind is not SinkKind.FORMAT:
        return []
    if isinstance(sink.format, str) and sink.format.strip().lower() == "memory" and sink.query_name is not None:
        return [f"the memory table {sink.query_name}"]
    return [_path(sink.options["path"])] if sink.options.get("path") else []
