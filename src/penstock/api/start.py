"""Start of a query: sinks, options, slots, checkpoint location."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession

from penstock.api.rest_options import PORT_RETRIES_CONF, is_rest_option, parse_rest_options, reserved_service
from penstock.api.sessions import set_workers_python
from penstock.api.sinks import Output, SinkRequest, choose_sink
from penstock.api.start_from import parse_start, refuse_own_location, restored_operators
from penstock.api.streams import TERMINATIONS
from penstock.api.triggers import Trigger
from penstock.catalyst.jvm import session_settings
from penstock.config import CONF_PREFIX, Options, parse_options
from penstock.errors import ConfigError, LocationError, PenstockError
from penstock.model.job_graph import SinkSpec
from penstock.network.transport import check_free
from penstock.planner.checks import check_dataframe
from penstock.planner.compiler import CompiledPlan, compile_outputs, sink_id
from penstock.planner.static_join import read_static_sides
from penstock.queries.active_queries import ACTIVE_QUERIES, STOP_ACTIVE_RUN_CONF, Reservation
from penstock.queries.spark_settings import ObeyedSettings, check_settings
from penstock.queries.streaming_query import StreamingQuery
from penstock.snapshots.copied_locations import check_not_copied, copied_location_error, origin_runs_error
from penstock.snapshots.fork import Origin, origin_parallelism, precheck_start
from penstock.snapshots.location import last_parallelism, read_identity
from penstock.snapshots.store.store_access import StoreAccess, is_access_option, parse_access
from penstock.snapshots.store.stores import child_location, location_text, store_at
from penstock.spark.commit_jobs import committing
from penstock.spark.current_session import session_key
from penstock.spark.errors import NoLocation
from penstock.spark.launcher import SparkLauncher
from penstock.spark.listener_bus import ListenerBus

LOCATION_CONF = "spark.sql.streaming.checkpointLocation"
"""Spark's own setting: a base directory. The query's name is appended."""


@dataclass(frozen=True)
class OutputRequest:
    """DataFrame of one output and the request for its sink."""

    df: DataFrame
    sink: SinkRequest


@dataclass(frozen=True)
class QueryRequest:
    """Request to start a query, without its outputs.

    Attributes:
        engine_options: Penstock's options by name, without prefix and in lower case.
        start_from, start_mode: see ``start_from.py``.
    """

    name: str | None
    checkpoint_location: str | None
    engine_options: Mapping[str, str]
    trigger: Trigger = field(default_factory=Trigger)
    start_from: str | None = None
    start_mode: str | None = None


def start_query(outputs: Sequence[OutputRequest], request: QueryRequest) -> StreamingQuery:
    """Compile and check the outputs, and start the query. If an error is raised, nothing is left behind.

    See ``DataStreamWriter.start`` for the errors.
    """
    for output in outputs:
        check_dataframe(output.df)
    spark = outputs[0].df.sparkSession
    given = session_settings(spark)
    settings = check_settings(given)
    interval = {} if request.trigger.interval is None else {"checkpoint.interval": request.trigger.interval}
    said = {**session_options(spark), **request.engine_options, **interval}
    access, service = parse_access(said), parse_rest_options(said)
    engine = {name: text for name, text in said.items() if not (is_access_option(name) or is_rest_option(name))}
    options = parse_options(engine)
    with reserved_service(service, given.get(PORT_RETRIES_CONF)) as serve:
        return _start(outputs, request, options, settings, access, serve)


def _start(
    outputs: Sequence[OutputRequest],
    request: QueryRequest,
    options: Options,
    settings: ObeyedSettings,
    access: StoreAccess,
    serve: Callable[[], object],
) -> StreamingQuery:
    spark = outputs[0].df.sparkSession
    plan = compile_outputs([(one.df, one.sink.output_mode) for one in outputs], options.regexp_max_length)
    set_workers_python(spark)
    chosen = _choose_sinks(outputs, plan)
    undo = ExitStack()
    try:
        start_from = parse_start(request.start_from, request.start_mode, request.checkpoint_location, access)
        location = start_from.claimed or _checkpoint_location(spark, outputs, request, undo)
        if start_from.origin is not None:
            refuse_own_location(start_from.origin, location)
            precheck_start(start_from.origin, location, access)
        query_id = _stored_query_id(location, access)
        error = copied_location_error if start_from.claimed is None else origin_runs_error
        check_not_copied(store_at(location, access), ACTIVE_QUERIES.location_of(query_id), query_id, access, error)
        reservation = _reserve_run(spark, request.name, location, query_id, undo)
        launcher = SparkLauncher(spark)
        check_free(launcher.control_address().bind, options.driver_ports)
        parallelism = (
            options.parallelism
            or _stored_parallelism(location, access, start_from.origin)
            or launcher.default_parallelism(options.max_parallelism)
        )
        if parallelism > options.max_parallelism:
            raise ConfigError(
                f"parallelism {parallelism} is above maxParallelism {options.max_parallelism}: keys are divided among "
                "at most so many subtasks; lower the one, or raise the other at a new checkpointLocation"
            )
        graph = plan.graph(_sink_specs(chosen), parallelism, options.max_parallelism)
        if options.allow_changed_meaning:
            graph = graph.without_parameters()
        sources = [vertex.source for vertex in graph.vertices if vertex.source is not None]
        spark_jobs = any(o.runs_spark_jobs for o in chosen) or any(s.source.runs_spark_jobs for s in sources)
        launcher.require(parallelism + spark_jobs)
        begun = () if options.allow_older_snapshot else restored_operators(start_from.origin, location, access)
        read_static_sides(graph, options.join_max_static_bytes, begun)
        launcher.prepare(graph, options)
        query = StreamingQuery(
            graph,
            name=request.name,
            location=location,
            options=replace(options, parallelism=parallelism),
            launcher=launcher,
            bus=ListenerBus(spark),
            until_available=request.trigger.until_available,
            origin=start_from.origin,
            access=access,
            settings=settings,
            claimed=start_from.claimed is not None,
            drains=start_from.drains,
            committing=lambda run_id: committing(spark, run_id, request.name),
            on_commit=lambda: _committed(chosen),
            on_end=lambda error: _ended(reservation, undo, error),
        )
        reservation.query = query
        _committed(chosen)
        serve()
        query._start(launcher if launcher.decommissions else None)
    except BaseException:
        undo.close()
        raise
    return query


def _choose_sinks(outputs: Sequence[OutputRequest], plan: CompiledPlan) -> list[Output]:
    return [
        choose_sink(output.df, replace(output.sink, output_mode=mode), schema)
        for output, mode, schema in zip(outputs, plan.output_modes, plan.schemas, strict=True)
    ]


def _sink_specs(outputs: Sequence[Output]) -> list[SinkSpec]:
    return [
        SinkSpec(sink_id(number), f"Sink ({output.sink.describe()})", output.sink)
        for number, output in enumerate(outputs)
    ]


def _committed(outputs: Sequence[Output]) -> None:
    """Run what the sinks do in the session after an epoch is visible."""
    for output in outputs:
        output.on_commit()


def session_options(spark: SparkSession) -> dict[str, str]:
    """Return the session's ``spark.penstock.*`` settings, without prefix and in lower case."""
    return {
        name.lower()[len(CONF_PREFIX) :]: value
        for name, value in session_settings(spark).items()
        if name.lower().startswith(CONF_PREFIX)
    }


def _checkpoint_location(
    spark: SparkSession, outputs: Sequence[OutputRequest], request: QueryRequest, undo: ExitStack
) -> str:
    """Return the checkpoint location. If it is a temporary directory, ``undo`` removes it.

    Raises:
        NoLocation: no location was given, and not all sinks are temporary.
    """
    if request.checkpoint_location:
        return location_text(request.checkpoint_location)
    base = spark.conf.get(LOCATION_CONF, None)
    if base:
        return child_location(base, request.name or str(uuid.uuid4()))
    if all(output.sink.temporary for output in outputs):
        directory = tempfile.mkdtemp(prefix="penstock-checkpoint-")
        undo.callback(shutil.rmtree, directory, ignore_errors=True)
        return directory
    raise NoLocation(
        f'checkpointLocation must be specified either through option("checkpointLocation", ...) '
        f'or spark.conf.set("{LOCATION_CONF}", ...)'
    )


def _stored_parallelism(location: str, access: StoreAccess, origin: Origin | None) -> int | None:
    """Return the last parallelism of the query or of its origin, which is the default for a start.

    Return None if none is stored or if it cannot be read. In the second case opening the location raises the error.
    """
    with suppress(OSError):
        return last_parallelism(store_at(location, access))
    with suppress(OSError):
        return None if origin is None else origin_parallelism(origin)
    return None


def _reserve_run(spark: SparkSession, name: str | None, location: str, query_id: str, undo: ExitStack) -> Reservation:
    """Reserve name, location and query for this start. First stop an older run if Spark's setting says so."""
    stop_older = str(spark.conf.get(STOP_ACTIVE_RUN_CONF, "true")).lower() == "true"
    reservation = ACTIVE_QUERIES.reserve(session_key(spark), name, location, query_id=query_id, stop_older=stop_older)
    undo.callback(ACTIVE_QUERIES.release, reservation)
    return reservation


def _stored_query_id(location: str, access: StoreAccess) -> str:
    """Return the id of the query at a location; empty if none is stored or the location cannot be read."""
    try:
        return read_identity(store_at(location, access)).query_id
    except (OSError, LocationError):
        return ""


def _ended(reservation: Reservation, undo: ExitStack, error: PenstockError | None) -> None:
    """Release the reservation of an ended query and notify the callers of ``awaitAnyTermination``."""
    undo.close()
    if reservation.query is not None:
        TERMINATIONS.ended(reservation.session, reservation.query, failed=error is not None)
