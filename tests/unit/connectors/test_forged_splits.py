"""A source reads, deletes and archives only files that its own path and options list."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
import pytest

from penstock.connectors import split_forms
from penstock.connectors.base import SourceReader
from penstock.connectors.files.listed_paths import ListedPaths
from penstock.connectors.files.listing import Listing, parse_listing_options
from penstock.connectors.files.source import FileSource
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.option_texts import OptionTexts
from penstock.connectors.rate import RateSource
from penstock.connectors.rate_micro_batch import RateMicroBatchOptions, RateMicroBatchSource
from penstock.connectors.socket_source import SocketSource
from penstock.connectors.spark.staged_ranges import StagedRanges
from penstock.connectors.split_forms import SplitForm
from penstock.errors import CorruptSnapshot, DataError
from penstock.model.splits import Split
from tests.support.connectors.kits import discover_all, stored_state

SCHEMA = pa.schema([("value", pa.string())])


def text(path: Path | str, **options: str) -> FileSource:
    return FileSource("text", str(path), SCHEMA, options)


def listed(path: str, **options: str) -> ListedPaths:
    return ListedPaths(path, parse_listing_options(OptionTexts("test", options)))


def waiting(path: Path) -> list[Any]:
    status = os.stat(path)
    return [str(path), status.st_size, status.st_mtime_ns]


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    directory = tmp_path / "in"
    directory.mkdir()
    (directory / "a").write_text("a")
    return directory


@pytest.mark.parametrize("mode", ["delete", "archive"])
@pytest.mark.parametrize("pattern", ["in", "in/a*", "{in,other}/[a-c]", "in/a"])
def test_a_forged_list_cleans_nothing_that_the_source_does_not_list(
    inbox: Path, tmp_path: Path, mode: str, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    archive = tmp_path / "x" / "y" / "archive"
    options = {"cleanSource": mode} | ({"sourceArchiveDir": str(archive)} if mode == "archive" else {})
    outside = [tmp_path / name for name in ("precious", "in/.hidden", "in/sub/deep", "in2")]
    for path in outside:
        path.parent.mkdir(exist_ok=True)
        path.write_text("precious")
    around = [str(inbox / ".." / "precious"), f"{inbox}//a", "precious", f"{inbox}/./a"]
    source = text(tmp_path / pattern, **options)
    state = stored_state(source.discover(None, 1).state)
    forged = [waiting(path) for path in outside]
    forged += [[name, *waiting(tmp_path / "precious")[1:]] for name in around]
    state["uncleaned"] += forged
    text(tmp_path / pattern, **options).committed(state)
    assert [path.read_text() for path in outside] == ["precious"] * len(outside)
    assert not (inbox / "a").exists(), "it is the source's own"
    assert caplog.text.count("the source does not list it") == len(forged)


@pytest.mark.parametrize("forged", ["x", [["/a"]], [["/a", 1, "1"]], [[1, 1, 1]], {"a": 1}, [["/a", -1, 1]]])
def test_a_malformed_list_of_files_to_clean_is_refused(inbox: Path, forged: Any) -> None:
    state = stored_state(text(inbox).discover(None, 1).state) | {"uncleaned": forged}
    for call in (lambda source: source.committed(state), lambda source: source.discover(state, 1)):
        with pytest.raises(CorruptSnapshot, match="no list of files to clean"):
            call(text(inbox, cleanSource="delete"))


def test_another_query_does_not_clean_files_of_the_first(inbox: Path) -> None:
    source = text(inbox, cleanSource="delete")
    state = source.discover(None, 1).state
    fork = text(inbox, cleanSource="delete")
    taken_over = fork.adopt_state(stored_state(state))
    assert not fork.discover(taken_over, 1).splits, "what was read stays read"
    fork.committed(taken_over)
    assert (inbox / "a").exists()
    source.committed(state)
    assert not (inbox / "a").exists()


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"path": "/etc/passwd", "size": 1, "modified_ns": 1}, "do not list"),
        ({"path": "../in/a", "size": 1, "modified_ns": 1}, "do not list"),
        ({"path": 7, "size": 1, "modified_ns": 1}, "not of a file"),
        ({"path": "/a", "size": "1", "modified_ns": 1}, "not of a file"),
        ({}, "not of a file"),
    ],
)
def test_a_forged_split_reads_nothing_that_the_source_does_not_list(
    inbox: Path, spec: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        text(inbox).create_reader().add_split(Split("forged", spec))
    splits = discover_all(text(inbox))
    with pytest.raises(DataError, match="not of a file"):
        text(inbox).create_reader().add_split(Split("forged", splits[0].spec, {"rows": -1}))


@pytest.mark.parametrize("path", ["/etc/x.parquet", "lane/source-0/../../x.parquet", "data/1-1-0.arrows", "lane/x"])
def test_a_forged_range_is_no_file_of_the_location(tmp_path: Path, path: str) -> None:
    ranges = StagedRanges("test", SCHEMA, "UTC")
    ranges.open(str(tmp_path), "source-0")
    reader = ranges.reader()
    spec: dict[str, Any] = {"size": 1, "modified_ns": 1}
    reader.add_split(Split("good", {"path": "lane/source-0/0000000007-abcd/part-00000-x.parquet", **spec}))
    with pytest.raises(DataError, match="do not list"):
        reader.add_split(Split("forged", {"path": path, **spec}))


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("in", {}),
        ("in/*", {}),
        ("in/x=*/*", {}),
        ("in/{a,x=1}", {}),
        ("in/[!b]", {}),
        ("in/a\\*", {}),
        ("in/a", {}),
        ("in", {"recursiveFileLookup": "true"}),
        ("in", {"recursiveFileLookup": "true", "pathGlobFilter": "*.t{xt,sv}"}),
        ("in/.hidden", {}),
        ("*/*", {"recursiveFileLookup": "true"}),
    ],
)
def test_exactly_the_listed_paths_are_admitted(tmp_path: Path, path: str, options: dict[str, str]) -> None:
    names = ["in/a", "in/b", "in/a*", "in/a.txt", "in/_x", "in/.hidden/c", "in/x=1/d", "in/x=1/e.tsv", "in/s/f.txt"]
    names += ["in/s/_t/g", "in/_y=1/h", "other/i", "in/x=1/_z/j"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    whole, parsed = f"{tmp_path}/{path}", parse_listing_options(OptionTexts("test", options))
    found = {one for one, _ in Listing(whole, parsed).names()}
    assert found == {one for name in names if listed(whole, **options).admits(one := f"{tmp_path}/{name}")}


def test_files_in_the_log_of_sparks_sink_are_admitted(tmp_path: Path) -> None:
    log = tmp_path / "in" / "_spark_metadata"
    log.mkdir(parents=True)
    (log / "0").write_text('v1\n{"path": "file:///elsewhere/part-0", "action": "add"}\n')
    assert listed(f"{tmp_path}/in").admits("/elsewhere/part-0")
    assert not listed(f"{tmp_path}/in").admits("/elsewhere/part-1")


FORMS: dict[str, tuple[SplitForm, dict[str, Any], dict[str, Any], dict[str, tuple[Any, ...]]]] = {
    "kafka": (
        split_forms.KAFKA,
        {"topic": "t", "partition": 0, "start": 5, "planned_end": 7},
        {"offset": 6},
        {
            "topic": ("", "a b", "../x", "a/b", "..", "x" * 250, "a\n", "\x1b[2J", 7, None),
            "partition": (-1, 1 << 31, "0", 1.5, None, True),
            "start": (-1, 1 << 63, "0", None),
            "planned_end": (-1, 1 << 63, "0"),
            "more": (1,),
            "offset": (-1, 1 << 63, "6"),
            "other": (1,),
        },
    ),
    "rate": (
        split_forms.RATE,
        {"partition": 0, "partitions": 2, "start_ms": 1},
        {"next": 3},
        {"partition": (-1, "0"), "partitions": (0, -1, "2"), "start_ms": (1 << 63, "1"), "next": (-1, "3")},
    ),
    "rate-micro-batch": (
        split_forms.RATE_MICRO_BATCH,
        {"batch": 1, "partition": 0, "partitions": 2},
        {"rows": 3},
        {"batch": (-1, "1"), "partition": (-1, "0"), "partitions": (0, "2"), "rows": (-1, "3")},
    ),
    "socket": (
        split_forms.SOCKET,
        {"texts": ["a"], "micros": [1]},
        {"rows": 0},
        {"texts": ("a", [1], None), "micros": (1, ["1"], [1 << 63]), "rows": (-1, "0")},
    ),
}


def readers() -> dict[str, SourceReader]:
    kafka = KafkaSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    batches = RateMicroBatchSource(RateMicroBatchOptions(rows_per_batch=1))
    sources = (kafka, RateSource(), batches, SocketSource("127.0.0.1", 1))
    return {name: source.create_reader() for name, source in zip(FORMS, sources, strict=True)}


@pytest.mark.parametrize("name", FORMS)
def test_every_field_of_a_split_is_checked(name: str) -> None:
    form, spec, position, wrong = FORMS[name]
    assert set(spec) | set(position) <= set(wrong), "each has wrong values here"
    assert set(spec) == set(form.spec.__struct_fields__)
    assert set(position) == set(form.position.__struct_fields__)
    readers()[name].add_split(Split("good", spec, position))
    for field, values in wrong.items():
        for value in values:
            within = position if field in ("offset", "other", "next", "rows") else spec
            forged = {**within, field: value}
            split = Split("forged", forged if within is spec else spec, forged if within is position else position)
            with pytest.raises(DataError, match=rf"none of the {name} source.* damaged or forged"):
                readers()[name].add_split(split)


def test_every_text_and_number_of_a_split_has_bounds() -> None:
    for form in (value for value in vars(split_forms).values() if isinstance(value, SplitForm)):
        assert form in [known for known, *_ in FORMS.values()]
        for kind in (form.spec, form.position):
            for name, declared in get_type_hints(kind, include_extras=True).items():
                assert declared not in (str, int), f"{kind.__name__}.{name} takes any {declared.__name__}"


@pytest.mark.parametrize("mode", ["delete", "archive"])
@pytest.mark.parametrize("pattern", ["in", "in/*", "in/x=*"])
def test_nothing_is_cleaned_through_a_directory_that_was_replaced_by_a_link(
    tmp_path: Path, mode: str, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder, precious = tmp_path / "in" / "x=1", tmp_path / "precious" / "a"
    for path in (folder / "a", precious):
        path.parent.mkdir(parents=True)
        path.write_text("same")
    os.utime(precious, ns=(0, (folder / "a").stat().st_mtime_ns))
    options = {"cleanSource": mode, "recursiveFileLookup": "true"}
    if mode == "archive":
        options["sourceArchiveDir"] = str(tmp_path / "x" / "y" / "archive")
    source = text(tmp_path / pattern, **options)
    state = source.discover(None, 1).state
    folder.rename(tmp_path / "aside")
    folder.symlink_to(precious.parent)
    source.committed(state)
    assert precious.read_text() == "same"
    assert "a link below" in caplog.text
    folder.unlink()
    (tmp_path / "aside").rename(folder)
    text(tmp_path / pattern, **options).committed(stored_state(state))
    assert not (folder / "a").exists(), "it is cleaned where it was found"
