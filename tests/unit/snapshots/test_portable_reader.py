"""A reader of portable snapshots written from docs/snapshot-format.md alone: Penstock's code reads no file here."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import xxhash

from penstock.snapshots.portable.export import export_snapshot
from tests.support.snapshots.portable_kit import KEPT, LABEL, Scene


class PortableReader:
    """Everything a stranger needs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        envelope = json.loads((directory / "manifest.json").read_bytes())
        self.manifest = envelope["body"]
        canonical = json.dumps(self.manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        assert xxhash.xxh3_128(canonical).hexdigest() == envelope["checksum"]
        assert (self.manifest["format"], self.manifest["format_version"]) == ("penstock-portable-snapshot", 1)
        self.metadata = self.manifest["metadata"]

    def file(self, ref: dict[str, Any]) -> Path:
        path = self.directory / ref["path"]
        data = path.read_bytes()
        assert (len(data), xxhash.xxh3_128(data).hexdigest()) == (ref["length"], ref["checksum"])
        return path

    def table(self, operator_id: str, name: str) -> pd.DataFrame:
        """All subtasks' rows."""
        (table,) = [t for t in self.manifest["tables"] if (t["operator_id"], t["table"]) == (operator_id, name)]
        frame = pd.concat([pd.read_parquet(self.file(part["file"])) for part in table["parts"]])
        assert list(frame.columns) == [column["stored_as"] for column in table["columns"]]
        keys = [column["stored_as"] for column in table["columns"]][1 : 1 + table["key_columns"]]
        assert not frame.duplicated(keys).any()
        return frame

    def in_flight(self, exchange: str, consumer: int) -> list[tuple[str, str, int, dict[str, Any]]]:
        """The rows that one consumer replays, in order: where each waited, its buffer, its place there, its columns."""
        found: list[tuple[str, str, int, dict[str, Any]]] = []
        for stream in self.manifest["streams"]:
            if (stream["exchange"], stream["consumer"]) == (exchange, consumer):
                reader = pa.ipc.open_stream(self.file(stream["file"]).read_bytes())
                while len(found) < stream["rows"]:
                    batch, custom = reader.read_next_batch_with_custom_metadata()
                    assert custom[b"narrowed"] == b"false"
                    assert int(custom[b"consumer"]) == consumer
                    said = custom[b"side"].decode(), custom[b"buffer"].decode()
                    found += [
                        (*said, place, row) for place, row in enumerate(batch.to_pylist(), int(custom[b"offset"]))
                    ]
        return found


def test_a_stranger_can_read_a_portable_snapshot(tmp_path: Path) -> None:
    scene = Scene(tmp_path, rounds=3)
    export_snapshot(str(scene.location), LABEL, tmp_path / "portable")
    reader = PortableReader(tmp_path / "portable")
    metadata = reader.metadata
    assert (metadata["query_id"], metadata["id"], metadata["label"]) == ("query-1", "chk-3", LABEL)
    frame = reader.table("count-1", "counts")
    expected = {key: count for table in scene.tables for (key,), count in table.items()}
    assert dict(zip(frame["key"], frame["count"], strict=True)) == expected
    assert frame["__key_group"].between(0, metadata["max_parallelism"] - 1).all()
    for slot in range(2):
        captured = [(c.side.value, c.layer, c) for c in scene.inflight(slot, 3)]
        captured.sort(key=lambda one: (one[1], one[0] != "consumer"))
        rows = [
            (side, str(c.buffer.id), place, row)
            for side, _, c in captured
            for place, row in enumerate(c.buffer.payload.slice(c.offset, c.rows).to_pylist(), c.offset)
        ]
        assert reader.in_flight("0", slot) == rows
    (source,) = metadata["sources"]
    (blobs,) = reader.manifest["blobs"]
    segment = source["state"]["segments"][0]["__blob__"]
    content = pa.ipc.open_stream(reader.file(blobs["files"][segment]).read_bytes()).read_all()
    assert content.to_pylist() == [{"file_hash": b"0123456789abcdef", "modified_ms": 7}]
    subtasks = {(s["vertex"], s["index"]): s for slot in metadata["slots"] for s in slot["subtasks"]}
    assert base64.b64decode(subtasks[1, 0]["pending_messages"]["3"]) == b"\0\xff staged"
    assert subtasks[1, 1]["channel_watermarks"] == {"0:0": 1000, "0:1": 1001}
    assert subtasks[1, 1]["scalars"] == {"count-1": {"seen": 1.5, "a": [None]}}
    assert [split["spec"].get("path") for split in subtasks[0, 1]["splits"]] == [KEPT, None]
    (kept,) = reader.manifest["lane"]
    assert reader.file(kept).read_bytes() == b"rows that a split names"
