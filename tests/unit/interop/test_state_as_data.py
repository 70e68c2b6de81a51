"""Readers of the state data source, called as Spark calls them, on snapshots of every kind."""

from __future__ import annotations

import base64
import importlib
import json
import math
import pkgutil
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.cloudpickle import dumps, loads
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StructField, StructType

from penstock.errors import ConfigError, CorruptSnapshot, LocationError
from penstock.interop.spark_data.reading import SnapshotReader
from penstock.interop.spark_data.source import PenstockSource
from penstock.model.ids import snapshot_id
from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots.catalog import Catalog, plan_restore
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.portable.export import export_snapshot
from penstock.snapshots.retention import delete_snapshot, remove_orphans
from penstock.snapshots.store.store import LocalStore
from penstock.state.hashing import groups_of
from penstock.state.stored_form import KEY_GROUP_COLUMN
from simulator.jobs.rows import group_of
from tests.support.snapshots.location_kit import Kept, flip
from tests.support.snapshots.portable_kit import Scene, at, one_table, rewritten, taken_at
from tests.support.snapshots.snapshot_kit import COUNT

NAME = f"{COUNT}/counts"


def opened(location: object, schema: StructType | None = None, **options: str) -> SnapshotReader:
    source = loads(dumps(PenstockSource({"path": str(location), **options})))
    told = source.schema()
    return source.reader(schema or told)  # type: ignore[no-any-return]


def rows(reader: SnapshotReader, partitions: Sequence[InputPartition] | None = None) -> list[dict[str, Any]]:
    found = reader.partitions() if partitions is None else partitions
    sent = loads(dumps(reader))
    return [row for one in found for batch in sent.read(loads(dumps(one))) for row in batch.to_pylist()]


def counts(reader: SnapshotReader) -> dict[int, int]:
    found = rows(reader)
    assert all(row["key_group"] == group_of(row["key"], 128) for row in found)
    assert len({row["key"] for row in found}) == len(found), "every key is there once"
    return {row["key"]: row["count"] for row in found}


def damaged_but_for(location: Path, kept: Sequence[tuple[str, int]]) -> None:
    """Every section of state is changed, but those at these places."""
    store = LocalStore(location)
    metadata = Catalog(store).read(SnapshotLog(store).refresh().lineage[-1])
    for ref in {entry.section for slot in metadata.slots for one in slot.subtasks for entry in one.states}:
        if (ref.path, ref.offset) not in kept:
            flip(location / ref.path, ref.offset + ref.length // 2)


@pytest.mark.parametrize(("parallelism", "partition_bytes"), [(1, "32m"), (3, "1"), (7, "32m")])
def test_deltas_and_rolled_bases_are_one_row_per_key(tmp_path: Path, parallelism: int, partition_bytes: str) -> None:
    kept = Kept(tmp_path / "at", parallelism)
    kept.put(dict.fromkeys(range(700), 0))
    contents = []
    for number in range(4):
        kept.put(dict.fromkeys(range(number, 900, 7 + number), number), removed=(number, 50 + number))
        contents.append((kept.snapshot(label=f"s{number}"), dict(kept.content)))
    for checkpoint, content in contents:
        reader = opened(kept.location, state=NAME, snapshot=snapshot_id(checkpoint), partitionBytes=partition_bytes)
        assert counts(reader) == content
    assert counts(opened(kept.location, state=NAME)) == contents[-1][1], "without a snapshot: the newest"
    assert counts(opened(kept.location, state=NAME, snapshot="s1")) == contents[1][1]
    found = reader.partitions()
    assert (len(found) > 20) if partition_bytes == "1" else (len(found) == 1)
    manifest = export_snapshot(str(kept.location), "s3", tmp_path / "portable")
    assert sum(part.rows for part in manifest.tables[0].parts) == len(contents[-1][1])


def test_one_key_reads_one_range_of_one_subtask(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    reader = opened(scene.location, state=NAME)
    whole = counts(reader)
    key = next(key for key in whole if group_of(key, 128) == 100)
    one = opened(scene.location, state=NAME, keys=json.dumps({"key": key}))
    [partition] = one.partitions()
    assert {(e.key_group_first, e.key_group_last) for e in partition.entries} == {(100, 100)}
    assert len(partition.entries) < len(reader._table.entries) / 2, "none of the other subtask's"
    damaged_but_for(scene.location, [(entry.section.path, entry.section.offset) for entry in partition.entries])
    assert counts(one) == {key: whole[key]}
    with pytest.raises(CorruptSnapshot, match=r"chk-4 is damaged.*checksum"):
        counts(reader)


def test_a_reader_takes_no_filters() -> None:
    """Spark 4.3 applies filters that it pushed for one use of a DataFrame to all later uses."""
    sources = ("penstock.interop.spark_data", "penstock.spark", "penstock.connectors", "pyspark_penstock")
    for name in sources:
        module = importlib.import_module(name)
        for found in pkgutil.walk_packages(getattr(module, "__path__", []), name + "."):
            importlib.import_module(found.name)
    readers = [
        one for one in _subclasses(DataSourceReader) if one.__module__.startswith(("penstock", "pyspark_penstock"))
    ]
    assert SnapshotReader in readers
    for one in readers:
        assert one.pushFilters is DataSourceReader.pushFilters, one


def _subclasses(base: type) -> list[type]:
    return [one for direct in base.__subclasses__() for one in (direct, *_subclasses(direct))]


def test_keys_are_read_and_no_others(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    whole = counts(opened(scene.location, state=NAME, partitionBytes="1"))
    some = list(whole)[:30]
    wanted = opened(scene.location, state=NAME, keys=json.dumps([{"key": key} for key in some]))
    assert counts(wanted) == {key: whole[key] for key in some}
    assert counts(opened(scene.location, state=NAME, keys='{"key": 1000000000}')) == {}
    for keys, message in (
        ("{", "option keys is not JSON"),
        ("7", "must be an object or a list of objects"),
        ("[]", "must be an object or a list of objects"),
        ('{"kee": 7}', "must have the key columns of .*: key$"),
        ('{"key": 7, "count": 1}', "must have the key columns of .*: key$"),
        ('[{"key": 7}, {}]', "must have the key columns of .*: key$"),
        ('{"key": "seven"}', "a value of column key does not fit its type int64"),
        ('{"key": true}', "a value of column key does not fit its type int64"),
        ('{"key": 7.5}', "a value of column key does not fit its type int64"),
        ('{"key": 9223372036854775808}', "a value of column key does not fit its type int64"),
    ):
        with pytest.raises(ConfigError, match=message):
            opened(scene.location, state=NAME, keys=keys)
    with pytest.raises(ConfigError, match="option keys can be used with option state only"):
        opened(scene.location, inflight="0", keys='{"key": 7}')


KEY = pa.struct(
    [
        ("id", pa.string()),
        ("price", pa.decimal128(12, 2)),
        ("wide", pa.decimal128(30, 3)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("ratio", pa.float64()),
        ("inner", pa.struct([("day", pa.date32()), ("blob", pa.binary())])),
    ]
)
KEYS: list[dict[str, Any] | None] = [
    None,
    dict.fromkeys(["id", "price", "wide", "at", "ratio", "inner"]),
    *(
        {
            "id": f"k{i}",
            "price": Decimal(i) / 100,
            "wide": Decimal(10**20 + i) / 1000,
            "at": datetime(2024, 1, 1, i % 24, tzinfo=UTC),
            "ratio": [math.nan, 0.0, -1.5][i % 3],
            "inner": {"day": datetime(2024, 2, 1 + i % 28, tzinfo=UTC).date(), "blob": b"\0" * (i % 3)},
        }
        for i in range(60)
    ),
]


def test_nested_keys_are_found(tmp_path: Path) -> None:
    keys = pa.array(KEYS, KEY)
    groups = groups_of([keys], len(keys), 128)
    batch = pa.record_batch(
        [pa.array(groups, pa.int16()), keys, pa.array(range(len(keys)))],
        schema=pa.schema([(KEY_GROUP_COLUMN, pa.int16()), ("key", KEY), ("count", pa.int64())]),
    )
    batch = batch.take(pa.array(groups.argsort(kind="stable")))
    location, _ = one_table(tmp_path, batch)
    reader = opened(location, state=NAME, partitionBytes="1")
    assert {row["count"] for row in rows(reader)} == set(range(len(KEYS)))
    for number in range(len(KEYS)):
        one = opened(location, state=NAME, keys=json.dumps({"key": _as_json(KEYS[number])}))
        assert [row["count"] for row in rows(one)] == [number]
        assert sum(one._filter.groups) == 1
    several = json.dumps([{"key": _as_json(KEYS[number])} for number in (0, 1, 5)])
    assert {row["count"] for row in rows(opened(location, state=NAME, keys=several))} == {0, 1, 5}
    with pytest.raises(ConfigError, match="give all fields: id, price, wide, at, ratio, inner"):
        opened(location, state=NAME, keys='{"key": {"id": "k3"}}')


def _as_json(value: Any) -> Any:
    """Return a value for the option keys: text for types that JSON does not have, base 64 for binary values."""
    if isinstance(value, dict):
        return {name: _as_json(part) for name, part in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value if value is None or isinstance(value, str) else str(value)


def test_rows_in_flight_are_there_once_at_their_consumer(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    found = rows(opened(scene.location, inflight="0"))
    expected = Counter(
        (row["key"], one.channel.producer, one.channel.consumer, one.layer, one.side.value)
        for consumer in range(2)
        for one in scene.inflight(consumer, 4)
        for row in one.buffer.payload.slice(one.offset, one.rows).to_pylist()
    )
    channel = ("key", "producer", "consumer", "layer", "side")
    assert Counter(tuple(row[name] for name in channel) for row in found) == expected
    assert all(row["value"] == f"v{row['key']}" for row in found)
    many = opened(scene.location, inflight="0", partitionBytes="1")
    assert len(many.partitions()) > 2
    assert Counter(map(repr, rows(many))) == Counter(map(repr, found))

    name = rewritten(scene.location, lambda metadata: taken_at(metadata, at(scene.graph, 3)))
    assert any(
        e.narrowed for s in plan_restore(_metadata(scene), at(scene.graph, 3)) for one in s for e in one.inflight
    )
    narrowed = rows(opened(scene.location, snapshot=name, inflight="0"))
    assert sorted(row["key"] for row in narrowed) == sorted(row["key"] for row in found)
    assert all(row["consumer"] == group_of(row["key"], 128) * 3 // 128 for row in narrowed)


def _metadata(scene: Scene) -> SnapshotMetadata:
    return Catalog(scene.store).read(next(r for r in SnapshotLog(scene.store).refresh().snapshots if r.label))


def test_an_exchange_without_rows_has_its_columns(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "at")
    kept.snapshot()
    source = PenstockSource({"path": str(kept.location), "inflight": "0"})
    assert source.schema().simpleString() == (
        "struct<key:bigint,value:string,producer:int,consumer:int,layer:int,side:string>"
    )
    assert rows(opened(kept.location, inflight="0")) == []


def test_positions_watermarks_and_scalars_are_those_of_the_snapshot(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    offsets = rows(opened(scene.location, view="offsets"))
    assert [(row["progress"], row["split_id"], row["subtask"]) for row in offsets] == [
        ("discovery", None, None), ("pending", "kept", None), ("pending", "s1", None),
        ("reading", "kept", 0), ("reading", "here", 0), ("reading", "kept", 1), ("reading", "here", 1),
    ]  # fmt: skip
    assert json.loads(offsets[0]["position"])["newest_ms"] == 7
    assert json.loads(offsets[3]["position"]) == {"row": 3}
    marks = rows(opened(scene.location, view="watermarks"))
    assert {(row["producer"], row["consumer"]): row["watermark_us"] for row in marks} == {
        (producer, consumer): 1000 + producer for producer in range(2) for consumer in range(2)
    }
    assert marks[0]["watermark"] == datetime(1970, 1, 1, microsecond=1000, tzinfo=UTC)
    scalars = rows(opened(scene.location, view="scalars"))
    assert {(row["subtask"], row["name"]): row["value"] for row in scalars} == {
        (index, name): value for index in range(2) for name, value in (("seen", "1.5"), ("a", "[null]"))
    }
    tables = rows(opened(scene.location, snapshot="chk-4"))
    assert [(row["kind"], row["name"], row["keys"]) for row in tables] == [
        ("state", NAME, ["key"]),
        ("inflight", "0", ["key"]),
    ]
    listed = rows(opened(scene.location))
    assert [row["id"] for row in listed] == ["chk-2", "chk-3", "chk-4"]


def test_columns_are_chosen_by_option_or_schema(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    options = {"state": NAME, "columns": "count, KEY"}
    assert PenstockSource({"path": str(scene.location), **options}).schema().names == ["count", "key"]
    reader = opened(scene.location, **options)
    assert [set(row) for row in rows(reader)][:1] == [{"count", "key"}]
    own = StructType([StructField("count", LongType())])
    assert list(rows(opened(scene.location, own, state=NAME))[0]) == ["count"]
    with pytest.raises(
        ConfigError, match=r"count-1/counts of chk-4 at .* has no column 'total'; it has: key_group, key"
    ):
        opened(scene.location, state=NAME, columns="total")


def test_what_is_not_there_is_named_with_what_is(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    def refused(kind: type[Exception], expected: str, location: object = scene.location, **options: str) -> None:
        with pytest.raises(kind, match=expected):
            opened(location, **options)

    refused(LocationError, "there is no snapshot 'x'; there are: chk-4 .'für später'., chk-3, chk-2", snapshot="x")
    refused(LocationError, f"chk-4 has no state table 'sums'; it has: {NAME}", state="sums")
    refused(LocationError, "chk-4 has no exchange '7'; it has: 0", inflight="7")
    refused(LocationError, "no such folder", location=tmp_path / "nowhere", state=NAME)
    refused(ConfigError, "state and inflight do not go together", state=NAME, inflight="0")
    refused(ConfigError, "view='clocks': choose snapshots, tables", view="clocks")
    assert rows(opened(scene.location, view="timers")) == [], "no operator has any"
    refused(ConfigError, "unknown option sate; did you mean state", sate=NAME)
    with pytest.raises(ConfigError, match="needs the option location"):
        PenstockSource({}).schema()


def test_a_snapshot_that_goes_while_it_is_read_is_no_damage(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "at")
    kept.put(dict.fromkeys(range(300), 0))
    first = kept.snapshot()
    reader = opened(kept.location, state=NAME, partitionBytes="1")
    partitions = reader.partitions()
    assert rows(reader, partitions=partitions)
    kept.put(dict.fromkeys(range(300), 1))
    kept.snapshot()
    store = LocalStore(kept.location)
    log = SnapshotLog(store, lambda: "t")
    log.refresh()
    delete_snapshot(store, log, Catalog(store), first)
    remove_orphans(store, log.view, Catalog(store), ())
    with pytest.raises(LocationError, match="chk-1 was deleted while it was read") as error:
        rows(reader, partitions=partitions)
    assert not isinstance(error.value, CorruptSnapshot)


def test_rows_in_the_wrong_key_group_are_damage(tmp_path: Path) -> None:
    batch = pa.record_batch(
        [pa.array([3, 9], pa.int16()), pa.array([1, 2]), pa.array([1, 2])],
        schema=pa.schema([(KEY_GROUP_COLUMN, pa.int16()), ("key", pa.int64()), ("count", pa.int64())]),
    )
    location, _ = one_table(tmp_path, batch)
    of_group_3 = next(key for key in range(10_000) if group_of(key, 128) == 3)
    with pytest.raises(CorruptSnapshot, match="not in the key groups of their keys"):
        rows(opened(location, state=NAME, keys=json.dumps({"key": of_group_3})))


def test_a_snapshot_of_an_older_plan_is_read_as_it_is_called_there(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    def renamed(metadata: SnapshotMetadata) -> SnapshotMetadata:
        assert metadata.plan is not None
        operator = metadata.plan.operators[COUNT]
        states = {"counts": ["__key_group int16", "key int64", "count double"]}
        plan = msgspec.structs.replace(
            metadata.plan, operators={**metadata.plan.operators, COUNT: {**operator, "states": states}}
        )
        return msgspec.structs.replace(metadata, plan=plan)

    name = rewritten(scene.location, renamed)
    with pytest.raises(CorruptSnapshot, match="has no column 'count double'"):
        opened(scene.location, snapshot=name, state=NAME)
