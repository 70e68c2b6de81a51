"""Sources from the leaves of a plan. Each connector gets the reader's options unchanged and refuses unknown ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.catalyst.jvm import java_class
from penstock.catalyst.trees import (
    JavaTree,
    arrow_field,
    arrow_schema,
    data_type_json,
    elements,
    expr_id,
    kind,
    option,
)
from penstock.catalyst.types import repeated_fields
from penstock.config import unknown_option, whole_number
from penstock.connectors.base import Source
from penstock.connectors.files.columns import FileColumns
from penstock.connectors.files.orc.reading import only_spark_reads
from penstock.connectors.files.source import FileSource
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.option_texts import OptionTexts
from penstock.connectors.python.source import PythonSource
from penstock.connectors.rate import RateSource
from penstock.connectors.rate_micro_batch import RateMicroBatchOptions, RateMicroBatchSource
from penstock.connectors.socket_source import SocketSource
from penstock.connectors.spark.bridge import SparkBridgeSource
from penstock.connectors.spark.files import SparkFilesSource
from penstock.errors import NotSupported
from penstock.planner import unsupported
from penstock.planner.conf import session_conf
from penstock.planner.pruning import needed_columns, needed_fields
from penstock.planner.python_functions import load_python
from penstock.spark.files import SparkFiles
from penstock.spark.kafka import FORMAT as KAFKA_FORMAT
from penstock.spark.source_bridge import SparkSourceBridge, can_read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_FORMATS = ("parquet", "orc", "csv", "json", "text")
_COLUMNAR = ("parquet", "orc")

_PYTHON_SOURCE = "PythonDataSourceV2"
_SPARKS_KAFKA = "KafkaSourceProvider"
_FILE_SOURCE = "FileSource["
"""Beginning of Spark's name for every file stream, of any format."""
_PATH = "path"
_RATE_NUMBERS = {"rowspersecond": "rows_per_second", "numpartitions": "num_partitions"}
_RATE_OPTIONS = ("rowsPerSecond", "rampUpTime", "numPartitions")
_MICRO_BATCH_OPTIONS = ("rowsPerBatch", "numPartitions", "startTimestamp", "advanceMillisPerBatch")
_SOCKET_OPTIONS = ("host", "port", "includeTimestamp")
_MICRO_BATCH_NUMBERS = {
    "rowsperbatch": "rows_per_batch",
    "numpartitions": "num_partitions",
    "starttimestamp": "start_timestamp_ms",
    "advancemillisperbatch": "advance_ms",
}


def create_source(
    spark: SparkSession, node: JavaTree, columns: Sequence[JavaTree], fields: Mapping[int, Sequence[int]]
) -> Source:
    """Return the source of a ``StreamingRelation`` or ``StreamingRelationV2``.

    Args:
        node: the relation.
        columns: the attributes that the source must read, from ``columns_to_read``.
        fields: the fields of structs that it must read, from ``fields_to_read``.

    Raises:
        NotSupported: no connector reads this format.
        ConfigError: an option is unknown to the connector.
    """
    if kind(node) == "StreamingRelation":
        return _file_source(spark, node, columns, fields)
    provider = kind(option(node.source())) if node.source().isDefined() else ""
    options = dict(node.extraOptions().asCaseSensitiveMap())
    if provider == _SPARKS_KAFKA or (provider == _PYTHON_SOURCE and str(node.sourceName()).lower() == KAFKA_FORMAT):
        return KafkaSource(options)
    if provider == _PYTHON_SOURCE:
        return _python_source(node, options)
    if provider == "RateStreamProvider":
        return _rate_source(spark, options)
    if provider == "RatePerMicroBatchProvider":
        return _rate_micro_batch_source(options)
    if provider == "TextSocketSourceProvider":
        return _socket_source(options)
    if can_read(node):
        name = str(node.sourceName())
        bridge = SparkSourceBridge(spark, node, name)
        return SparkBridgeSource(name, bridge, arrow_schema(elements(node.output())), session_conf(spark).time_zone)
    raise unsupported.SOURCE_FORMAT.error(f"source format {node.sourceName()}")


def columns_to_read(relation: JavaTree, above: Sequence[JavaTree]) -> list[JavaTree]:
    """Return the attributes of the relation to read: for Parquet and ORC only those that the plan needs.

    Text formats are read whole, because the columns determine which rows are malformed. At least one column is read, so
    that rows can be counted.

    Args:
        relation: the plan's leaf.
        above: the nodes above the leaf, nearest first.
    """
    output: list[JavaTree] = elements(relation.output())
    if kind(relation) != "StreamingRelation" or str(relation.dataSource().className()).lower() not in _COLUMNAR:
        return output
    return needed_columns(output, above)


def fields_to_read(relation: JavaTree, above: Sequence[JavaTree]) -> Mapping[int, Sequence[int]]:
    """Return the struct fields in Parquet files that the plan needs, as ordinals by expression id.

    Structs that are read whole are left out.
    """
    if kind(relation) != "StreamingRelation" or str(relation.dataSource().className()).lower() != "parquet":
        return {}
    structs = {expr_id(one) for one in elements(relation.output()) if kind(one.dataType()) == "StructType"}
    return {one: fields for one, fields in needed_fields(above).items() if one in structs} if structs else {}


def _file_source(
    spark: SparkSession, node: JavaTree, columns: Sequence[JavaTree], fields: Mapping[int, Sequence[int]]
) -> Source:
    relation = node.dataSource()
    name = str(relation.className()).lower()
    if not str(node.sourceName()).startswith(_FILE_SOURCE):
        raise unsupported.SOURCE_FORMAT.error(f"source format {relation.className()}")
    options = {str(pair._1()): str(pair._2()) for pair in elements(relation.options().toSeq())}
    path = next(value for key, value in options.items() if key.lower() == _PATH)
    rest = {key: value for key, value in options.items() if key.lower() != _PATH}
    for option_name in ("ignoreCorruptFiles", "ignoreMissingFiles"):
        if option_name.lower() not in [key.lower() for key in rest]:
            rest[option_name] = str(spark.conf.get(f"spark.sql.files.{option_name}")).lower()
    partitions = [str(name) for name in elements(relation.sourceInfo().partitionColumns())]
    schema = pa.schema([_with_fields(arrow_field(one), fields.get(expr_id(one))) for one in columns])
    conf = session_conf(spark)
    zone = conf.time_zone
    whole = StructType.fromJson(json.loads(relation.sourceInfo().schema().json()))
    for column in whole:
        for where, repeated in repeated_fields(column.name, column.dataType.jsonValue()):
            raise NotSupported(f"column {where} of the {name} files is a struct with more than one field {repeated}")
    if not _only_spark_reads(name, FileColumns(schema, partitions, zone).file_schema, rest):
        return FileSource(name, path, schema, rest, zone, partitions, whole.names, conf.case_sensitive)
    reader = SparkFiles(spark, str(relation.className()), whole, schema.names)
    return SparkFilesSource(name, path, schema, rest, reader, zone, partitions, whole.names, conf.case_sensitive)


def _with_fields(column: pa.Field, ordinals: Sequence[int] | None) -> pa.Field:
    return column if ordinals is None else column.with_type(pa.struct([column.type.field(one) for one in ordinals]))


def _only_spark_reads(name: str, schema: pa.Schema, options: Mapping[str, str]) -> bool:
    """Return True if Spark must read the files: in other formats, or with features that Penstock's readers lack."""
    if name == "orc":
        return any(only_spark_reads(schema))
    if name == "csv":
        return OptionTexts("csv source", options).flag("multiLine", False)
    return name not in FILE_FORMATS


def _rate_micro_batch_source(options: Mapping[str, str]) -> RateMicroBatchSource:
    given = {key.lower(): value for key, value in options.items()}
    unknown = sorted(set(given) - set(_MICRO_BATCH_NUMBERS))
    if unknown:
        raise unknown_option(unknown[0], "the rate-micro-batch source", _MICRO_BATCH_OPTIONS)
    values = {_MICRO_BATCH_NUMBERS[key]: int(text) for key, text in given.items()}  # Spark has checked the numbers
    return RateMicroBatchSource(RateMicroBatchOptions(**values))


def _socket_source(options: Mapping[str, str]) -> SocketSource:
    given = {key.lower(): value for key, value in options.items()}
    unknown = sorted(set(given) - {"host", "port", "includetimestamp", "numpartitions"})
    if unknown:
        raise unknown_option(unknown[0], "the socket source", _SOCKET_OPTIONS)
    stamped = given.get("includetimestamp", "false").strip().lower() == "true"
    return SocketSource(given["host"], whole_number("port", given["port"]), stamped)


def _rate_source(spark: SparkSession, options: Mapping[str, str]) -> RateSource:
    """Return the rate source; raise ConfigError for an option that it does not have or cannot parse."""
    given = {key.lower(): value for key, value in options.items()}
    ramp_up = given.pop("rampuptime", "0s")
    numbers = {name: given.pop(key) for key, name in _RATE_NUMBERS.items() if key in given}
    if given:
        raise unknown_option(min(given), "the rate source", _RATE_OPTIONS)
    values = {name: whole_number(name, text) for name, text in numbers.items()}
    seconds = int(java_class(spark, "org.apache.spark.network.util.JavaUtils").timeStringAsSec(ramp_up))
    return RateSource(ramp_up_s=seconds, **values)


def _python_source(node: JavaTree, options: Mapping[str, str]) -> PythonSource:
    """Return a source of the user's class, with the schema that Spark has resolved.

    It is the schema of the class or of the reader's ``schema()``.
    """
    name = str(node.sourceName())
    cls = load_python(node.source().get().source().dataSourceCls(), f"data source {name}")
    attributes = elements(node.output())
    fields = [
        {"name": str(a.name()), "type": json.loads(data_type_json(a)), "nullable": bool(a.nullable()), "metadata": {}}
        for a in attributes
    ]
    return PythonSource(name, cls, options, arrow_schema(attributes), json.dumps({"type": "struct", "fields": fields}))
