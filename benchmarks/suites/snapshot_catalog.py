"""Many snapshots in one location: ``penstock snapshot list``, ``delete`` and ``gc``, each a process of its own.

A small query (count and sum of 100 keys, two slots) takes real snapshots until its chains of deltas are as long as they
get. The location that is measured has the newest one's metadata so many times, with ids, file names and chains moved
on, and data files of the same size: whatever lists, deletes and collects reads no more than that.

The same in a bucket of moto, a server in Python of one process: its own time for the plain requests, made with obstore
side by side in the same run, is the measure there.
"""

from __future__ import annotations

import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import msgspec
import obstore
from obstore.store import S3Store
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

from benchmarks.lib import harness
from penstock.model.ids import snapshot_id
from penstock.model.manifest import QueryIdentity, SnapshotMetadata
from penstock.snapshots.catalog import metadata_path
from penstock.snapshots.format.envelope import digest, seal_envelope
from penstock.snapshots.location import IDENTITY_PATH, read_identity
from penstock.snapshots.log.entries import EpochCommitted, GenerationOpened, MetadataRef, SnapshotComplete
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.object_store import PARALLEL_REQUESTS
from penstock.snapshots.store.store import LocalStore
from tests.support.s3_server import S3Server, moto

SIZES = (1_000, 10_000)
WARM_ROUNDS = 3
TAKEN = 120
"""More than a chain of deltas can have."""
KEYS = 100
PAGE = 1000
"""Objects in one answer of a listing, as S3 has it."""


def small(spark: SparkSession) -> tuple[QueryIdentity, list[bytes]]:
    """Return the identity of a small query and its metadata files, the oldest first."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 5_000).load()
    counts = rows.groupBy((F.col("value") % KEYS).alias("key")).agg(F.count("*").alias("n"), F.sum("value").alias("s"))
    with harness.running(counts, mode="update") as query:
        store = LocalStore(harness.LOCATIONS[query.runId])
        taken = [query.snapshot() for _ in range(TAKEN)]
        return read_identity(store), [store.read(metadata_path(one.checkpoint)) for one in taken]


def populate(folder: Path, identity: QueryIdentity, template: bytes, count: int) -> None:
    """A location with so many snapshots, whose last driver has ended."""
    store = LocalStore(folder)
    store.create_if_absent(IDENTITY_PATH, seal_envelope(msgspec.to_builtins(identity)))
    log = SnapshotLog(store, lambda: secrets.token_hex(16))
    log.append(GenerationOpened(1, 0, 1, count + 1, 0))
    newest = msgspec.json.decode(template, type=SnapshotMetadata)
    (folder / "data").mkdir()
    for checkpoint in range(1, count + 1):
        moved = _moved(template, newest, checkpoint)
        for path, size in _own_files(newest, checkpoint).items():
            (folder / path).write_bytes(bytes(size))
        target = folder / metadata_path(checkpoint)
        target.parent.mkdir(parents=True)
        target.write_bytes(moved)
        ref = MetadataRef(metadata_path(checkpoint), len(moved), digest(moved))
        log.append(SnapshotComplete(1, checkpoint, True, ref, checkpoint, count + 1))
        log.summarise()
    log.append(EpochCommitted(1, count, count + 1, ended=True))


def _moved(template: bytes, newest: SnapshotMetadata, checkpoint: int) -> bytes:
    """The template as another checkpoint's metadata. The first ones lack what chains would need before them."""
    distance = checkpoint - newest.checkpoint

    def section(ref: dict[str, object]) -> dict[str, object]:
        generation, own, rest = str(ref["path"]).removeprefix("data/").split("-", 2)
        return {**ref, "path": f"data/{generation}-{int(own) + distance}-{rest}"}

    document = msgspec.json.decode(template)
    document |= {"checkpoint": checkpoint, "id": snapshot_id(checkpoint)}
    for slot in document["slots"]:
        for subtask in slot["subtasks"]:
            moved = [{**state, "section": section(state["section"])} for state in subtask.get("states", [])]
            subtask["states"] = [s for s in moved if int(s["section"]["path"].split("-")[1]) > 0]
    return msgspec.json.encode(document)


def _own_files(newest: SnapshotMetadata, checkpoint: int) -> dict[str, int]:
    """The files that this checkpoint writes, with their sizes."""
    sizes: dict[str, int] = {}
    for slot in newest.slots:
        for ref in (state.section for subtask in slot.subtasks for state in subtask.states):
            generation, own, rest = ref.path.removeprefix("data/").split("-", 2)
            if int(own) == newest.checkpoint:
                path = f"data/{generation}-{checkpoint}-{rest}"
                sizes[path] = max(sizes.get(path, 0), ref.offset + ref.length)
    return sizes


def evict(folder: Path) -> None:
    """The location's files leave the page cache."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def command_s(cache: Path, *arguments: str, env: Mapping[str, str] = MappingProxyType({})) -> float:
    """Seconds from start to end of ``penstock snapshot ...``, the start of Python included."""
    began = time.perf_counter()
    subprocess.run(
        [Path(sys.executable).with_name("penstock"), "snapshot", *arguments],
        env={**os.environ, "XDG_CACHE_HOME": str(cache), **env},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - began


def measure(identity: QueryIdentity, template: bytes, count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-many-") as name:
        folder, cache = Path(name, "location"), Path(name, "cache")
        folder.mkdir()
        populate(folder, identity, template, count)
        location = str(folder)
        evict(folder)
        cold_s = command_s(cache, "list", location, "--json")
        warm = [command_s(cache, "list", location, "--json") for _ in range(WARM_ROUNDS)]
        text = [command_s(cache, "list", location) for _ in range(WARM_ROUNDS)]
        delete_s = command_s(cache, "delete", location, snapshot_id(count // 2))
        for number in range(count // 10):
            (folder / f"data/1-{count * 2 + number}-0.arrows").write_bytes(b"left by a crash")
        return {
            "cold_s": cold_s,
            "warm_s": statistics.median(warm),
            "warm_text_s": statistics.median(text),
            "delete_s": delete_s,
            "gc_s": command_s(cache, "gc", location),
        }


def uploaded(folder: Path, bucket: S3Store, place: str) -> float:
    """Put all files of a location into the bucket; seconds."""
    began = time.perf_counter()
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        for _ in pool.map(
            lambda path: obstore.put(bucket, f"{place}/{path.relative_to(folder)}", path),
            (path for path in folder.rglob("*") if path.is_file()),
        ):
            pass
    return time.perf_counter() - began


def plain_get_s(bucket: S3Store, paths: Sequence[str]) -> float:
    """Seconds for getting these objects, as many side by side as a location's reader has."""
    began = time.perf_counter()
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        for _ in pool.map(lambda path: obstore.get(bucket, path).bytes(), paths):
            pass
    return time.perf_counter() - began


def plain_list_s(bucket: S3Store, place: str) -> float:
    """Seconds for listing what a collection has to see."""
    began = time.perf_counter()
    for folder in ("data", "snapshots"):
        obstore.list(bucket, f"{place}/{folder}", chunk_size=PAGE).collect()
    return time.perf_counter() - began


def measure_in_bucket(server: S3Server, identity: QueryIdentity, template: bytes, count: int) -> dict[str, float]:
    env, place = server.environment(), f"many-{count}"
    bucket = S3Store(
        server.bucket,
        endpoint=server.endpoint,
        region="us-east-1",
        access_key_id=env["AWS_ACCESS_KEY_ID"],
        secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
        client_options={"allow_http": True},
    )
    with tempfile.TemporaryDirectory(prefix="penstock-bench-many-") as name:
        folder, cache = Path(name, "location"), Path(name, "cache")
        folder.mkdir()
        populate(folder, identity, template, count)
        upload_s = uploaded(folder, bucket, place)
        location = f"s3://{server.bucket}/{place}"
        gets_s = plain_get_s(bucket, [f"{place}/{metadata_path(one)}" for one in range(1, count + 1)])
        cold_s = command_s(cache, "list", location, "--json", env=env)
        warm = [command_s(cache, "list", location, "--json", env=env) for _ in range(WARM_ROUNDS)]
        delete_s = command_s(cache, "delete", location, snapshot_id(count // 2), env=env)
        gc_s = command_s(cache, "gc", location, env=env)
        return {
            "upload_s": upload_s,
            "plain_gets_s": gets_s,
            "plain_lists_s": plain_list_s(bucket, place),
            "cold_s": cold_s,
            "warm_s": statistics.median(warm),
            "delete_s": delete_s,
            "gc_s": gc_s,
        }


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    identity, files = small(spark)
    sizes = [size // 10 for size in SIZES] if quick else SIZES
    measured = {str(count): measure(identity, files[-1], count) for count in sizes}
    ratio = measured[str(sizes[1])]["gc_s"] / measured[str(sizes[0])]["gc_s"]
    with moto(page=PAGE) as server:
        in_bucket = {str(count): measure_in_bucket(server, identity, files[-1], count) for count in sizes}
    return {
        "in_bucket": in_bucket,
        "metadata_bytes": {"largest": max(map(len, files)), "newest": len(files[-1]), "first": len(files[0])},
        "start_s": command_s(Path(), "--help"),
        "snapshots": measured,
        "gc_of_ten_times_as_many": ratio,
    }
