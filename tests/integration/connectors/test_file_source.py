"""The file source: what it finds, in which order, from every position, and what it refuses."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.files.discovery import MAX_DISCOVERED_FILES, MAX_LISTING_PAUSE_S, _DiscoveryProgress
from penstock.connectors.files.hadoop_globs import glob_regex, matching_paths
from penstock.connectors.files.listing import is_hidden
from penstock.connectors.files.seen_files import SeenFiles
from penstock.connectors.files.source import FileSource
from penstock.errors import ConfigError, DataError, NotYet
from tests.support.connectors.kits import (
    check_replay,
    discover_all,
    new_reader,
    next_batch,
    read_rows,
    rows_of,
    stored_state,
)

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])


def write(path: Path, text: str, modified_s: int = 1_000_000_000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (modified_s, modified_s))


def found(source: FileSource) -> list[str]:
    return [os.path.basename(str(split.spec["path"])) for split in discover_all(source)]


def csv(path: Path | str, **options: str) -> FileSource:
    return FileSource("csv", str(path), SCHEMA, options)


def test_replay_of_parquet_from_every_position(tmp_path: Path) -> None:
    for name, start in (("x", 0), ("y", 100)):
        table = pa.table({"a": range(start, start + 23), "b": [str(i) for i in range(23)]})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=7)
    source = FileSource("parquet", str(tmp_path), SCHEMA)
    assert [row[0] for row in check_replay(source, max_rows=5)] == [*range(23), *range(100, 123)]


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_replay_of_text_from_every_position(tmp_path: Path, kind: str) -> None:
    lines = [f"{i},v{i}" if kind == "csv" else json.dumps({"a": i, "b": f"v{i}"}) for i in range(20)]
    lines[3], lines[11] = "bad,line,here", "{bad"
    write(tmp_path / f"one.{kind}", "\n".join(lines))
    write(tmp_path / f"two.{kind}", lines[0] + "\n")
    source = FileSource(kind, str(tmp_path), SCHEMA, {"mode": "DROPMALFORMED"})
    assert [row[0] for row in check_replay(source, max_rows=3)] == [*(i for i in range(20) if i not in (3, 11)), 0]


def test_files_come_by_modification_time_then_path(tmp_path: Path) -> None:
    for name, modified in (("c", 5), ("a", 9), ("b", 5)):
        write(tmp_path / f"{name}.csv", "1,x\n", 1_000_000_000 + modified)
    assert found(csv(tmp_path)) == ["b.csv", "c.csv", "a.csv"]
    assert found(csv(tmp_path, latestFirst="true")) == ["a.csv", "c.csv", "b.csv"]
    assert found(csv(tmp_path, pathGlobFilter="[ab].csv")) == ["b.csv", "a.csv"]
    assert found(csv(tmp_path / "{a,c}.csv")) == ["c.csv", "a.csv"]
    assert found(csv(f"file://{tmp_path}/?.csv")) == ["b.csv", "c.csv", "a.csv"]


def test_hidden_names_are_ignored(tmp_path: Path) -> None:
    for name in ("_SUCCESS", ".part.crc", "late.csv._COPYING_", "_tmp/x.csv", "sub/y.csv", "z.csv"):
        write(tmp_path / name, "1,x\n")
    assert found(csv(tmp_path)) == ["z.csv"]
    assert found(csv(tmp_path, recursiveFileLookup="true")) == ["y.csv", "z.csv"]
    assert not is_hidden("_day=1")


def test_only_new_files_are_handed_out(tmp_path: Path) -> None:
    source = csv(tmp_path)
    write(tmp_path / "a.csv", "1,x\n")
    first = source.discover(None, 1)
    write(tmp_path / "b.csv", "2,y\n", 999_999_999)
    second = source.discover(stored_state(first.state), 1)
    assert [os.path.basename(str(s.spec["path"])) for s in second.splits] == ["b.csv"]
    assert source.discover(second.state, 1).splits == []
    assert source.discover(first.state, 1) == second, "a lost call is made again"


def test_the_base_path_counts_for_patterns_only(tmp_path: Path) -> None:
    """Spark replaces it by the path where the path has no wildcards."""
    write(tmp_path / "a=1" / "x.csv", "y\n")
    for path, partition in (("a=*", {"a": "1"}), ("a=1", None)):
        (split,) = discover_all(csv(tmp_path / path, basePath=str(tmp_path)))
        assert split.spec.get("partition") == partition


def test_maximum_age_bounds_the_state(tmp_path: Path) -> None:
    source = csv(tmp_path, maxFileAge="1h")
    write(tmp_path / "old.csv", "1,x\n", 1_000_000_000)
    write(tmp_path / "new.csv", "1,x\n", 1_000_010_000)
    first = source.discover(None, 1)
    assert len(first.splits) == 2, "the first look takes everything"
    seen = SeenFiles.restored(dict(first.state))
    assert len(seen) == 1
    assert seen.contains([str(tmp_path / "new.csv")]).all()
    write(tmp_path / "stale.csv", "1,x\n", 1_000_000_001)
    assert source.discover(first.state, 1).splits == []


def test_one_look_is_bounded(tmp_path: Path) -> None:
    for i in range(5):
        write(tmp_path / f"{i}.csv", "1,x\n", 1_000_000_000 + i)
    assert len(csv(tmp_path, maxFilesPerTrigger="2").discover(None, 1).splits) == 2
    assert len(csv(tmp_path, maxBytesPerTrigger="9").discover(None, 1).splits) == 2
    assert len(csv(tmp_path, maxBytesPerTrigger="1").discover(None, 1).splits) == 1
    assert found(csv(tmp_path, maxFilesPerTrigger="2")) == [f"{i}.csv" for i in range(5)]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), r"a\.csv was listed but is gone"),
        (lambda path: path.write_text("1,x\n2,y\n"), r"a\.csv changed after it was listed"),
        (lambda path: os.utime(path, (5, 5)), r"a\.csv changed after it was listed"),
    ],
    ids=["vanished", "grown", "touched"],
)
def test_a_file_that_is_not_as_listed_is_named(tmp_path: Path, damage, message: str) -> None:
    write(tmp_path / "a.csv", "1,x\n")
    source = csv(tmp_path)
    splits = discover_all(source)
    damage(tmp_path / "a.csv")
    reader = new_reader(source)
    reader.add_split(splits[0])
    with pytest.raises(DataError, match=message):
        next_batch(reader, 10)


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "".join(f"{i},x\n" for i in range(10)))
    source = csv(tmp_path)
    reader = new_reader(source)
    reader.add_split(discover_all(source)[0])
    assert next_batch(reader, 5).num_rows == 5
    os.utime(tmp_path / "a.csv", (7, 7))
    with pytest.raises(DataError, match="changed after it was listed"):
        read_rows(reader)


def test_a_broken_parquet_file_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", "no parquet")
    source = FileSource("parquet", str(tmp_path), SCHEMA)
    reader = new_reader(source)
    reader.add_split(discover_all(source)[0])
    with pytest.raises(DataError, match=r"cannot read .*a\.parquet: not a readable Parquet file"):
        next_batch(reader, 10)


def test_options_that_are_not_supported_are_named() -> None:
    with pytest.raises(ConfigError, match=r"charToEscapeQuoteEscaping. Options of the csv source: .*header"):
        csv("/in", charToEscapeQuoteEscaping="x")
    for name, value in (("multiLine", "true"), ("encoding", "UTF-16"), ("cleanSource", "burn"), ("sep", "||")):
        with pytest.raises(ConfigError, match=name):
            csv("/in", **{name: value})
    with pytest.raises(ConfigError, match="timestampFormat"):
        csv("/in", timestampFormat="dd/MM/yyyy")
    with pytest.raises(ConfigError, match="mode"):
        csv("/in", mode="LOOSE")
    with pytest.raises(ConfigError, match="allowComments"):
        FileSource("json", "/in", SCHEMA, {"allowComments": "true"})
    with pytest.raises(ConfigError, match="header"):
        FileSource("parquet", "/in", SCHEMA, {"header": "true"})
    with pytest.raises(ConfigError, match="column c"):
        FileSource("csv", "/in", pa.schema([("c", pa.list_(pa.int64()))]))


def test_paths_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotYet, match="s3a://bucket/in"):
        csv("s3a://bucket/in")
    with pytest.raises(DataError, match="does not exist"):
        csv(tmp_path / "missing").discover(None, 1)
    assert csv(tmp_path / "missing*").discover(None, 1).splits == []
    write(tmp_path / "day=1" / "a.csv", "1,x\n")
    with pytest.raises(DataError, match=r"day=1/a.csv: a directory is named like a partition, day="):
        csv(tmp_path).discover(None, 1)


def test_compressed_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf1,x\r\n2,y\r3,z"))
    source = csv(tmp_path)
    assert check_replay(source) == [(1, "x"), (2, "y"), (3, "z")]


def test_columns_are_found_by_name_and_widened(tmp_path: Path) -> None:
    inner = pa.array([{"y": 1}, None], pa.struct([("y", pa.int32())]))
    lists = pa.array([[{"y": 1}], None], pa.list_(pa.struct([("y", pa.int32())])))
    maps = pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32()))
    table = pa.table({"B": ["x", None], "A": pa.array([1, None], pa.int32()), "s": inner, "l": lists, "m": maps})
    pq.write_table(table, tmp_path / "a.parquet")
    wide = pa.struct([("z", pa.string()), ("y", pa.int64())])
    schema = pa.schema(
        [("a", pa.int64()), ("missing", pa.string()), ("b", pa.string()), ("s", wide), ("l", pa.list_(wide)),
         ("m", pa.map_(pa.string(), pa.int64()))]
    )  # fmt: skip
    source = FileSource("parquet", str(tmp_path), schema)
    reader = new_reader(source)
    reader.add_split(discover_all(source)[0])
    batch = next_batch(reader, 10)
    assert batch.schema.equals(schema)
    assert rows_of(batch) == [
        (1, None, "x", {"z": None, "y": 1}, [{"z": None, "y": 1}], [("k", 1)]),
        (None, None, None, None, None, None),
    ]


def test_columns_that_cannot_be_widened_are_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": ["text"]}), tmp_path / "a.parquet")
    source = FileSource("parquet", str(tmp_path), SCHEMA)
    reader = new_reader(source)
    reader.add_split(discover_all(source)[0])
    with pytest.raises(DataError, match=r"column a of type string cannot be read as int64"):
        next_batch(reader, 10)


def test_a_schema_without_columns_of_the_file_still_counts_its_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": range(10)}), tmp_path / "a.parquet", row_group_size=4)
    assert check_replay(FileSource("parquet", str(tmp_path), pa.schema([("other", pa.int64())]))) == [(None,)] * 10


def test_name_patterns() -> None:
    import re

    assert re.match(glob_regex("part-*.{csv,txt}"), "part-1.txt")
    assert not re.match(glob_regex("part-*.{csv,txt}"), "part-1.txt.gz")
    assert not re.match(glob_regex("[!a].csv"), "a.csv")


@pytest.mark.spark
def test_a_directory_of_sparks_sink_is_read_as_spark_reads_it(spark, tmp_path: Path) -> None:
    source, sink = tmp_path / "in", tmp_path / "out"
    for i in range(3):
        write(source / f"{i}.csv", f"{i},x\n")
        stream = spark.readStream.schema("a LONG, b STRING").csv(str(source)).writeStream.format("parquet")
        query = stream.option("checkpointLocation", str(tmp_path / "chk")).trigger(availableNow=True).start(str(sink))
        query.awaitTermination()
    pq.write_table(pa.table({"a": [99], "b": ["not committed"]}), sink / "part-stray.parquet")
    ours = FileSource("parquet", str(sink), SCHEMA)
    assert sorted(check_replay(ours)) == sorted(map(tuple, spark.read.parquet(str(sink)).collect()))
    assert len(discover_all(ours)) == 3


def many(directory: Path, count: int) -> None:
    for i in range(count):
        write(directory / f"{i:04d}.csv", "1,x\n", 1_000_000_000 + i)


def test_many_files_are_handed_out_in_parts(tmp_path: Path) -> None:
    many(tmp_path, MAX_DISCOVERED_FILES + 10)
    source = csv(tmp_path)
    first = source.discover(None, 1)
    assert (len(first.splits), first.finished) == (MAX_DISCOVERED_FILES, False)
    write(tmp_path / "9999.csv", "1,x\n", 999_999_999)
    second = source.discover(first.state, 1)
    assert [str(split.spec["path"])[-8:] for split in second.splits] == [
        f"{MAX_DISCOVERED_FILES + i:04d}.csv" for i in range(10)
    ]
    assert [str(split.spec["path"])[-8:] for split in source.discover(second.state, 1).splits] == ["9999.csv"]
    again = csv(tmp_path).discover(stored_state(first.state), 1)
    assert len(again.splits) == 11, "a new driver lists again"


@pytest.mark.parametrize("options", [{}, {"latestFirst": "true"}, {"maxFilesPerTrigger": "3"}])
def test_every_file_of_many_comes_once(tmp_path: Path, options: dict[str, str]) -> None:
    many(tmp_path, 2 * MAX_DISCOVERED_FILES // (40 if "maxFilesPerTrigger" in options else 1) + 1)
    expected = sorted((f"{path.name}" for path in tmp_path.iterdir()), reverse="latestFirst" in options)
    assert found(csv(tmp_path, **options)) == expected
    renewed, state = [], None
    while splits := (discovery := csv(tmp_path, **options).discover(state, 1)).splits:
        renewed += [os.path.basename(str(split.spec["path"])) for split in splits]
        state = stored_state(discovery.state)
    assert renewed == expected


def test_a_frozen_source_finds_what_was_there(tmp_path: Path) -> None:
    many(tmp_path, MAX_DISCOVERED_FILES + 1)
    source = csv(tmp_path)
    first = source.discover(None, 1)
    write(tmp_path / "seen.csv", "1,x\n", 2_000_000_000)
    source.freeze()
    write(tmp_path / "late.csv", "1,x\n", 2_000_000_001)
    second = source.discover(first.state, 1)
    assert [os.path.basename(str(split.spec["path"])) for split in second.splits] == ["0256.csv", "seen.csv"]
    assert second.finished
    assert source.discover(second.state, 1).finished
    assert source.discover(first.state, 1).splits == second.splits, "a lost call is made again"


def test_files_are_known_by_name_alone_if_wanted(tmp_path: Path) -> None:
    for directory in ("x", "y"):
        write(tmp_path / directory / "a.csv", "1,x\n")
    assert len(discover_all(csv(tmp_path, recursiveFileLookup="true"))) == 2
    assert len(discover_all(csv(tmp_path, recursiveFileLookup="true", fileNameOnly="true"))) == 1


def test_missing_files_are_skipped_if_wanted(tmp_path: Path) -> None:
    many(tmp_path, 3)
    source = csv(tmp_path, ignoreMissingFiles="true")
    reader = new_reader(source)
    for split in discover_all(source):
        reader.add_split(split)
    (tmp_path / "0001.csv").unlink()
    assert read_rows(reader) == [(1, "x")] * 2


def test_what_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.csv", "1,x\n")
    source = csv(tmp_path, ignoreCorruptFiles="true")
    reader = source.create_reader()
    reader.add_split(discover_all(source)[0])

    def denied(path: object, *_: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("penstock.connectors.files.text.lines._open", denied)
    with pytest.raises(DataError, match=r"cannot read .*a\.csv: .*Permission denied"):
        next_batch(reader, 10)
    monkeypatch.setattr("os.scandir", denied)
    with pytest.raises(DataError, match=f"directory {tmp_path} cannot be listed: Permission denied"):
        csv(tmp_path).discover(None, 1)


def test_options_that_spark_forbids_for_streams(tmp_path: Path) -> None:
    for name in ("modifiedBefore", "modifiedAfter"):
        with pytest.raises(ConfigError, match=f"{name} is not allowed in file stream sources"):
            csv(tmp_path, **{name: "2020-01-01T00:00:00"})


def test_listing_takes_a_quarter_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        now_s, slept = 100.0, 0.0

        def monotonic(self) -> float:
            return self.now_s

        def sleep(self, seconds: float) -> None:
            self.slept = seconds

    clock = Clock()
    monkeypatch.setattr("penstock.connectors.files.discovery.time", clock)
    progress = _DiscoveryProgress()
    for took_s, rest_s in ((0.1, 0.0), (50.0, 0.3), (0.1, MAX_LISTING_PAUSE_S)):
        with progress.paced():
            assert clock.slept == pytest.approx(rest_s)
            clock.now_s += took_s


def test_a_backslash_takes_a_wildcard_literally(tmp_path: Path) -> None:
    for name in ("a{x,y}", "ax", "ay", "a*", "a[b]"):
        (tmp_path / name).mkdir()

    def found(pattern: str) -> list[str]:
        return [path.removeprefix(f"{tmp_path}/") for path in matching_paths(f"{tmp_path}/{pattern}")]

    assert found("a{x,y}") == ["ax", "ay"]
    assert found(r"a\{x\,y\}") == ["a{x,y}"]
    assert found(r"a\{*") == ["a{x,y}"]
    assert found(r"a\*") == ["a*"]
    assert found(r"a\[b\]") == ["a[b]"]
