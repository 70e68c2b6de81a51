"""Valid Parquet and ORC files of random schemas, for ``fuzz_files``.

A query reads them with one schema. The files have narrower types, missing and additional fields, and other orders,
cases and encodings.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyspark.sql.types import StructType

from penstock.catalyst.types import to_arrow_schema

_ATOMS = [
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(5,2)", "decimal(12,4)",
    "decimal(38,10)", "string", "binary", "date",
]  # fmt: skip
_TIMES = ["timestamp", "timestamp_ntz"]
_TEXTS = [b"", b"a", b"abc" * 40, "grüße".encode(), "😀".encode(), b"a\xff", b"\xed\xa0\x80", b"\0"]
_UTF8 = _TEXTS[:5]
_INT96_YEARS = (-9_000_000_000_000_000, 9_000_000_000_000_000)
"""Range of pyarrow's INT96 in microseconds: pyarrow counts nanoseconds in 64 bits."""


def schema_of(kind: str, seed: int) -> str:
    chance = random.Random(f"{kind} schema {seed}")
    return ", ".join(f"c{place} {_type(chance, kind, 0)}" for place in range(chance.randrange(1, 7)))


def _type(chance: random.Random, kind: str, depth: int) -> str:
    match chance.randrange(8) if depth < 2 else 0:
        case 1:
            return f"array<{_type(chance, kind, depth + 1)}>"
        case 2:
            return f"map<{chance.choice(['string', 'int', 'bigint'])},{_type(chance, kind, depth + 1)}>"
        case 3:
            fields = [f"f{place}:{_type(chance, kind, depth + 1)}" for place in range(chance.randrange(1, 4))]
            return f"struct<{','.join(fields)}>"
    if kind == "orc":
        return chance.choice(_ATOMS[:-1] if depth else _ATOMS)  # others go through the Spark source bridge
    return chance.choice(_ATOMS + _TIMES)


def parquet_file(chance: random.Random, path: Path) -> None:
    table = _table(chance, "parquet", path)
    pq.write_table(
        table,
        path,
        compression=chance.choice(["none", "snappy", "gzip", "zstd", "lz4"]),
        use_dictionary=chance.random() < 0.5,
        row_group_size=chance.choice([1, 7, 1000]),
        data_page_version="1.0" if _holds_lists_of_booleans(table.schema) else chance.choice(["1.0", "2.0"]),
        data_page_size=chance.choice([64, 1 << 20]),
        write_batch_size=chance.choice([2, 1024]),
        store_schema=chance.random() < 0.5,
        use_deprecated_int96_timestamps=_is_int96(chance, table.schema),
        coerce_timestamps=None,
        write_statistics=chance.random() < 0.5,
    )


def _holds_lists_of_booleans(schema: pa.Schema) -> bool:
    """Return True for lists of booleans: pyarrow does not read them from pages of version 2."""
    return _holds(schema, lambda kind: pa.types.is_nested(kind) and _holds(kind, pa.types.is_boolean))


def _is_int96(chance: random.Random, schema: pa.Schema) -> bool:
    return chance.random() < 0.4 and not _holds(schema, lambda kind: pa.types.is_timestamp(kind) and kind.tz is None)


def orc_file(chance: random.Random, path: Path) -> None:
    orc.write_table(
        _table(chance, "orc", path),
        path,
        compression=chance.choice(["uncompressed", "zlib", "snappy", "zstd", "lz4"]),
        stripe_size=chance.choice([1, 1 << 20]),
        batch_size=chance.choice([3, 1024]),
        dictionary_key_size_threshold=chance.choice([0.0, 1.0]),
    )


def _table(chance: random.Random, kind: str, path: Path) -> pa.Table:
    """Return the rows of a file. The name of the file has the seed of the schema."""
    wanted = to_arrow_schema(StructType.fromDDL(schema_of(kind, int(path.name.split("-")[1]))).json())
    fields = _present(chance, kind, list(wanted))
    count = chance.choice([0, 1, 2, 5, 40])
    return pa.table([_values(chance, kind, field.type, count) for field in fields], schema=pa.schema(fields))


def _present(chance: random.Random, kind: str, wanted: list[pa.Field]) -> list[pa.Field]:
    """Return fields of a file from which the given ones can be read."""
    fields = [pa.field(_cased(chance, field.name), _narrower(chance, kind, field.type)) for field in wanted]
    if chance.random() < 0.3:
        chance.shuffle(fields)
    if chance.random() < 0.2 and len(fields) > 1:
        del fields[chance.randrange(len(fields))]
    if chance.random() < 0.2:
        fields.insert(chance.randrange(len(fields) + 1), pa.field("extra", pa.int32()))
    return fields


def _cased(chance: random.Random, name: str) -> str:
    return name.upper() if chance.random() < 0.1 else name


def _narrower(chance: random.Random, kind: str, wanted: pa.DataType) -> pa.DataType:
    """Return a type that Spark reads as the given one."""
    types = pa.types
    if types.is_struct(wanted):
        return pa.struct(_present(chance, kind, list(wanted)))
    if types.is_list(wanted):
        return pa.list_(_narrower(chance, kind, wanted.value_type))
    if types.is_map(wanted):
        return pa.map_(wanted.key_type, _narrower(chance, kind, wanted.item_type))
    if types.is_timestamp(wanted) and chance.random() < 0.3:
        return pa.timestamp("ms", wanted.tz)
    if chance.random() < 0.7:
        return wanted
    if types.is_integer(wanted):
        narrower = [one for one in (pa.int8(), pa.int16(), pa.int32()) if one.bit_width < wanted.bit_width]
        return chance.choice([*narrower, wanted])
    if types.is_float64(wanted) and kind == "parquet":
        return chance.choice([pa.float32(), pa.int32(), pa.int8()])
    if types.is_decimal(wanted) and wanted.precision > 6:
        return pa.decimal128(wanted.precision - 4, max(0, wanted.scale - 2))
    if types.is_string(wanted) and kind == "parquet":
        return chance.choice([pa.binary(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
    return wanted


def _values(chance: random.Random, kind: str, of: pa.DataType, count: int) -> pa.Array:
    holes = chance.choice([0.0, 0.3, 1.0])
    missing = [chance.random() < holes for _ in range(count)]
    types = pa.types
    if types.is_struct(of):
        children = [_values(chance, kind, field.type, count) for field in of]
        return pa.StructArray.from_arrays(children, fields=list(of), mask=pa.array(missing, pa.bool_()))
    if types.is_list(of) or types.is_map(of):
        sizes = [0 if hole else chance.choice([0, 1, 2, 3]) for hole in missing]
        offsets = [sum(sizes[:place]) for place in range(count)]
        present = [None if hole else at for hole, at in zip(missing, offsets, strict=True)]
        starts = pa.array([*present, sum(sizes)], pa.int32())
        if types.is_list(of):
            return pa.ListArray.from_arrays(starts, _values(chance, kind, of.value_type, sum(sizes)), type=of)
        keys = _atoms(chance, kind, of.key_type, [False] * sum(sizes))
        return pa.MapArray.from_arrays(starts, keys, _values(chance, kind, of.item_type, sum(sizes)), type=of)
    return _atoms(chance, kind, of, missing)


def _atoms(chance: random.Random, kind: str, of: pa.DataType, missing: list[bool]) -> pa.Array:
    types = pa.types
    if types.is_dictionary(of):
        return _atoms(chance, kind, of.value_type, missing).dictionary_encode()
    if types.is_string(of) or types.is_binary(of) or types.is_large_string(of):
        texts = _UTF8 if kind == "orc" and not types.is_binary(of) else _TEXTS
        data = pa.array([None if hole else chance.choice(texts) for hole in missing], pa.binary())
        if types.is_binary(of):
            return data
        return data.view(pa.string()) if types.is_string(of) else pa.array(_strict(data), of)
    pick = _picker(chance, of)
    if kind == "orc" and types.is_floating(of):
        pick = lambda: _picker(chance, of)() + 0.0  # noqa: E731 - ORC's reader takes -0.0 for a repeated 0.0
    array = pa.array([None if hole else pick() for hole in missing], _plain(of))
    return array if array.type == of else array.view(of)


def _strict(data: pa.BinaryArray) -> list[str | None]:
    return [None if item is None else item.decode(errors="replace") for item in data.to_pylist()]


def _plain(of: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(of) else pa.int64() if pa.types.is_timestamp(of) else of


def _picker(chance: random.Random, of: pa.DataType) -> Callable[[], Any]:
    types = pa.types
    if types.is_boolean(of):
        return lambda: chance.random() < 0.5
    if types.is_integer(of):
        most = 1 << (of.bit_width - 1)
        return lambda: chance.choice([0, 1, -1, most - 1, -most, chance.randrange(-most, most)])
    if types.is_floating(of):
        special = [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), 1e-30]
        return lambda: chance.choice([*special, chance.gauss(0, 1e9)])
    if types.is_decimal(of):
        most = 10**of.precision
        whole = lambda: chance.choice([0, 1, most - 1, 1 - most, chance.randrange(-most + 1, most)])  # noqa: E731
        return lambda: Decimal(f"{whole()}e-{of.scale}")
    if types.is_date32(of):
        return lambda: chance.choice([0, -1, -141_428, -141_427, -719_162, chance.randrange(-800_000, 3_000_000)])
    scale = 1000 if of.unit == "ms" else 1
    return lambda: chance.choice([0, -1, chance.randrange(*_INT96_YEARS)]) // scale


def _holds(schema: pa.Schema | pa.DataType, is_one: Callable[[pa.DataType], bool]) -> bool:
    fields = list(schema) if isinstance(schema, pa.Schema) else [schema.field(i) for i in range(schema.num_fields)]
    return any(is_one(field.type) or _holds(field.type, is_one) for field in fields)
