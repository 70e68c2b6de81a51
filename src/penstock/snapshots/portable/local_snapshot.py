"""Local, checked copy of a portable snapshot that may be forged.

A snapshot on an object store is downloaded. Sizes are compared with those in the manifest before any other file is
read. Downloaded files are named by numbers instead of their names in the manifest, and are hashed while they are
written.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import xxhash

from penstock.errors import CorruptSnapshot, LocationError
from penstock.snapshots.location import IDENTITY_PATH
from penstock.snapshots.portable.files import COPY_BYTES, checked_file
from penstock.snapshots.portable.layout import (
    MANIFEST,
    FileRef,
    Manifest,
    check_manifest_size,
    no_manifest_error,
    parse_manifest,
    read_manifest,
)
from penstock.snapshots.portable.manifest_checks import checked_manifest
from penstock.snapshots.progress_meter import Meter, Progress, no_progress
from penstock.snapshots.store.parallel_reads import read_in_parallel
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.store_access import StoreAccess
from penstock.snapshots.store.stores import is_object_store, local_folder, store_at


@dataclass(frozen=True)
class LocalSnapshot:
    """Portable snapshot whose manifest and files are checked.

    Attributes:
        paths: local path of each file of the manifest, by its path there. The bytes match the manifest.
        meter: progress over the bytes of all files. Each byte counts twice: once when it is checked, once when it is
            copied.
    """

    manifest: Manifest
    paths: Mapping[str, Path]
    meter: Meter


@contextmanager
def open_portable(
    directory: str | Path,
    access: StoreAccess | None = None,
    staging: Path | None = None,
    progress: Progress = no_progress,
) -> Iterator[LocalSnapshot]:
    """Open a portable snapshot for reading while the context is open.

    Args:
        directory: a folder, or ``s3://bucket/prefix``.
        access: access to an object store; None takes it from the environment.
        staging: folder for downloads, which are removed at the end; None uses the system's temporary folder.
        progress: see ``LocalSnapshot``.

    Raises:
        LocationError: there is no portable snapshot, it has a later format version, or there is no space for the
            download.
        CorruptSnapshot: the snapshot is damaged, or its manifest has impossible values.
    """
    if not (isinstance(directory, str) and is_object_store(directory)):
        folder = directory if isinstance(directory, Path) else local_folder(directory)
        manifest = read_manifest(folder)
        checked_manifest(manifest, str(folder))
        meter = _meter(manifest, progress)
        paths = {ref.path: checked_file(folder, ref, meter) for ref in manifest.files()}
        yield LocalSnapshot(manifest, paths, meter)
        return
    store = store_at(directory, access)
    try:
        manifest = read_manifest_from(store)
        checked_manifest(manifest, store.root)
        check_sizes(store, manifest)
    except OSError as error:
        raise LocationError(f"{store.root} cannot be read: {error}") from error
    if staging is not None:
        staging.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".penstock-portable-", suffix=".tmp", dir=staging) as name:
        meter = _meter(manifest, progress)
        yield LocalSnapshot(manifest, _fetch_files(store, manifest, Path(name), meter), meter)


def _meter(manifest: Manifest, progress: Progress) -> Meter:
    return Meter(2 * sum(ref.length for ref in manifest.files()), progress)


def read_manifest_from(store: Store) -> Manifest:
    """Return the manifest of a store. Raises as ``read_manifest``; also OSError."""
    path = f"{store.root}/{MANIFEST}"
    size = store.size(MANIFEST)
    if size is None:
        raise no_manifest_error(store.root)
    check_manifest_size(size, path)
    return parse_manifest(store.read_range(MANIFEST, 0, size), path)


def find_manifest(location: str, access: StoreAccess | None = None) -> Manifest | None:
    """Return the checked manifest of a portable snapshot; None if the location holds none or cannot be read.

    Raises:
        LocationError, CorruptSnapshot: as ``open_portable``.
    """
    store = store_at(location, access)
    try:
        names = store.top_names()
        if MANIFEST not in names or IDENTITY_PATH in names:
            return None
        manifest = read_manifest_from(store)
    except OSError:
        return None
    checked_manifest(manifest, store.root)
    return manifest


def check_sizes(store: Store, manifest: Manifest) -> None:
    """Check that all files of a manifest exist with the right sizes. Raises CorruptSnapshot, OSError."""
    sizes = store.sizes([ref.path for ref in manifest.files()])
    for ref in manifest.files():
        if ref.path not in sizes:
            raise CorruptSnapshot(f"{ref.path} in {store.root} is missing")
        if sizes[ref.path] != ref.length:
            raise CorruptSnapshot(f"{ref.path} in {store.root} has {sizes[ref.path]} bytes instead of {ref.length}")


def _fetch_files(store: Store, manifest: Manifest, folder: Path, meter: Meter) -> dict[str, Path]:
    files = manifest.files()
    needed, free = sum(ref.length for ref in files), shutil.disk_usage(folder).free
    if needed > free:
        raise LocationError(
            f"{store.root} has {needed} bytes, and {folder.parent}, where they are brought to be read, has {free} "
            "free; make room there"
        )
    numbered = [(ref, folder / f"{number:08d}") for number, ref in enumerate(files)]
    read_in_parallel(store, lambda one: _fetch_file(store, *one, meter), numbered)
    return {ref.path: path for ref, path in numbered}


def _fetch_file(store: Store, ref: FileRef, path: Path, meter: Meter) -> None:
    """Download at most the declared number of bytes, one piece in memory at a time."""
    found, source = xxhash.xxh3_128(), f"{ref.path} in {store.root}"
    try:
        with path.open("xb") as file:
            for offset in range(0, ref.length, COPY_BYTES):
                data = store.read_range(ref.path, offset, min(COPY_BYTES, ref.length - offset))
                found.update(data)
                file.write(data)
                meter.add(len(data))
    except FileNotFoundError:
        raise CorruptSnapshot(f"{source} is missing") from None
    except OSError as error:
        raise LocationError(f"{source} cannot be downloaded: {error}") from error
    if found.hexdigest() != ref.checksum:
        raise CorruptSnapshot(f"{source} does not match its checksum; export the snapshot again")
