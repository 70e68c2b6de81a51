"""From the text that names a location to its store: the one place that knows schemes."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import LocationError
from penstock.snapshot.store import LocalStore, Store


def store_at(location: str) -> Store:
    """The store of a location; nothing is looked at there.

    Args:
        location: a path, with or without ``file:`` in front; or what a store's ``root`` says.

    Raises:
        LocationError: a scheme that there is no store for.
    """
    return LocalStore(local_folder(location))


def local_folder(location: str) -> Path:
    """The absolute path of a location on a local or mounted file system. Raises LocationError for any other."""
    if not location:
        raise LocationError("checkpointLocation is empty; give a folder that the driver and all executors share")
    scheme, separator, rest = location.partition(":")
    if not separator or "/" in scheme:
        return Path(location).absolute()
    if scheme != "file":
        raise LocationError(
            f"checkpointLocation {location}: {scheme} is not supported yet; give a path of a file system that driver"
            " and executors share"
        )
    return Path("/" + rest.lstrip("/")) if rest.startswith("/") else Path(rest).absolute()
