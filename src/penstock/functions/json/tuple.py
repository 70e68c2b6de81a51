"""``json_tuple``: top-level fields of a document as texts, one row per document."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.ragged import list_array
from penstock.functions.core.vectors import map_distinct
from penstock.functions.json.paths import HIVE_RULES
from penstock.functions.json.text import copy_structure, require_utf8
from penstock.functions.json.tokens import JsonError, JsonReader, Token


class JsonTuple(Expression):
    """Array of one struct of texts for every row. A field is null if it is missing or the document is malformed.

    Args:
        child: the documents.
        names: the names of the fields. None matches no field.
        data_type: an array of structs with one field per name.
    """

    nullable = False

    def __init__(self, child: Expression, names: Sequence[str | None], data_type: pa.ListType) -> None:
        self.child = child
        self.names = tuple(names)
        self.data_type = data_type

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        struct = self.data_type.value_type
        found = map_distinct(self._fields, [self.child.evaluate(batch, mask)], pa.list_(pa.string()), None)
        width = len(self.names)
        # ``found`` has a list with one text per name, or null. Null means that all texts are null.
        whole = pa.compute.fill_null(found, pa.scalar([None] * width, found.type))
        texts = whole.flatten()
        columns = [texts.take(pa.array(range(i, len(texts), width), pa.int64())) for i in range(width)]
        rows = pa.StructArray.from_arrays(columns, fields=list(struct))
        return list_array(np.ones(batch.num_rows, np.int64), rows, self.data_type)

    def _fields(self, document: object) -> list[str | None] | None:
        """Return the texts of the fields; None if the document is not an object, or not JSON up to its end."""
        reader = JsonReader(str(document), HIVE_RULES)
        found: dict[str, str] = {}
        try:
            if reader.next_token() is not Token.START_OBJECT:
                return None
            while reader.next_token() is not Token.END_OBJECT:
                name = reader.name
                if reader.token is Token.NAME and name in self.names and name is not None:
                    token = reader.next_token()
                    if token is Token.STRING:
                        found[name] = require_utf8(reader.text())
                    elif token is not Token.NULL:
                        found[name] = copy_structure(reader)
                reader.skip_children()
        except JsonError:
            return None
        return [None if name is None else found.get(name) for name in self.names]
