"""Avro functions that read and write messages, without a schema registry."""

from __future__ import annotations

from penstock.catalyst.trees import JavaTree, arrow_type, option
from penstock.functions import Expression
from penstock.functions.avro.reading import FromAvro, message_reader
from penstock.functions.avro.schema import UnsupportedSchema, parse_schema, require_type
from penstock.functions.avro.writing import ToAvro, require_writable, schema_of
from penstock.functions.json.plan import options_of
from penstock.functions.plan_registry import Translation, catalyst, refuse, refuse_repeated

AREA = "Avro"

_OPTIONS = {"mode", "avroschema", "datetimerebasemode"}


@catalyst("AvroDataToCatalyst", area=AREA, forms="`from_avro`",
          limits="no recursive schemas, no aliases, no types of intervals; entries of maps are in the order of the "
          "message; the options " + ", ".join(sorted(_OPTIONS)))  # fmt: skip
def from_avro(tree: JavaTree, translation: Translation) -> Expression:
    options = options_of(tree, tree.options())
    if unknown := sorted(set(options) - _OPTIONS):
        refuse(tree, f"the option {unknown[0]} is not supported")
    mode = options.get("mode", "FAILFAST").upper()
    if mode not in ("PERMISSIVE", "FAILFAST"):
        refuse(tree, f"there is no mode {mode} for it")
    if options.get("datetimerebasemode", translation.conf.avro_rebase_mode).upper() != "CORRECTED":
        refuse(tree, "set spark.sql.avro.datetimeRebaseModeInRead to CORRECTED; the hybrid calendar is not there")
    refuse_repeated(tree, tree)
    writer_schema, data_type = str(tree.jsonFormatSchema()), arrow_type(tree)
    reader_schema = options.get("avroschema", writer_schema)
    try:
        message_reader(writer_schema, reader_schema)
        schema = parse_schema(reader_schema)
        require_type(schema, data_type)
    except UnsupportedSchema as unknown_schema:
        refuse(tree, str(unknown_schema))
    if schema.kind == "union":
        refuse(tree, "Spark itself fails, or reads null as 0, if the whole message is a union; use a record")
    return FromAvro(translation(tree.child()), data_type, writer_schema, reader_schema, mode == "PERMISSIVE")


@catalyst("CatalystDataToAvro", area=AREA, forms="`to_avro`",
          limits="no maps, no intervals; a schema that is given has the columns' fields, and unions with null "
          "only")  # fmt: skip
def to_avro(tree: JavaTree, translation: Translation) -> Expression:
    if translation.conf.avro_rebase_mode_in_write != "CORRECTED":
        refuse(tree, "set spark.sql.avro.datetimeRebaseModeInWrite to CORRECTED; the hybrid calendar is not there")
    refuse_repeated(tree, tree.child())
    child, given = translation(tree.child()), option(tree.jsonFormatSchema())
    try:
        if given is None:
            schema = schema_of(child.data_type, bool(tree.child().nullable()))
        else:
            schema = parse_schema(str(given))
            require_writable(schema, child.data_type)
    except UnsupportedSchema as unknown_schema:
        refuse(tree, str(unknown_schema))
    return ToAvro(child, schema, bool(tree.nullable()))
