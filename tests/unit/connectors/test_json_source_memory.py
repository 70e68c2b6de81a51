"""Memory of the JSON source for documents without scalar values, in bytes per byte read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SIZE = 1 << 19
MOST = 40
"""Limit in bytes per byte: 32 for the result and its values, and the line, encoded and decoded."""
PROGRAM = """
import json, os, resource, sys
import pyarrow as pa
from penstock.connectors.files.json.reading import json_format
from penstock.connectors.option_texts import OptionTexts

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

kinds = {
    "string": pa.string(), "lists": pa.list_(pa.list_(pa.int64())), "map": pa.map_(pa.string(), pa.string()),
}
path, kind, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
read = json_format(pa.schema([("a", kinds[kind])]), OptionTexts("test", options), "UTC")
list(read(sys.argv[4], 0))
before = peak()
rows = sum(batch.num_rows for batch in read(path, 0))
print(json.dumps([rows, (peak() - before) / os.path.getsize(path)]))
"""
DOCUMENTS = {
    "brackets": b'{"a":' + b"[" * SIZE + b"}",
    "many that are deep": b'{"a":[' + (b"[" * 900 + b"]" * 900 + b",") * (SIZE // 1801) + b"1]}",
    "objects": b'{"a":[' + b'{"a":{}},' * (SIZE // 9) + b"1]}",
    "empty lists": b'{"a":[' + b"[]," * (SIZE // 3) + b"[]]}",
    "names": b'{"a":{' + b",".join(b'"%x":1' % n for n in range(SIZE // 10)) + b"}}",
    "rows in a row": b"[" + b'{"a":1},' * (SIZE // 8) + b'{"a":1}]',
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("brackets", "string"),
        ("many that are deep", "string"),
        ("objects", "string"),
        ("empty lists", "lists"),
        ("names", "map"),
        ("rows in a row", "string"),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_the_memory_of_a_document_is_bounded(tmp_path: Path, name: str, kind: str, whole: bool) -> None:
    (tmp_path / "a.json").write_bytes(DOCUMENTS[name] + b"\n")
    (tmp_path / "warm.json").write_bytes(b'{"a":null}\n')
    options = json.dumps({"multiLine": str(whole).lower()})
    arguments = [str(tmp_path / "a.json"), kind, options, str(tmp_path / "warm.json")]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=240, check=True
    )
    rows, ratio = json.loads(done.stdout)
    assert rows >= 1
    assert ratio < MOST
