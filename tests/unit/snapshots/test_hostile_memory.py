"""Declared sizes cost no memory: bombs are read in a process that could not hold the result."""

from __future__ import annotations

import copy
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from penstock.snapshots.format.envelope import seal_envelope
from penstock.snapshots.portable.export import export_snapshot
from tests.support.snapshots.hostile import Body, put_metadata, replace_section, rewrite_metadata, sections
from tests.support.snapshots.portable_kit import Scene, stream_bytes
from tests.unit.snapshots.test_hostile_location import COMMITTED, append

MOST_BYTES = 400 << 20
"""That reading one of them may take."""
READER = [sys.executable, "-m", "tests.support.snapshots.bounded_reader"]
Spoil = Callable[[Path], None]


def sparse(name: str, size: int) -> Spoil:
    return lambda location: os.truncate(location / name, size)


def section(data: Callable[[], bytes]) -> Spoil:
    def spoil(location: Path) -> None:
        rewrite_metadata(location, 2, lambda metadata: replace_section(location, sections(metadata)[0], data()))

    return spoil


def forged_section(**changes: int) -> Spoil:
    return lambda location: rewrite_metadata(location, 2, lambda metadata: sections(metadata)[0].update(changes))


def holes(location: Path) -> None:
    """A file that takes no room, and a section that is all of it."""
    with (location / "data/9-9-9.arrows").open("wb") as file:
        file.truncate(1 << 30)
    changes = {"path": "data/9-9-9.arrows", "offset": 0, "length": 1 << 30}
    rewrite_metadata(location, 2, lambda metadata: sections(metadata)[0].update(changes))


def brackets(name: str, count: int, sealed: bool = False) -> Spoil:
    """Replace a file by JSON with many empty lists: each three bytes become a list of 64 bytes."""

    def spoil(location: Path) -> None:
        body = b"[" + b"[]," * count + b"[]]"
        checksum = xxhash.xxh3_128_hexdigest(body).encode() if sealed else b""
        (location / name).write_bytes(b'{"body":' + body + b',"checksum":"' + checksum + b'"}\n')

    return spoil


def metadata_of_brackets(location: Path) -> None:
    """Put brackets where any plain value is allowed."""
    metadata = json.loads((location / "snapshots/chk-2/metadata.json").read_bytes())
    metadata["sources"][0]["state"] = "brackets"
    put_metadata(location, 2, json.dumps(metadata).encode().replace(b'"brackets"', b"[" + b"[]," * (8 << 20) + b"[]]"))


def nulls() -> bytes:
    """A stream that says of some bytes that they are many rows."""
    few = stream_bytes(pa.record_batch([pa.nulls(7777)], ["n"]))
    return few.replace((7777).to_bytes(8, "little"), (1 << 40).to_bytes(8, "little"))


def zeros() -> bytes:
    """A gigabyte of zeros, in batches."""
    batch = pa.record_batch({"x": pa.array([0] * (1 << 22))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for _ in range(40):
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


NATIVE: dict[str, tuple[Spoil, str]] = {
    "a huge query.json": (sparse("query.json", 1 << 40), "no file of its kind has more"),
    "a huge log entry": (sparse("log/00000000000000000003.json", 1 << 40), "no file of its kind has more"),
    "huge metadata": (sparse("snapshots/chk-2/metadata.json", 1 << 40), "no file of its kind has more"),
    "many brackets": (brackets("query.json", 2 << 20), "holds too many values for its size"),
    "a file of brackets": (brackets("query.json", 8 << 20, sealed=True), "holds too many values for its size"),
    "a log entry of brackets": (
        brackets("log/00000000000000000003.json", 8 << 20, sealed=True),
        "holds too many values for its size",
    ),
    "metadata of brackets": (metadata_of_brackets, "holds too many values for its size"),
    "a section longer than its file": (forged_section(length=1 << 32), "bytes instead of 4294967296"),
    "a section of a gigabyte of holes": (holes, "CorruptSnapshot: "),
    "zeros, compressed": (section(zeros), "once decompressed|cannot be read"),
    "rows without bytes": (section(nulls), "bytes are 1099511627776 rows"),
    "a gap in the log": (
        lambda location: append(location, COMMITTED, seq=1 << 52),
        "is missing, though later",
    ),
}


def parquet(location: Path, table: pa.Table, **options: object) -> None:
    """Another file for the first part of the table; its footer may be forged, too."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"compression": "none", "use_dictionary": False, **options})
    manifest = json.loads((location / "manifest.json").read_bytes())["body"]
    part = manifest["tables"][0]["parts"][0]
    put(location, manifest, part["file"], sink.getvalue())


def put(directory: Path, body: Body, ref: Body, data: bytes) -> None:
    (directory / ref["path"]).write_bytes(data)
    ref |= {"length": len(data), "checksum": xxhash.xxh3_128(data).hexdigest()}
    (directory / "manifest.json").write_bytes(seal_envelope(copy.deepcopy(body)))


def prefixes(directory: Path) -> None:
    """Each value is the one before: megabytes of text in a few bytes each."""
    rows = 4000
    parquet(
        directory,
        pa.table({"s": ["x" * (1 << 12)] * rows}),
        column_encoding={"s": "DELTA_BYTE_ARRAY"},
        data_page_size=1 << 30,
        write_statistics=False,
    )
    manifest = json.loads((directory / "manifest.json").read_bytes())["body"]
    manifest["tables"][0]["parts"][0]["rows"] = rows
    (directory / "manifest.json").write_bytes(seal_envelope(manifest))


PORTABLE: dict[str, tuple[Spoil, str]] = {
    "text by prefixes": (prefixes, "only plain values are allowed"),
    "a manifest of brackets": (brackets("manifest.json", 8 << 20), "holds too many values for its size"),
    "a huge manifest": (sparse("manifest.json", 1 << 40), "more than 268435456 bytes"),
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Body]:
    """Return, by input, the result and the rise of the memory's peak."""
    folder = tmp_path_factory.mktemp("bombs")
    scene = Scene(folder, rounds=2)
    export_snapshot(str(scene.location), "chk-2", folder / "portable")
    places = [scene.location]
    for number, (name, (spoil, _)) in enumerate({**NATIVE, **PORTABLE}.items()):
        place = folder / f"bomb-{number}"
        shutil.copytree(folder / "portable" if name in PORTABLE else scene.location, place)
        spoil(place)
        places.append(place)
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*READER, *map(str, places)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return dict(zip([*NATIVE, *PORTABLE], lines, strict=True))


@pytest.mark.one_in(3)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of address space are Linux's")
@pytest.mark.parametrize("name", [*NATIVE, *PORTABLE])
def test_a_bomb_is_refused_in_bounded_memory(reports: dict[str, Body], name: str) -> None:
    report, expected = reports[name], {**NATIVE, **PORTABLE}[name][1]
    assert any(text in report["ended"] for text in expected.split("|")), report["ended"]
    assert report["peak"] < MOST_BYTES
