"""What the data source's readers yield, called as Spark calls them, on snapshots of every kind."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from portable_kit import Scene, at, one_table, rewritten, taken_at
from pyspark.cloudpickle import dumps, loads
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import LongType, StructField, StructType
from snapshot_kit import COUNT
from verbs_kit import Kept, flip

from penstock.errors import ConfigError, CorruptSnapshot, LocationError
from penstock.snapshot.catalog import Catalog, plan_restore, snapshot_id
from penstock.snapshot.collect import delete_snapshot, remove_orphans
from penstock.snapshot.log import SnapshotLog
from penstock.snapshot.model import SnapshotMetadata
from penstock.snapshot.portable.export import export_snapshot
from penstock.snapshot.store import LocalStore
from penstock.spark_data.pushed_filters import passing
from penstock.spark_data.reading import SnapshotReader
from penstock.spark_data.source import PenstockSource
from penstock.state.capture import KEY_GROUP_COLUMN
from penstock.state.hashing import groups_of
from penstock.testing.rows import group_of

NAME = f"{COUNT}/counts"


def opened(location: object, schema: StructType | None = None, **options: str) -> SnapshotReader:
    source = loads(dumps(PenstockSource({"path": str(location), **options})))
    told = source.schema()
    return source.reader(schema or told)  # type: ignore[no-any-return]


def rows(
    reader: SnapshotReader, filters: Sequence[Filter] = (), partitions: Sequence[InputPartition] | None = None
) -> list[dict[str, Any]]:
    assert list(reader.pushFilters(list(filters))) == list(filters), "Spark evaluates them again"
    found = reader.partitions() if partitions is None else partitions
    sent = loads(dumps(reader))
    return [row for one in found for batch in sent.read(loads(dumps(one))) for row in batch.to_pylist()]


def counts(reader: SnapshotReader, filters: Sequence[Filter] = ()) -> dict[int, int]:
    found = rows(reader, filters)
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
    [partition] = _planned(reader, [EqualTo(("key",), key)])
    assert {(e.key_group_first, e.key_group_last) for e in partition.entries} == {(100, 100)}
    assert len(partition.entries) < len(reader._table.entries) / 2, "none of the other subtask's"
    damaged_but_for(scene.location, [(entry.section.path, entry.section.offset) for entry in partition.entries])
    assert counts(reader, [EqualTo(("key",), key)]) == {key: whole[key]}
    assert counts(reader, [In(("key",), (key, key))]) == {key: whole[key]}
    with pytest.raises(CorruptSnapshot, match=r"chk-4 is damaged.*checksum"):
        counts(reader)


def _planned(reader: SnapshotReader, filters: list[Filter]) -> list[Any]:
    reader.pushFilters(filters)
    return reader.partitions()


def test_filters_on_keys_and_key_groups_leave_what_they_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    reader = opened(scene.location, state=NAME, partitionBytes="1")
    whole = counts(reader)
    group = ("key_group",)

    def groups(*filters: Filter) -> set[int]:
        return {group_of(key, 128) for key in counts(reader, filters)}

    assert groups(EqualTo(group, 7)) == {7}
    assert groups(GreaterThan(group, 60), LessThanOrEqual(group, 70)) <= set(range(61, 71))
    assert {key for key in whole if 60 < group_of(key, 128) <= 70} == set(
        counts(reader, [GreaterThan(group, 60), LessThanOrEqual(group, 70)])
    )
    assert groups(In(group, (3, 99))) == {3, 99}
    assert counts(reader, [EqualTo(("key",), 5), EqualTo(group, group_of(5, 128) ^ 1)]) == {}
    assert rows(reader, [EqualTo(group, 1000)]) == []
    assert rows(reader, [EqualTo(("key",), 10**9)]) == []
    some = tuple(list(whole)[:30])
    assert counts(reader, [In(("key",), some)]) == {key: whole[key] for key in some}
    assert counts(reader, [GreaterThanOrEqual(("count",), 3)]) == {k: v for k, v in whole.items() if v >= 3}
    assert counts(reader, [EqualTo(("key",), "not a number")]) == whole, "Spark judges what does not fit"
    monkeypatch.setattr("penstock.spark_data.state_reader.passing", lambda batch, names, filters: batch)
    at_once = opened(scene.location, state=NAME)
    far = tuple(list(whole)[::250])
    found = counts(at_once, [In(("key",), far)])
    assert len(at_once.partitions()) == 1
    assert {group_of(key, 128) for key in found} == {group_of(key, 128) for key in far}, "without a look at rows"


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


def test_nested_keys_are_found_by_their_leaves(tmp_path: Path) -> None:
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

    def leaves(value: Any, kind: pa.DataType, path: tuple[str, ...]) -> list[Filter]:
        if pa.types.is_struct(kind):
            return [
                f
                for field in kind
                for f in leaves(None if value is None else value[field.name], field.type, (*path, field.name))
            ]
        return [IsNull(path) if value is None else EqualTo(path, value)]

    for number in (0, 1, 2, 3, 17, 40):
        filters = leaves(KEYS[number], KEY, ("key",))
        [partition] = _planned(reader, filters)
        assert sum(partition.wanted) == 1
        found = [row["count"] for row in rows(reader, filters)]
        assert number in found
        assert len(found) < len(KEYS) / 4
    assert len(rows(reader, leaves(KEYS[5], KEY, ("key",))[1:])) < len(KEYS), "a part of the key filters rows"
    assert sum(_planned(reader, leaves(KEYS[5], KEY, ("key",))[1:])[0].wanted) == 128, "and no key groups"


VALUES: dict[str, tuple[pa.DataType, list[Any], Any]] = {
    "number": (pa.int32(), [None, -5, 0, 3, 2**31 - 1], 3),
    "text": (pa.string(), [None, "", "ab", "abc", "ü%_"], "ab"),
    "real": (pa.float64(), [None, math.nan, -0.0, 1.5, math.inf], 1.5),
    "flag": (pa.bool_(), [None, True, False, True, None], True),
    "when": (pa.timestamp("us", tz="UTC"), [None, *(datetime(2024, 1, d, tzinfo=UTC) for d in (1, 2, 3, 4))],
             datetime(2024, 1, 3, tzinfo=UTC)),
    "money": (pa.decimal128(10, 2), [None, *(Decimal(n) / 4 for n in range(4))], Decimal("0.5")),
}  # fmt: skip


def _spark_says(one: Filter, value: Any) -> bool | None:
    """What Spark's expression gives."""
    if isinstance(one, Not):
        inner = _spark_says(one.child, value)
        return None if inner is None else not inner
    if isinstance(one, IsNull | IsNotNull):
        return (value is None) == isinstance(one, IsNull)
    if isinstance(one, EqualNullSafe):
        return (value is None) == (one.value is None) and (value is None or _order(value) == _order(one.value))
    if value is None:
        return None
    if isinstance(one, In):
        return _order(value) in [_order(v) for v in one.value if v is not None] or (
            None if None in one.value else False
        )
    a, b = _order(value), _order(one.value)
    told = {EqualTo: a == b, GreaterThan: a > b, GreaterThanOrEqual: a >= b, LessThan: a < b, LessThanOrEqual: a <= b}
    if type(one) in told:
        return told[type(one)]
    text = {StringStartsWith: str.startswith, StringEndsWith: str.endswith, StringContains: str.__contains__}
    return text[type(one)](value, one.value)


def _order(value: Any) -> Any:
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value


@pytest.mark.parametrize("name", VALUES)
def test_no_row_is_lost_that_spark_would_keep(name: str) -> None:
    kind, values, middle = VALUES[name]
    batch = pa.record_batch([pa.array(range(len(values))), pa.array(values, kind)], names=["row", name])
    path = (name,)
    binary = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    filters: list[Filter] = [make(path, middle) for make in binary]
    filters += [EqualNullSafe(path, None), In(path, (middle,)), In(path, (middle, None)), IsNull(path), IsNotNull(path)]
    if name == "real":
        filters += [EqualTo(path, math.nan), GreaterThan(path, math.inf), In(path, (math.nan,)), EqualTo(path, 0.0)]
    if name == "text":
        filters += [
            make(path, text) for make in (StringStartsWith, StringEndsWith, StringContains) for text in ("b", "%")
        ]
    filters += [EqualTo(path, object())] if name == "number" else []
    filters += [Not(one) for one in filters]
    exact = 0
    for one in filters:
        kept = passing(batch, batch.schema.names, [one]).column(0).to_pylist()
        if isinstance(getattr(getattr(one, "child", one), "value", None), object) and "object at" in repr(one):
            assert kept == list(range(len(values)))
            continue
        wanted = [row for row, value in enumerate(values) if _spark_says(one, value)]
        assert set(wanted) <= set(kept), one
        exact += wanted == kept
    assert exact >= (4 if name == "real" else len(filters) * 2 // 3), "and most that it would not is"


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
    some = rows(many, [EqualTo(("consumer",), 1), GreaterThan(("key",), 5)])
    assert some == [row for row in rows(many) if row["consumer"] == 1 and row["key"] > 5]

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
    listed = rows(opened(scene.location), [EqualTo(("id",), "chk-4")])
    assert [row["id"] for row in listed] == ["chk-2", "chk-3", "chk-4"]


def test_columns_are_chosen_by_option_or_schema(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    options = {"state": NAME, "columns": "count, KEY"}
    assert PenstockSource({"path": str(scene.location), **options}).schema().names == ["count", "key"]
    reader = opened(scene.location, **options)
    assert [set(row) for row in rows(reader, [EqualTo(("key",), 6)])] == [{"count", "key"}]
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
    refused(ConfigError, "has no option 'sate'; it has: location", sate=NAME)
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
    with pytest.raises(CorruptSnapshot, match="not in the key groups of their keys"):
        rows(opened(location, state=NAME), [EqualTo(("key_group",), 3)])


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
