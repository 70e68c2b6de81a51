"""Files that were read: ``cleanSource``."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.connectors.files.clean_source import archive_matches_source
from penstock.connectors.files.source import FileSource
from penstock.errors import ConfigError, NotSupported
from tests.support.connectors.kits import discover_all, stored_state

SCHEMA = pa.schema([("value", pa.string())])


def text(path: Path | str, **options: str) -> FileSource:
    return FileSource("text", str(path), SCHEMA, options)


def files_in(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    directory = tmp_path / "in"
    directory.mkdir()
    for name in "abc":
        (directory / name).write_text(name)
    return directory


def test_files_go_once_a_complete_snapshot_has_read_them(inbox: Path) -> None:
    source = text(inbox, cleanSource="delete", maxFilesPerTrigger="1")
    first = source.discover(None, 1)
    second = source.discover(first.state, 1)
    source.committed(first.state)
    assert files_in(inbox) == ["b", "c"]
    third = source.discover(second.state, 1)
    assert [entry[0] for entry in dict(third.state)["uncleaned"]] == [str(inbox / "b"), str(inbox / "c")]
    source.committed(third.state)
    assert files_in(inbox) == []
    assert "uncleaned" not in source.discover(third.state, 1).state


def test_a_new_driver_cleans_what_the_old_one_left(inbox: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    options = {"cleanSource": "archive", "sourceArchiveDir": str(archive)}
    state = stored_state(text(inbox, **options).discover(None, 1).state)
    os.unlink(inbox / "a")  # as if the old driver had died in the middle of it
    for _ in range(2):  # twice is harmless
        text(inbox, **options).committed(state)
    assert files_in(inbox) == []
    assert files_in(Path(f"{archive}{inbox}")) == ["b", "c"]


def test_another_file_of_the_same_name_stays(inbox: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    options = {"cleanSource": "archive", "sourceArchiveDir": str(archive)}
    source = text(inbox, **options)
    state = source.discover(None, 1).state
    (inbox / "a").write_text("changed since")
    taken = Path(f"{archive}{inbox}/b")
    taken.parent.mkdir(parents=True)
    taken.write_text("archived before")
    source.committed(state)
    assert files_in(inbox) == ["a", "b"]
    assert taken.read_text() == "archived before"


def test_a_file_that_cannot_be_moved_is_no_failure(
    inbox: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "archive").write_text("not a directory")
    source = text(inbox, cleanSource="archive", sourceArchiveDir=str(tmp_path / "archive"))
    source.committed(source.discover(None, 1).state)
    assert files_in(inbox) == ["a", "b", "c"]
    assert "could not be cleaned away" in caplog.text


def test_archives_that_would_be_read_again_are_refused(inbox: Path) -> None:
    for options, message in (
        ({"cleanSource": "archive"}, "needs sourceArchiveDir"),
        ({"cleanSource": "archive", "sourceArchiveDir": "/a/b"}, "at least 3 levels deep"),
        ({"cleanSource": "archive", "sourceArchiveDir": str(inbox / "done")}, "could be read from"),
        ({"cleanSource": "archive", "sourceArchiveDir": str(inbox.parent.parent)}, "could be read from"),
        ({"cleanSource": "archive", "sourceArchiveDir": "/proc/self/fd"}, "another file system"),
        ({"cleanSource": "burn"}, "choose archive, delete or off"),
    ):
        with pytest.raises(ConfigError, match=message):
            text(inbox, **options)
    assert archive_matches_source("/data/b1/x", "/data/b?")
    assert not archive_matches_source("/data/c/x", "/data/{a,b}*/y")


def test_the_output_of_sparks_sink_is_not_cleaned(inbox: Path) -> None:
    (inbox / "_spark_metadata").mkdir()
    with pytest.raises(NotSupported, match="written by Spark's file sink"):
        discover_all(text(inbox, cleanSource="delete"))
