"""A source reads, deletes and archives only files that its own path and options list."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kits import discover_all, stored_state

from penstock.connectors.base import Split
from penstock.connectors.file_listing import Listing, parse_listing_options
from penstock.connectors.file_source import FileSource
from penstock.connectors.listed_paths import ListedPaths
from penstock.connectors.option_texts import OptionTexts
from penstock.connectors.staged_ranges import StagedRanges
from penstock.errors import CorruptSnapshot, DataError

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
    taken_over = fork.of_another_query(stored_state(state))
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
