"""Stores by location. Only this module knows the schemes of locations."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from penstock.errors import LocationError
from penstock.snapshots.store.store import LocalStore, Store
from penstock.snapshots.store.store_access import StoreAccess

S3_SCHEMES = ("s3", "s3a")
"""Schemes of S3 locations. ``s3a`` is the name of the same scheme in Hadoop and Spark."""
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):")
_WHAT = "checkpointLocation"


def store_at(location: str, access: StoreAccess | None = None) -> Store:
    """Return the store of a location, without accessing it.

    Args:
        location: a path, with or without ``file:`` in front; ``s3://bucket/prefix``; or the ``root`` of a store.
        access: access to an object store; None takes it from the environment.

    Raises:
        LocationError: the scheme is unknown, or its library is not installed.
    """
    if is_object_store(location):
        from penstock.snapshots.store.object_store import S3Store  # obstore is an optional dependency

        return S3Store(location_text(location), access)
    return LocalStore(local_folder(location))


def is_object_store(location: str) -> bool:
    """Return True for a location on an object store. Raises LocationError for an unknown scheme."""
    scheme = _scheme(location)
    if scheme not in (None, "file", *S3_SCHEMES):
        raise LocationError(
            f"{_WHAT} {location}: there is no store for {scheme}; give a path of a file system that driver and"
            " executors share, or s3://bucket/prefix of an S3-compatible object store"
        )
    return scheme in S3_SCHEMES


def location_text(location: str) -> str:
    """Return the normal form of a location: an absolute path, or ``s3://bucket/prefix``. Raises LocationError."""
    if not is_object_store(location):
        return os.path.abspath(local_folder(location))
    parts = urlsplit(location)
    if "@" in parts.netloc:
        raise LocationError(
            f"a {_WHAT} on {parts.scheme} has a user or a key in front of its bucket: anybody could read it there;"
            " give keys in the environment or with spark.penstock.s3.accessKey"
        )
    names = [name for name in parts.path.split("/") if name]
    if not parts.netloc or parts.query or parts.fragment or any(name in (".", "..") for name in names):
        raise LocationError(f"{_WHAT} {location} is not of the form s3://bucket/prefix")
    return "/".join([f"s3://{parts.netloc}", *names])


def is_same_location(one: str, other: str) -> bool:
    """Return True if two names lead to the same location. Raises LocationError."""
    return canonical_location(one) == canonical_location(other)


def canonical_location(location: str) -> str:
    """Return the normal form of a location with links resolved. Raises LocationError."""
    text = location_text(location)
    return text if is_object_store(text) else os.path.realpath(text)


def child_location(location: str, name: str) -> str:
    """Return the location with this name inside another one. Raises LocationError."""
    text = location_text(location)
    return f"{text}/{name}" if is_object_store(text) else str(Path(text) / name)


def local_folder(location: str) -> Path:
    """Return the absolute path of a location on a local or mounted file system. Raises LocationError for others."""
    if not location:
        raise LocationError(f"{_WHAT} is empty; give a folder that the driver and all executors share")
    if is_object_store(location):
        raise LocationError(f"{location} is no folder, and one is needed here; give a path")
    if _scheme(location) is None:
        return Path(location).absolute()
    rest = location.partition(":")[2]
    return Path("/" + rest.lstrip("/")) if rest.startswith("/") else Path(rest).absolute()


def _scheme(location: str) -> str | None:
    """Return the scheme of a location; None for a path, which may contain a colon."""
    match = _SCHEME.match(location)
    return match[1].lower() if match else None
