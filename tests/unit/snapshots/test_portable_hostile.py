"""A directory may come from anywhere: one clear error, nothing outside touched, no memory for what is not there."""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import CorruptSnapshot, LocationError, PenstockError
from penstock.snapshots.format.envelope import seal_envelope
from penstock.snapshots.portable import untrusted_files
from penstock.snapshots.portable.convert import convert_snapshot
from penstock.snapshots.portable.export import export_snapshot
from tests.support.effort import some
from tests.support.snapshots.portable_kit import LABEL, Scene, names, restored, stream_bytes

Body = dict[str, Any]


class Good:
    """A portable snapshot to spoil copies of."""

    def __init__(self, directory: Path) -> None:
        self.scene = Scene(directory, rounds=2)
        self.portable = directory / "portable"
        export_snapshot(str(self.scene.location), LABEL, self.portable)
        self.body: Body = json.loads((self.portable / "manifest.json").read_bytes())["body"]
        self.content = restored(self.scene.location, self.scene.graph)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Good:
    return Good(tmp_path_factory.mktemp("good"))


@pytest.fixture
def spoilt(good: Good, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good.portable, tmp_path / "spoilt"))


def seal(directory: Path, body: Body) -> None:
    """A manifest whose checksum is right, whatever it says."""
    (directory / "manifest.json").write_bytes(seal_envelope(body))


def put(directory: Path, body: Body, ref: dict[str, Any], data: bytes) -> None:
    """Other content for a file, with the right checksum."""
    (directory / ref["path"]).write_bytes(data)
    ref |= {"length": len(data), "checksum": xxhash.xxh3_128(data).hexdigest()}
    seal(directory, body)


def refused(directory: Path, match: str, kind: type[LocationError] = CorruptSnapshot) -> None:
    before = names(directory.parent)
    with pytest.raises(kind, match=match):
        convert_snapshot(directory, directory.parent / "out")
    assert names(directory.parent) == before


def slots(body: Body) -> Any:
    return body["metadata"]["slots"]


LIES: list[tuple[str, Callable[[Body], Any]]] = [
    ("is not a clean relative path", lambda b: b["tables"][0]["parts"][0]["file"].update(path="../native/query.json")),
    ("is not a clean relative path", lambda b: b["streams"][0]["file"].update(path="/etc/passwd")),
    ("is not a clean relative path", lambda b: b["lane"][0].update(path="lane/../../x")),
    ("not below lane/", lambda b: b["lane"][0].update(path="log/00000000000000000001.json")),
    ("names a file that is not there", lambda b: b["lane"].clear()),
    ("two parts are one file", lambda b: b["lane"].append(b["lane"][0])),
    (f"bytes instead of {1 << 52}", lambda b: b["lane"][0].update(length=1 << 52)),
    ("is missing", lambda b: b["streams"][0]["file"].update(path="inflight/other")),
    ("is not a file", lambda b: b["streams"][0]["file"].update(path="inflight")),
    ("rows instead of", lambda b: b["tables"][0]["parts"][0].update(rows=1 << 40)),
    ("rows instead of", lambda b: b["streams"][0].update(rows=1 << 40)),
    ("has rows on|not in the plan", lambda b: b["streams"][0].update(exchange="7")),
    ("another consumer", lambda b: b["streams"][0].update(consumer=9)),
    ("two streams to one consumer", lambda b: b["streams"][0].update(consumer=1)),
    ("describes its rows wrongly", lambda b: [s.update(consumer=1 - s["consumer"]) for s in b["streams"]]),
    ("parallelism 1000000000", lambda b: b["metadata"].update(parallelism=10**9)),
    ("there are 1000000000 key groups", lambda b: b["metadata"].update(max_parallelism=10**9)),
    ("metadata.checkpoint", lambda b: b["metadata"].update(checkpoint=-1)),
    ("metadata.generation", lambda b: b["metadata"].update(generation=0)),
    ("is no id of a snapshot", lambda b: b["metadata"].update(id="../../chk-2")),
    ("has no plan", lambda b: b["metadata"].update(plan=None)),
    ("slot 0 has other subtasks", lambda b: slots(b)[0]["subtasks"].pop()),
    ("has a subtask twice", lambda b: slots(b)[0]["subtasks"].append(slots(b)[0]["subtasks"][0])),
    ("has 1 slots, but parallelism", lambda b: slots(b).pop()),
    ("is in slot 0", lambda b: slots(b)[0]["subtasks"][0].update(index=1)),
    ("a message is of a later epoch", lambda b: slots(b)[0]["subtasks"][1]["pending_messages"].update({"99": "AAAA"})),
    ("is no channel", lambda b: slots(b)[0]["subtasks"][1]["channel_watermarks"].update({"x": 1})),
    ("is no data file|references to data", lambda b: b["metadata"]["sources"][0].update(sections=[a_section()])),
    ("is no data file|references to data", lambda b: slots(b)[0]["subtasks"][1].update(states=[a_state()])),
    ("lacks a blob", lambda b: b["metadata"]["sources"][0]["state"].update(segments=[{"__blob__": 5}])),
    ("lacks a blob", lambda b: b["metadata"]["sources"][0]["state"].update(segments=[{"__blob__": "0"}])),
    ("other columns than in the plan", lambda b: b["tables"][0]["columns"].pop()),
    ("other names in the files", lambda b: b["tables"][0]["columns"][1].update(stored_as="x")),
    ("has table 'counts' twice", lambda b: b["tables"][0]["parts"][0].update(subtask=1)),
    ("a table of no subtask", lambda b: b["tables"][0]["parts"][0].update(subtask=9)),
    ("not in the plan", lambda b: b["tables"][0].update(operator_id="source-1")),
    ("is no source", lambda b: b["metadata"]["sources"][0].update(operator_id="count-1")),
    ("not the manifest", lambda b: b.update(tables="many")),
    ("not the manifest", lambda b: b.update(format="parquet")),
]


def a_section() -> Body:
    return {"path": "/etc/passwd", "offset": 0, "length": 5, "identity": "", "checksum": ""}


def a_state() -> Body:
    names_ = {"operator_id": "count-1", "table": "counts", "kind": "base", "rows": 1}
    return {**names_, "key_group_first": 0, "key_group_last": 9, "section": a_section()}


@pytest.mark.parametrize("number", range(len(LIES)))
def test_a_manifest_that_lies_is_refused(good: Good, spoilt: Path, number: int) -> None:
    match, lie = LIES[number]
    body = copy.deepcopy(good.body)
    lie(body)
    seal(spoilt, body)
    refused(spoilt, match)


def test_a_later_version_is_refused_and_said_to_be_one(good: Good, spoilt: Path) -> None:
    seal(spoilt, {**good.body, "format_version": 2, "tables": "of another kind"})
    refused(spoilt, "format version 2; this release reads 1", LocationError)


def test_a_directory_without_a_manifest_is_nothing(spoilt: Path) -> None:
    (spoilt / "manifest.json").unlink()
    refused(spoilt, "it has no manifest.json", LocationError)


def test_a_link_is_not_followed(good: Good, spoilt: Path) -> None:
    path = spoilt / good.body["lane"][0]["path"]
    path.rename(spoilt / "moved")
    path.symlink_to(spoilt / "moved")
    refused(spoilt, "is a symbolic link")


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b"{}", b"\xff", b"", b'{"body":"\\ud800","checksum":""}', b"1" * 9999]
)
def test_a_manifest_that_is_none_is_refused(spoilt: Path, content: bytes) -> None:
    (spoilt / "manifest.json").write_bytes(content)
    refused(spoilt, "is not the manifest of a portable snapshot")


def test_every_file_is_verified(good: Good, spoilt: Path) -> None:
    for name in names(spoilt):
        data = (spoilt / name).read_bytes()
        (spoilt / name).write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
        refused(spoilt, "does not match its checksum|not the manifest")
        (spoilt / name).write_bytes(data)
    convert_snapshot(spoilt, spoilt.parent / "out")
    assert restored(spoilt.parent / "out", good.scene.graph) == good.content


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **{"compression": "none", "use_dictionary": False, **options})
    return bytes(sink.getvalue().to_pybytes())


def test_parquet_files_that_are_not_what_they_should_be(good: Good, spoilt: Path) -> None:
    body = copy.deepcopy(good.body)
    part = body["tables"][0]["parts"][0]
    table = pq.read_table(spoilt / part["file"]["path"])
    rows = table.num_rows
    spoils = {
        "compressed, or has dictionaries": parquet(table, compression="zstd"),
        "compressed, or has dictionaries$": parquet(table, use_dictionary=True),
        "not sorted by key group": parquet(table.take(list(range(rows))[::-1])),
        "key groups that there are not": parquet(
            table.set_column(0, "__key_group", pa.array([500] * rows, pa.int16()))
        ),
        "rows without a key group": parquet(table.set_column(0, "__key_group", pa.array([None] * rows, pa.int16()))),
        "has other columns": parquet(table.rename_columns(["__key_group", "count", "key"])),
        "cannot be read": b"PAR1" + b"\xff" * 200 + b"PAR1",
        "cannot be read:": b"",
    }
    for match, data in spoils.items():
        put(spoilt, body, part["file"], data)
        refused(spoilt, match)


def test_text_that_is_none_is_refused(good: Good, spoilt: Path) -> None:
    """pyarrow writes such bytes and reads them back as a string."""
    body = copy.deepcopy(good.body)
    ref = body["streams"][0]["file"]
    batch = next(pa.ipc.open_stream((spoilt / ref["path"]).read_bytes()))
    text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    put(spoilt, body, ref, stream_bytes(pa.record_batch([pa.array([1]), text], schema=batch.schema)))
    refused(spoilt, "Invalid UTF8")


def test_streams_that_are_not_what_they_should_be(good: Good, spoilt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = copy.deepcopy(good.body)
    ref = body["streams"][0]["file"]
    data = (spoilt / ref["path"]).read_bytes()
    batch = next(pa.ipc.open_stream(data))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    spoils = {
        "is compressed": bytes(sink.getvalue().to_pybytes()),
        "which the plan has not": stream_bytes(pa.record_batch({"other": [1]})),
        "message of the kind dictionary": stream_bytes(pa.record_batch({"d": pa.array(["a"]).dictionary_encode()})),
        "describes its rows wrongly": stream_bytes(batch),
        "cannot be read|rows instead of": data[: len(data) // 2],
        "cannot be read": b"",
    }
    for match, other in spoils.items():
        put(spoilt, body, ref, other)
        refused(spoilt, match)
    put(spoilt, body, ref, data)
    monkeypatch.setattr(untrusted_files, "MAX_ROWS", 2)
    refused(spoilt, "2 are allowed|row group")


LEAVES = st.sampled_from(
    [None, True, -1, 0, 3, 2**63, 1e308, "", "x", "../x", "lane/../x", [], {}, {"__blob__": 0}, [[]]]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, item in items for inner in places(item, (*path, key)))]


GONE: Any = object()


def at(holder: Any, key: Any) -> Any:
    if isinstance(holder, dict):
        return holder.get(key, GONE)
    return holder[key] if isinstance(holder, list) and isinstance(key, int) and key < len(holder) else GONE


@settings(max_examples=some(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_a_manifest_says_ends_in_one_error_or_in_a_location_that_can_be_read(
    good: Good, data: st.DataObject
) -> None:
    body = copy.deepcopy(good.body)
    for path in data.draw(st.lists(st.sampled_from(places(body)[1:]), min_size=1, max_size=2)):
        holder = body
        for key in path[:-1]:
            holder = at(holder, key)
        if at(holder, path[-1]) is GONE:
            continue  # an earlier change took it away
        if data.draw(st.booleans()):
            del holder[path[-1]]
        else:
            holder[path[-1]] = copy.deepcopy(data.draw(LEAVES))
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) / "spoilt"
        shutil.copytree(good.portable, directory)
        seal(directory, body)
        converted(directory, Path(temporary) / "out", good)


@settings(max_examples=some(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_in_a_file_ends_in_one_error_or_in_a_location_that_can_be_read(
    good: Good, data: st.DataObject
) -> None:
    body = copy.deepcopy(good.body)
    refs = [body["tables"][0]["parts"][0]["file"], body["streams"][1]["file"], body["blobs"][0]["files"][0]]
    ref = data.draw(st.sampled_from(refs))
    content = bytearray((good.portable / ref["path"]).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        end = data.draw(st.sampled_from([at + 1, at + 4, len(content)]))
        content[at:end] = data.draw(st.sampled_from([b"", b"\0", b"\xff\xff\xff\x7f", b"\xff", b"\1\0\0\0"]))
        content = content or bytearray(b"\0")
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) / "spoilt"
        shutil.copytree(good.portable, directory)
        put(directory, body, ref, bytes(content))
        converted(directory, Path(temporary) / "out", good)


def converted(directory: Path, location: Path, good: Good) -> None:
    """It is refused by name and leaves nothing, or can be restored."""
    before = names(directory.parent)
    try:
        convert_snapshot(directory, location)
    except PenstockError:
        assert names(directory.parent) == before
        assert not os.path.exists(location)
    else:
        restored(location, good.scene.graph)
