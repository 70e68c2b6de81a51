"""``from_json``: ordinary documents take the fast path, others are parsed one at a time (see ``values``)."""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import EvaluationError
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.fast_path import FastResult, with_exact_values
from penstock.functions.core.strict import Strict
from penstock.functions.json import fast_json
from penstock.functions.json.tokens import JsonError, JsonReader
from penstock.functions.json.values import Converters, JsonOptions, PartialResult, Unreadable

Types = pa.types


class FromJson(Strict):
    """``from_json``.

    Raises:
        EvaluationError: a record is malformed and the mode is FAILFAST.
    """

    def __init__(self, child: Expression, data_type: pa.DataType, options: JsonOptions) -> None:
        super().__init__((child,), data_type)
        self.options = options

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        parse = RecordParser(self.data_type, self.options)
        return with_exact_values(parse.fast_path(arrays[0], rows), parse, arrays, self.data_type, rows)


class RecordParser:
    """Parser from a document to a value of the type."""

    def __init__(self, data_type: pa.DataType, options: JsonOptions) -> None:
        self._options = options
        self._type = data_type
        names = [field.name for field in data_type] if Types.is_struct(data_type) else []
        self._corrupt = options.corrupt_field if options.corrupt_field in names else None
        if self._corrupt is not None:
            data_type = pa.struct([field for field in data_type if field.name != self._corrupt])
        self._members = data_type
        self._converters = Converters(options)
        self._convert = self._converters.root(data_type)

    def fast_path(self, documents: pa.Array, rows: Mask | None) -> FastResult | None:
        """Parse ordinary documents; None if the type has no fast path."""
        if not Types.is_struct(self._members):
            return None
        time_parsers = {
            position: self._converters.time_parser(field.type)
            for position, field in enumerate(self._members)
            if Types.is_temporal(field.type)
        }
        found = fast_json.objects(documents, rows, self._members, time_parsers)
        if found is None or self._corrupt is None:
            return found
        records, fallback = found
        columns = [
            pa.nulls(len(records), field.type) if field.name == self._corrupt else records.field(field.name)
            for field in self._type
        ]
        return FastResult(
            pa.StructArray.from_arrays(columns, fields=list(self._type), mask=records.is_null()), fallback
        )

    def __call__(self, document: object) -> object:
        reader = JsonReader(str(document), self._options.rules)
        try:
            if reader.next_token() is None:
                return None
            value = self._convert(reader)
        except PartialResult as partly:
            return self._bad(document, partly.value)
        except (JsonError, Unreadable):
            return self._bad(document, None)
        return self._bad(document, None) if value is None else value

    def _bad(self, document: object, value: object) -> object:
        if self._options.fails_fast:
            raise EvaluationError(
                f"[MALFORMED_RECORD_IN_PARSING] Malformed records are detected in parsing: {str(document)!r:.99}. "
                "Parse Mode: FAILFAST. To process malformed records as null result, try setting the option 'mode' as "
                "'PERMISSIVE'."
            )
        if not Types.is_struct(self._type):
            return value
        record = dict(value) if isinstance(value, dict) else {}
        if self._corrupt is not None:
            record[self._corrupt] = document
        return record
