"""A portable snapshot whose manifest and files are checked, as plain files here: it may come from anywhere.

One of an object store is fetched: sizes are compared with what the manifest declares before anything else is asked for,
what is fetched is named by numbers, not by the manifest, and hashed on its way.
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
from penstock.snapshots.portable.checks import checked_manifest
from penstock.snapshots.portable.files import AT_ONCE, checked_file
from penstock.snapshots.portable.layout import (
    MANIFEST,
    FileRef,
    Manifest,
    check_manifest_size,
    no_manifest,
    opened_manifest,
    read_manifest,
)
from penstock.snapshots.progress_meter import Meter, Progress, no_progress
from penstock.snapshots.store.parallel_reads import read_in_parallel
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.store_access import StoreAccess
from penstock.snapshots.store.stores import is_object_store, local_folder, store_at


@dataclass(frozen=True)
class PortableAtHand:
    """``paths``: where each file of the manifest lies here, by its path there; its bytes are as it says. ``meter``: of
    the bytes of all files, each of which counts twice: it was looked at, and has yet to be brought."""

    manifest: Manifest
    paths: Mapping[str, Path]
    meter: Meter


@contextmanager
def portable_at_hand(
    directory: str | Path,
    access: StoreAccess | None = None,
    staging: Path | None = None,
    progress: Progress = no_progress,
) -> Iterator[PortableAtHand]:
    """A portable snapshot to read from, for as long as this lasts.

    Args:
        directory: a folder, or ``s3://bucket/prefix``.
        access: to an object store; None: as the environment says.
        staging: a folder for what is fetched, which is gone at the end; None: the system's for temporary files.
        progress: see ``PortableAtHand``.

    Raises:
        LocationError: there is none, it is of a later version, or there is no room for it here.
        CorruptSnapshot: it is damaged, or its manifest says what cannot be.
    """
    if not (isinstance(directory, str) and is_object_store(directory)):
        folder = directory if isinstance(directory, Path) else local_folder(directory)
        manifest = read_manifest(folder)
        checked_manifest(manifest, str(folder))
        meter = _meter(manifest, progress)
        paths = {ref.path: checked_file(folder, ref, meter) for ref in manifest.files()}
        yield PortableAtHand(manifest, paths, meter)
        return
    store = store_at(directory, access)
    try:
        manifest = manifest_in(store)
        checked_manifest(manifest, store.root)
        check_sizes(store, manifest)
    except OSError as error:
        raise LocationError(f"{store.root} cannot be read: {error}") from error
    if staging is not None:
        staging.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".penstock-portable-", suffix=".tmp", dir=staging) as name:
        meter = _meter(manifest, progress)
        yield PortableAtHand(manifest, _fetched(store, manifest, Path(name), meter), meter)


def _meter(manifest: Manifest, progress: Progress) -> Meter:
    return Meter(2 * sum(ref.length for ref in manifest.files()), progress)


def manifest_in(store: Store) -> Manifest:
    """As ``read_manifest``, in a store; raises OSError, too."""
    path = f"{store.root}/{MANIFEST}"
    size = store.size(MANIFEST)
    if size is None:
        raise no_manifest(store.root)
    check_manifest_size(size, path)
    return opened_manifest(store.read_range(MANIFEST, 0, size), path)


def manifest_at(location: str, access: StoreAccess | None = None) -> Manifest | None:
    """Return the checked manifest of a portable snapshot; None if there is none at this place, or it cannot be read.

    Raises:
        LocationError, CorruptSnapshot: as ``portable_at_hand``.
    """
    store = store_at(location, access)
    try:
        names = store.top_names()
        if MANIFEST not in names or IDENTITY_PATH in names:
            return None
        manifest = manifest_in(store)
    except OSError:
        return None
    checked_manifest(manifest, store.root)
    return manifest


def check_sizes(store: Store, manifest: Manifest) -> None:
    """All files of a checked manifest are there, and as long as it says. Raises CorruptSnapshot, OSError."""
    sizes = store.sizes([ref.path for ref in manifest.files()])
    for ref in manifest.files():
        if ref.path not in sizes:
            raise CorruptSnapshot(f"{ref.path} in {store.root} is missing")
        if sizes[ref.path] != ref.length:
            raise CorruptSnapshot(f"{ref.path} in {store.root} has {sizes[ref.path]} bytes instead of {ref.length}")


def _fetched(store: Store, manifest: Manifest, folder: Path, meter: Meter) -> dict[str, Path]:
    files = manifest.files()
    needed, free = sum(ref.length for ref in files), shutil.disk_usage(folder).free
    if needed > free:
        raise LocationError(
            f"{store.root} has {needed} bytes, and {folder.parent}, where they are brought to be read, has {free} "
            "free; make room there"
        )
    numbered = [(ref, folder / f"{number:08d}") for number, ref in enumerate(files)]
    read_in_parallel(store, lambda one: _fetch(store, *one, meter), numbered)
    return {ref.path: path for ref, path in numbered}


def _fetch(store: Store, ref: FileRef, path: Path, meter: Meter) -> None:
    """No more of it than was declared, a piece in memory at a time."""
    found, place = xxhash.xxh3_128(), f"{ref.path} in {store.root}"
    try:
        with path.open("xb") as file:
            for offset in range(0, ref.length, AT_ONCE):
                data = store.read_range(ref.path, offset, min(AT_ONCE, ref.length - offset))
                found.update(data)
                file.write(data)
                meter.add(len(data))
    except FileNotFoundError:
        raise CorruptSnapshot(f"{place} is missing") from None
    except OSError as error:
        raise LocationError(f"{place} cannot be brought here: {error}") from error
    if found.hexdigest() != ref.checksum:
        raise CorruptSnapshot(f"{place} does not match its checksum; export the snapshot again")
